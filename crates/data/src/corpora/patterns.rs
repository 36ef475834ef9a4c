//! Patterns of file names, as in shells: `*` stands for any characters, `?` for one character,
//! `[a-c]` for a character of a range, and `[!a-c]` for a character outside a range. No wildcard
//! stands for a `/`.
//!
//! For each file, the text that the wildcards match is recorded, because it identifies the
//! corresponding file of the other side of a corpus. Existing libraries for patterns are not used,
//! because none of them reports this text.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::file_names::{names_of, uncompressed};
use crate::files::not_a_file;
use crate::{Error, Result};

/// Advice in the error for a pattern that matches nothing.
pub(crate) const NO_MATCH: &str = "no file matches this pattern; * stands for any characters of one name, ? for one, [a-c] for \
     one of a range, and one in a recipe is relative to the recipe";

/// File that a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) path: PathBuf,
    /// Texts that the wildcards match, in the order of the wildcards, each followed by a `/`.
    pub(super) stands_for: String,
}

/// True if a path is a pattern, and not the path of an existing file.
pub(crate) fn is_pattern(path: &Path) -> bool {
    let has_wildcards = |part: Component<'_>| matches!(part, Component::Normal(name) if wildcards(&name.to_string_lossy()) > 0);
    path.components().any(has_wildcards) && !path.exists()
}

/// The number of wildcards of a path.
pub(super) fn wildcards_of(path: &Path) -> usize {
    path.components().map(|part| wildcards(&part.as_os_str().to_string_lossy())).sum()
}

fn wildcards(name: &str) -> usize {
    parts(name).iter().filter(|part| !matches!(part, Part::Character(_))).count()
}

/// Files that match `pattern` followed by one of `endings`, plain or compressed. They are sorted by
/// path, and the ending of a compressed file does not count. If a file exists both plain and
/// compressed, only the plain file is listed. Names that begin with a dot are matched only by
/// patterns that begin with a dot.
///
/// # Errors
///
/// If the pattern matches a folder or anything else that is not a regular file, or if a folder
/// cannot be read.
pub(super) fn matches(pattern: &Path, endings: &[&str]) -> Result<Vec<Match>> {
    if pattern.components().any(|part| part.as_os_str().to_string_lossy().contains("**")) {
        let message =
            "** is not understood: a * stands for characters of one name; write a * for each \
             folder on the way"
                .to_owned();
        return Err(Error::Malformed { path: pattern.to_owned(), message });
    }
    let mut by_path: BTreeMap<PathBuf, Match> = BTreeMap::new();
    for name in names_of(pattern, endings) {
        for one in walk(&name)? {
            if let Some(kind) = not_a_file(&one.path) {
                let message = format!(
                    "matches {}, which is {kind}, not a file: move it away, or write a pattern \
                     that it does not match",
                    one.path.display()
                );
                return Err(Error::Malformed { path: pattern.to_owned(), message });
            }
            let plain = uncompressed(&one.path);
            // A wildcard at the end of the pattern also matches the ending of a compressed file.
            // Of two matches of a file, the shorter text is the one without the ending.
            let rank = |one: &Match| (one.path.clone(), one.stands_for.len());
            match by_path.get(&plain) {
                Some(other) if rank(other) <= rank(&one) => {}
                _ => drop(by_path.insert(plain, one)),
            }
        }
    }
    Ok(by_path.into_values().collect())
}

/// Every path that `pattern` matches.
fn walk(pattern: &Path) -> Result<Vec<Match>> {
    let mut reached = vec![Match { path: PathBuf::new(), stands_for: String::new() }];
    for component in pattern.components() {
        let Component::Normal(name) = component else {
            reached.iter_mut().for_each(|one| one.path.push(component));
            continue;
        };
        let text = name.to_string_lossy();
        let parts = parts(&text);
        if wildcards(&text) == 0 {
            reached.iter_mut().for_each(|one| one.path.push(name));
            reached.retain(|one| one.path.exists());
            continue;
        }
        let mut next = Vec::new();
        for one in
            reached.into_iter().filter(|one| one.path.as_os_str().is_empty() || one.path.is_dir())
        {
            let working_folder = Path::new(".");
            let folder = if one.path.as_os_str().is_empty() { working_folder } else { &one.path };
            let failed = |error| Error::io(folder, error);
            for entry in std::fs::read_dir(folder).map_err(failed)? {
                let name = entry.map_err(failed)?.file_name();
                let Some(name) = name.to_str() else { continue };
                if name.starts_with('.') && !text.starts_with('.') {
                    continue;
                }
                if let Some(stands_for) = matched(&parts, name) {
                    let stands_for = format!("{}{stands_for}", one.stands_for);
                    next.push(Match { path: one.path.join(name), stands_for });
                }
            }
        }
        reached = next;
    }
    Ok(reached)
}

