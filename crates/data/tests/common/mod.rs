//! Functions that the tests share: they make corpora and settings, and check error messages.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fmt::Display;
use std::path::Path;

use taper_data::DataConfig;

/// Asserts that a text, or the message of an error, contains all of `fragments`.
pub(crate) fn mentions(text: impl Display, fragments: &[&str]) {
    let text = text.to_string();
    for fragment in fragments {
        assert!(text.contains(fragment), "`{fragment}` is not in: {text}");
    }
}

/// Makes `count` pairs of English and German sentences of various lengths, by a small grammar.
pub(crate) fn sentences(count: usize) -> Vec<(String, String)> {
    let subjects =
        [("the dog", "der Hund"), ("a woman", "eine Frau"), ("my friend", "mein Freund")];
    let verbs = [("sees", "sieht"), ("likes", "mag"), ("finds", "findet"), ("paints", "malt")];
    let objects = [("a house", "ein Haus"), ("the sea", "das Meer"), ("two birds", "zwei Vögel")];
    (0..count)
        .map(|index| {
            let (subject, verb) = (subjects[index % 3], verbs[index / 3 % 4]);
            let mut pair =
                (format!("{} {}", subject.0, verb.0), format!("{} {}", subject.1, verb.1));
            for part in 0..=(index * index) % 9 {
                let object = objects[(index / 12 + part) % 3];
                let joint = if part == 0 { ("", "") } else { (" and", " und") };
                pair.0 += &format!("{} {}", joint.0, object.0);
                pair.1 += &format!("{} {}", joint.1, object.1);
            }
            (pair.0 + ".", pair.1 + ".")
        })
        .collect()
}

/// Writes a split as two text files, in English and German.
pub(crate) fn write_split(directory: &Path, split: &str, pairs: &[(String, String)]) {
    let side = |pick: fn(&(String, String)) -> &String| {
        pairs.iter().map(|pair| format!("{}\n", pick(pair))).collect::<String>()
    };
    std::fs::write(directory.join(format!("{split}.en")), side(|pair| &pair.0)).unwrap();
    std::fs::write(directory.join(format!("{split}.de")), side(|pair| &pair.1)).unwrap();
}

/// Writes a corpus of 600 training and 40 validation pairs to `directory`. Returns its
/// configuration.
pub(crate) fn corpus(directory: &Path) -> DataConfig {
    let pairs = sentences(640);
    write_split(directory, "train", &pairs[..600]);
    write_split(directory, "val", &pairs[600..]);
    let mut config = DataConfig { dir: directory.to_owned(), ..DataConfig::default() };
    config.tokenizer.vocabulary_size = 400;
    config.batching.max_tokens = 120;
    config
}
