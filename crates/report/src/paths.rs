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

/// Text in which each absolute path is replaced by `shown(path)`.
///
/// A path begins with a slash at the beginning of the text, after a space or a line break, or after
/// one of the characters `"'=:,;|([{` or a backtick. After a quotation mark it ends at the next such
/// mark; elsewhere it ends before a space, a quotation mark, or one of `,;|)]}`.
fn with_paths(text: &str, shown: impl Fn(&Path) -> String) -> String {
    const QUOTES: [char; 3] = ['"', '\'', '`'];
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(slash) = rest.find('/') {
        let (before, path) = rest.split_at(slash);
        result += before;
        let is_end = |end: char| {
            end.is_whitespace()
                || QUOTES.contains(&end)
                || [',', ';', '|', ')', ']', '}'].contains(&end)
        };
        let last = result.chars().next_back();
        let quote = last.filter(|last| QUOTES.contains(last));
        let quoted = quote.and_then(|quote| path.find([quote, '\n'])).unwrap_or(0);
        let length = match path[..quoted].is_empty() {
            true => path.find(is_end).unwrap_or(path.len()),
            false => quoted,
        };
        // A colon at the end belongs to the sentence.
        let length = path[..length].trim_end_matches(':').len();
        let begins = match last {
            None => true,
            // The slashes of `http://` begin no path, but the third one of `file:///` does.
            Some(':') => !path.starts_with("//"),
            Some('/') => result.ends_with("file://"),
            Some(last) => last.is_whitespace() || quote.is_some() || "=,;|([{".contains(last),
        };
        let is_name = path[..length].chars().any(|character| character != '/');
        let length = if begins && is_name { length } else { 1 };
        match length {
            1 => result.push('/'),
            _ => result += &shown(Path::new(&path[..length])),
        }
        rest = &path[length..];
    }
    result + rest
}

/// Text in TOML in which the absolute paths are replaced by their last `parts` parts.
pub(crate) fn short_in_toml(toml: &str, parts: usize) -> String {
    with_paths(toml, |path| short(path, parts))
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

/// Text of a message in which each absolute path is shortened to its last part.
pub(crate) fn short_in_words(text: &str) -> String {
    with_paths(text, |path| short(path, 1))
}

/// Argument of a command that was started in `folder`. A path in this folder is shown relative to
/// it, and other absolute paths are shortened.
pub(crate) fn short_argument(argument: &str, folder: &Path) -> String {
    let shown = |path: &Path| match path.strip_prefix(folder) {
        Ok(inside) if !inside.as_os_str().is_empty() => inside.display().to_string(),
        _ => short(path, 1),
    };
    // A path that is the whole argument, or the whole value of a key, can contain any characters.
    let is_name = |text: &str| !text.contains(['/', '"', '\'', '[', '{']);
    let whole = match argument.split_once("=/") {
        _ if argument.starts_with('/') => Some(0),
        Some((name, _)) if is_name(name) => Some(name.len() + 1),
        _ => None,
    };
    match whole {
        Some(at) => format!("{}{}", &argument[..at], shown(Path::new(&argument[at..]))),
        None => with_paths(argument, shown),
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
        let odd = "a = '/home/me/a \"b\"'\nb = \"3\\\" and\"\nc = '/home/me/c'\nd = \"</s>\"\n";
        assert_eq!(
            short_in_toml(odd, 1),
            "a = '…/a \"b\"'\nb = \"3\\\" and\"\nc = '…/c'\nd = \"</s>\"\n"
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
        assert_eq!(
            short_in_words(
                "(/home/me/a b.txt), `/home/me/c d`; and/or http://host/x, file:///home/e"
            ),
            "(…/a b.txt), `…/c d`; and/or http://host/x, file://…/e"
        );
        let argument = |text: &str| short_argument(text, Path::new("/home/me/work"));
        assert_eq!(argument("/home/me/work/runs/a"), "runs/a");
        assert_eq!(argument("--from=/home/me/old"), "--from=…/old");
        assert_eq!(argument("data.dir=/home/me/text"), "data.dir=…/text");
        assert_eq!(argument("/usr/bin/taper"), "…/taper");
        assert_eq!(argument("--json"), "--json");
        assert_eq!(argument("--set=data.dir=/home/me/my = text"), "--set=data.dir=…/my = text");
        assert_eq!(argument("--set=data.dir=/home/me/work/a"), "--set=data.dir=a");
        assert_eq!(
            argument("data.train=[\"/home/me/work/a\", '/home/me/b, c']"),
            "data.train=[\"a\", '…/b, c']"
        );
        assert_eq!(argument("data.dir=\"/home/me/text\""), "data.dir=\"…/text\"");
        assert_eq!(argument("--files=a,/home/me/b,/home/me/c"), "--files=a,…/b,…/c");
    }
}
