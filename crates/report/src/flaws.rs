//! Flaws of a translation that a program can find without a human reader: it is empty, repeats
//! words, copies the source, or is too short or too long.

use serde::Serialize;

use crate::words::words;

/// A kind of flaw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
    /// The translation is empty but the reference has words.
    Empty,
    /// One to four words occur more than twice in succession, and more often than in the reference.
    Repeated,
    /// More than half of the words are in the source, and not in the reference.
    Copied,
    /// The translation has fewer than half the words of the reference, which has at least four
    /// words.
    TooShort,
    /// The translation has more than twice as many words as the reference, and at least four words
    /// more.
    TooLong,
}

impl Flaw {
    /// All flaws, in the order in which they are tested.
    pub const ALL: [Self; 5] =
        [Self::Empty, Self::Repeated, Self::Copied, Self::TooShort, Self::TooLong];

    /// Returns the first flaw of a translation; `None` if it has no flaw.
    #[must_use]
    pub fn first(source: &str, reference: &str, translation: &str) -> Option<Self> {
        let [source, reference, translation] = [source, reference, translation].map(words);
        if translation.is_empty() {
            return (!reference.is_empty()).then_some(Self::Empty);
        }
        if repeats(&translation) > repeats(&reference).max(2) {
            return Some(Self::Repeated);
        }
        let copied = translation
            .iter()
            .filter(|word| source.contains(word) && !reference.contains(word))
            .count();
        if 2 * copied > translation.len() {
            return Some(Self::Copied);
        }
        let (length, expected) = (translation.len(), reference.len());
        if expected >= 4 && 2 * length < expected {
            return Some(Self::TooShort);
        }
        (length > 2 * expected && length >= expected + 4).then_some(Self::TooLong)
    }

    /// Name in English and in Chinese.
    #[must_use]
    pub const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Empty => ("empty", "空"),
            Self::Repeated => ("repeated", "重复"),
            Self::Copied => ("copied", "照抄原文"),
            Self::TooShort => ("too short", "过短"),
            Self::TooLong => ("too long", "过长"),
        }
    }
}

/// Returns how many times, at most, the same one to four words occur in succession.
fn repeats(words: &[String]) -> usize {
    let mut most = 1;
    for length in 1..=4 {
        let mut run = length;
        for at in length..words.len() {
            run = if words[at] == words[at - length] { run + 1 } else { length };
            most = most.max(run / length);
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flaw_is_found_and_a_good_translation_has_none() {
        let source = "Das ist ein kleines Haus am See.";
        let reference = "This is a small house by the lake.";
        for (translation, flaw) in [
            ("This is a little house at the lake.", None),
            (" ", Some(Flaw::Empty)),
            ("This is is is a house by the lake", Some(Flaw::Repeated)),
            ("a house by the a house by the a house by the lake", Some(Flaw::Repeated)),
            ("Das ist ein kleines house.", Some(Flaw::Copied)),
            ("A house.", Some(Flaw::TooShort)),
            (
                "This is a small house by the lake which is a very old one with many trees around",
                Some(Flaw::TooLong),
            ),
        ] {
            assert_eq!(Flaw::first(source, reference, translation), flaw, "{translation}");
        }
        assert_eq!(Flaw::first("Nein, nein, nein!", "No, no, no!", "No, no, no!"), None);
        assert_eq!(Flaw::first("Berlin", "Berlin", "Berlin"), None, "names stay");
    }
}