/// Part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Character(char),
    /// One character: `?`.
    One,
    /// Any characters: `*`.
    Any,
    /// A character in one of the ranges if the flag is true, or outside all ranges if it is false:
    /// `[…]`.
    Of(Vec<(char, char)>, bool),
}

impl Part {
    fn is(&self, character: char) -> bool {
        match self {
            Self::Character(own) => *own == character,
            Self::One | Self::Any => true,
            Self::Of(ranges, within) => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&character)) == *within
            }
        }
    }
}

/// Parts of a pattern for one file or folder name. A `[` without a `]` stands for itself.
fn parts(pattern: &str) -> Vec<Part> {
    let characters: Vec<char> = pattern.chars().collect();
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < characters.len() {
        at += 1;
        parts.push(match characters[at - 1] {
            '*' => Part::Any,
            '?' => Part::One,
            '[' => {
                let within = !matches!(characters.get(at), Some('!' | '^'));
                let first = at + usize::from(!within);
                // A `]` at the beginning of the ranges stands for itself.
                let end = (first + 1..characters.len()).find(|&end| characters[end] == ']');
                match end {
                    Some(end) => {
                        at = end + 1;
                        Part::Of(ranges(&characters[first..end]), within)
                    }
                    None => Part::Character('['),
                }
            }
            character => Part::Character(character),
        });
    }
    parts
}

fn ranges(characters: &[char]) -> Vec<(char, char)> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < characters.len() {
        match characters[at..] {
            [from, '-', to, ..] => {
                ranges.push((from, to));
                at += 3;
            }
            _ => {
                ranges.push((characters[at], characters[at]));
                at += 1;
            }
        }
    }
    ranges
}

