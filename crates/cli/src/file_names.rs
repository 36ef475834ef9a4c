//! Names of files that a command derives from other names.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};

/// Returns the names in their order, with a number at the end of each name that an earlier item
/// has: `x`, `x-2`, `x-3`. So files with these names do not overwrite each other. Some file systems
/// ignore case, so names that differ only in case count as equal.
pub(crate) fn distinct<N: Into<OsString>>(names: impl IntoIterator<Item = N>) -> Vec<OsString> {
    let key = |name: &OsStr| name.to_string_lossy().to_lowercase();
    let names: Vec<OsString> = names.into_iter().map(Into::into).collect();
    // A numbered name must not be the plain name of another item either.
    let mut taken: HashSet<String> = names.iter().map(|name| key(name)).collect();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut name_of = |name: OsString| {
        let number = numbers.entry(key(&name)).or_default();
        *number += 1;
        if *number == 1 {
            return name;
        }
        loop {
            let mut numbered = name.clone();
            numbered.push(format!("-{number}"));
            if taken.insert(key(&numbered)) {
                return numbered;
            }
            *number += 1;
        }
    };
    names.into_iter().map(&mut name_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_occur_again_are_numbered() {
        for (names, expected) in [
            (vec!["a", "b"], vec!["a", "b"]),
            (vec!["x", "x", "y", "X"], vec!["x", "x-2", "y", "X-3"]),
            (vec!["x", "x", "x-2", "x-2"], vec!["x", "x-3", "x-2", "x-2-2"]),
            (vec!["photo.v1", "photo.v2"], vec!["photo.v1", "photo.v2"]),
        ] {
            assert_eq!(distinct(names), expected);
        }
    }
}
