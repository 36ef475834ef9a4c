//! Paths on pages. A page can be sent to others, who need not know the folders of the machine that
//! made it, so only the last parts of absolute paths are shown.

use std::path::{Component, Path};

/// Last `parts` parts of an absolute path, behind `…/`. A relative path is returned as it is.
pub(crate) fn short(path: &Path, parts: usize) -> String {
    if !path.is_absolute() {
        return path.display().to_string();
    }
    let names: Vec<_> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy()),
            _ => None,
        })
        .collect();
    let last = &names[names.len().saturating_sub(parts)..];
    if last.is_empty() { path.display().to_string() } else { format!("…/{}", last.join("/")) }
}

/// Text in TOML in which the absolute paths are replaced by their last `parts` parts. A string in
/// double quotes is replaced only if the whole string is a path.
pub(crate) fn short_in_toml(toml: &str, parts: usize) -> String {
    let shown = |(number, text): (usize, &str)| match number % 2 {
        1 => short(Path::new(text), parts),
        _ => text.to_owned(),
    };
    toml.split('"').enumerate().map(shown).collect::<Vec<_>>().join("\"")
}

/// Values in TOML with their absolute paths shortened. Values that differ also differ afterwards;
/// if this is not possible, the values are returned as they are.
pub(crate) fn short_values(values: &[String]) -> Vec<String> {
    distinct(values, short_in_toml)
}

/// Paths in which the absolute ones are shortened. Paths that differ also differ afterwards; if
/// this is not possible, the paths are returned as they are.
pub(crate) fn short_paths(paths: &[String]) -> Vec<String> {
    distinct(paths, |path, parts| short(Path::new(path), parts))
}

/// Shortens the paths in `texts`. As few parts of a path are kept as possible, but enough that
/// different texts stay different. `shorten(text, parts)` keeps the last `parts` parts of each path
/// in a text.
fn distinct(texts: &[String], shorten: impl Fn(&str, usize) -> String) -> Vec<String> {
    /// Numbers of parts below this one are tried. If none of them is enough, the texts are returned
    /// as they are.
    const MOST: usize = 32;
    let is_equal = |texts: &[String]| -> Vec<bool> {
        texts.iter().flat_map(|one| texts.iter().map(move |other| one == other)).collect()
    };
    let whole = is_equal(texts);
    let short = |parts| texts.iter().map(|text| shorten(text, parts)).collect::<Vec<_>>();
    (1..MOST).map(short).find(|short| is_equal(short) == whole).unwrap_or_else(|| texts.to_vec())
}

/// Text of a message in which each word that is an absolute path is shortened to its last part.
pub(crate) fn short_in_words(text: &str) -> String {
    let shown = |word: &str| {
        let path = word.trim_end_matches([':', ';', ',']);
        format!("{}{}", short(Path::new(path), 1), &word[path.len()..])
    };
    text.split(' ').map(shown).collect::<Vec<_>>().join(" ")
}

/// Argument of a command that was started in `folder`. A path in this folder is shown relative to
/// it, and other absolute paths are shortened.
pub(crate) fn short_argument(argument: &str, folder: &Path) -> String {
    let (option, path) = match argument.split_once('=') {
        Some((option, path)) if option.starts_with('-') || path.starts_with('/') => {
            (format!("{option}="), path)
        }
        _ => (String::new(), argument),
    };
    let path = Path::new(path);
    match path.strip_prefix(folder) {
        Ok(inside) if path.is_absolute() && !inside.as_os_str().is_empty() => {
            format!("{option}{}", inside.display())
        }
        _ => format!("{option}{}", short(path, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ends_of_absolute_paths_are_shown() {
        assert_eq!(short(Path::new("/home/me/runs/a"), 1), "…/a");
        assert_eq!(short(Path::new("/home/me/runs/a"), 2), "…/runs/a");
        assert_eq!(short(Path::new("runs/a"), 1), "runs/a");
        assert_eq!(short(Path::new("/"), 1), "/");
        let toml = "dir = \"/home/me/text\"\nprefix = \"a / b\"\nfile = [\"/x/y.tsv\"]\n";
        assert_eq!(
            short_in_toml(toml, 1),
            "dir = \"…/text\"\nprefix = \"a / b\"\nfile = [\"…/y.tsv\"]\n"
        );
        let values = ["\"/a/x/text\"", "\"/b/x/text\"", "\"/a/x/text\"", "–"].map(str::to_owned);
        assert_eq!(
            short_values(&values),
            ["\"…/a/x/text\"", "\"…/b/x/text\"", "\"…/a/x/text\"", "–"]
        );
        assert_eq!(
            short_in_words("sentences: cannot read /home/me/test.en: it is gone (a / b)"),
            "sentences: cannot read …/test.en: it is gone (a / b)"
        );
        let argument = |text: &str| short_argument(text, Path::new("/home/me/work"));
        assert_eq!(argument("/home/me/work/runs/a"), "runs/a");
        assert_eq!(argument("--from=/home/me/old"), "--from=…/old");
        assert_eq!(argument("data.dir=/home/me/text"), "data.dir=…/text");
        assert_eq!(argument("/usr/bin/taper"), "…/taper");
        assert_eq!(argument("--json"), "--json");
    }
}