/// Text that the wildcards of a pattern match in `name`, as short as possible, with a `/` after
/// each wildcard. `None` if the pattern does not match. The running time is at most proportional to
/// the length of the pattern times the length of the name.
fn matched(parts: &[Part], name: &str) -> Option<String> {
    let name: Vec<char> = name.chars().collect();
    // For each wildcard so far, the text that it matches: the indices in `name` of its first
    // character and after its last character.
    let mut spans: Vec<(usize, usize)> = Vec::new();
    let (mut part, mut at) = (0, 0);
    // The last `*`: its place in the pattern, and its index among the wildcards.
    let mut last: Option<(usize, usize)> = None;
    while part < parts.len() || at < name.len() {
        match parts.get(part) {
            Some(Part::Any) => {
                last = Some((part, spans.len()));
                spans.push((at, at));
                part += 1;
            }
            Some(own) if at < name.len() && own.is(name[at]) => {
                if !matches!(own, Part::Character(_)) {
                    spans.push((at, at + 1));
                }
                (part, at) = (part + 1, at + 1);
            }
            // The last `*` takes one more character.
            _ => {
                let (star, wildcard) = last?;
                spans.truncate(wildcard + 1);
                spans[wildcard].1 += 1;
                at = spans[wildcard].1;
                part = star + 1;
                if at > name.len() {
                    return None;
                }
            }
        }
    }
    let text =
        |&(from, to): &(usize, usize)| name[from..to].iter().chain(&['/']).collect::<String>();
    Some(spans.iter().map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stands_for(pattern: &str, name: &str) -> Option<String> {
        matched(&parts(pattern), name)
    }

    #[test]
    fn wildcards_stand_for_what_is_between() {
        let is = |pattern, name, expected: Option<&str>| {
            assert_eq!(stands_for(pattern, name).as_deref(), expected, "{pattern} {name}");
        };
        is("train.*.gz", "train.007.gz", Some("007/"));
        is("train.*.gz", "train..gz", Some("/"));
        is("train.*.gz", "train.gz", None);
        is("*.*", "a.b.c", Some("a/b.c/"));
        is("*a*b", "xaayab", Some("x/aya/"));
        is("p?rt-[0-9][!a]", "part-1b", Some("a/1/b/"));
        is("p?rt-[0-9][!a]", "part-1a", None);
        is("[]]x[", "]x[", Some("]/"));
        is("größe?", "größe€", Some("€/"));
        is("", "", Some(""));
        // Backtracking over every `*` would take exponential time here.
        is(&"*a".repeat(30), &"a".repeat(29), None);
        assert_eq!((wildcards("a[b"), wildcards("a[b]*?")), (0, 3));
    }

    #[test]
    fn files_come_by_name_and_plain_before_compressed() {
        let folder = tempfile::tempdir().expect("folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["p.10.en", "p.2.en", "p.2.en.gz", "p.3.en.zst", ".p.4.en", "p.5.de"] {
            std::fs::write(path(name), "").expect("write");
        }
        let names = |pattern: &str| -> Vec<String> {
            let matched = matches(&path(pattern), &[""]).expect("readable");
            let name = |one: &Match| one.path.file_name().map(|name| name.to_string_lossy().into());
            matched.iter().filter_map(name).collect()
        };
        assert_eq!(names("p.*.en"), ["p.10.en", "p.2.en", "p.3.en.zst"]);
        assert_eq!(names("p.*.fr"), [""; 0]);
        assert!(is_pattern(&path("p.*.en")) && !is_pattern(&path("p.2.en")));
        std::fs::write(path("q[1].en"), "").expect("write");
        assert!(!is_pattern(&path("q[1].en")), "a file that is there is itself");
        std::fs::create_dir(path("p.6.en")).expect("folder");
        let error = matches(&path("p.*.en"), &[""]).expect_err("a folder").to_string();
        assert!(error.contains("p.*.en: matches") && error.contains("p.6.en"), "{error}");
        let error = matches(&path("**/p"), &[""]).expect_err("two stars").to_string();
        assert!(error.contains("** is not understood"), "{error}");
        // Subfolders.
        for shard in ["s1", "s2"] {
            std::fs::create_dir(path(shard)).expect("folder");
            std::fs::write(path(shard).join("t.en"), "").expect("write");
        }
        let matched = matches(&path("s?/t.*"), &[""]).expect("readable");
        let stands_for: Vec<&str> = matched.iter().map(|one| one.stands_for.as_str()).collect();
        assert_eq!(stands_for, ["1/en/", "2/en/"]);
        // A wildcard at the end does not stand for the ending of a compressed file.
        for name in ["c.1.gz", "c.2", "c.3", "c.3.zst", "c.4.5.xz"] {
            std::fs::write(path(name), "").expect("write");
        }
        for (pattern, expected) in [("c.*", "1/ 2/ 3/ 4.5/"), ("c.?.*", "1/gz/ 3/zst/ 4/5/")] {
            let matched = matches(&path(pattern), &[""]).expect("readable");
            let stands_for: Vec<&str> = matched.iter().map(|one| one.stands_for.as_str()).collect();
            assert_eq!(stands_for.join(" "), expected, "{pattern}");
        }
        // `-` comes before `/`, and `.` before `z`, but folders come first, and endings of
        // compressed files do not count.
        for name in ["r/t.gz", "r/t-1", "r-1/t"] {
            std::fs::create_dir_all(path(name).parent().expect("a folder")).expect("folder");
            std::fs::write(path(name), "").expect("write");
        }
        let matched = matches(&path("r*/t*"), &[""]).expect("readable");
        let matched: Vec<PathBuf> = matched.into_iter().map(|one| one.path).collect();
        assert_eq!(matched, ["r/t.gz", "r/t-1", "r-1/t"].map(path));
    }
}
