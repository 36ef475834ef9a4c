//! Makes difficult ("hostile") variants of a test set, such as texts in capitals or with typing
//! errors. People type such texts, but they are rare in corpora.

use super::modifiers::letters::{
    is_ideographic, joined, with_doubled_word, without_end_punctuation,
};
use super::modifiers::typos::with_typos;
use crate::Draws;

/// Purpose number of the random draws that choose places in texts and typing errors (see
/// [`Draws::new`]).
const PURPOSE: u64 = 12;

/// Smallest number of letters of a word that is translated alone.
const LETTERS: usize = 4;

/// A change that makes a source hostile, which means difficult to translate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hostility {
    /// The whole source is in capitals. Case is ignored when translations are compared.
    Capitals,
    /// Source and reference have no punctuation at their ends.
    NoFullStop,
    /// Two successive sources are joined, and so are their references.
    TwoSentences,
    /// One word of each source is repeated. In a text without spaces, one character is repeated.
    DoubledWord,
    /// Only the longest word of each source is translated.
    OneWord,
    /// Sources have typing errors: about one in 25 letters, and at least one.
    Typos,
}

/// A line of a hostile test set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostileLine {
    /// The text to translate.
    pub source: String,
    /// Indices of the original lines from which the source was made.
    pub lines: Vec<usize>,
}

impl Hostility {
    /// All kinds of changes, in the order in which reports list them.
    pub const ALL: [Self; 6] = [
        Self::Capitals,
        Self::NoFullStop,
        Self::TwoSentences,
        Self::DoubledWord,
        Self::OneWord,
        Self::Typos,
    ];

    /// The name of this kind in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capitals => "all capitals",
            Self::NoFullStop => "no full stop",
            Self::TwoSentences => "two sentences",
            Self::DoubledWord => "a doubled word",
            Self::OneWord => "one word",
            Self::Typos => "typing errors",
        }
    }

    /// Makes hostile lines from `sources`. Lines that would not change are left out.
    #[must_use]
    pub fn lines(self, sources: &[String]) -> Vec<HostileLine> {
        let one = |(line, source): (usize, &String)| {
            let changed = self.changed(source, line)?;
            (changed != *source).then(|| HostileLine { source: changed, lines: vec![line] })
        };
        match self {
            Self::TwoSentences => {
                let pairs = sources.chunks_exact(2).zip((0..).step_by(2));
                let both = |(two, line): (&[String], usize)| HostileLine {
                    source: joined(&two[0], &two[1]),
                    lines: vec![line, line + 1],
                };
                pairs.map(both).collect()
            }
            _ => sources.iter().enumerate().filter_map(one).collect(),
        }
    }

    fn changed(self, source: &str, line: usize) -> Option<String> {
        let draws = Draws::new(0, 0, PURPOSE).within(line as u64, 0);
        match self {
            Self::Capitals => Some(source.to_uppercase()),
            Self::NoFullStop => without_end_punctuation(source).map(str::to_owned),
            Self::TwoSentences => None,
            Self::DoubledWord => with_doubled_word(source, draws.unit(0)),
            Self::OneWord => longest_word(source),
            Self::Typos => with_typos(source, draws),
        }
    }

    /// Normalises a text before a translation and its reference are compared.
    #[must_use]
    pub fn compared(self, text: &str) -> String {
        match self {
            Self::Capitals => text.to_lowercase(),
            Self::NoFullStop => without_end_punctuation(text).unwrap_or(text).to_owned(),
            _ => text.to_owned(),
        }
    }

    /// Joins the texts of the lines from which a hostile line was made, and normalises the result
    /// for comparison.
    ///
    /// # Panics
    ///
    /// If `texts` lacks one of these lines.
    #[must_use]
    pub fn whole(self, line: &HostileLine, texts: &[String]) -> String {
        let whole =
            line.lines.iter().fold(String::new(), |whole, &one| joined(&whole, &texts[one]));
        self.compared(&whole)
    }
}

/// The longest word of a text in a script with spaces, without the punctuation around it. If
/// several words are equally long, the first of them. `None` if the word has fewer than [`LETTERS`]
/// letters.
fn longest_word(source: &str) -> Option<String> {
    let is_letter = |one: char| one.is_alphabetic() && !is_ideographic(one);
    let bare = |word| str::trim_matches(word, |one: char| !one.is_alphanumeric());
    let words = source.split_whitespace().map(bare).filter(|word| word.chars().all(is_letter));
    let longest = words.rev().max_by_key(|word| word.chars().count())?;
    (longest.chars().count() >= LETTERS).then(|| longest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(kind: Hostility, texts: &[&str]) -> Vec<String> {
        let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
        kind.lines(&texts).into_iter().map(|line| line.source).collect()
    }

    #[test]
    fn each_kind_is_made_of_what_it_can_change() {
        let texts = ["The cat sleeps.", "我喜欢猫。", "No end"];
        assert_eq!(sources(Hostility::Capitals, &texts), ["THE CAT SLEEPS.", "NO END"]);
        assert_eq!(sources(Hostility::NoFullStop, &texts), ["The cat sleeps", "我喜欢猫"]);
        assert_eq!(sources(Hostility::TwoSentences, &texts), ["The cat sleeps. 我喜欢猫。"]);
        let doubled = sources(Hostility::DoubledWord, &texts);
        assert!(doubled.iter().zip(texts).all(|(one, text)| one.len() > text.len()), "{doubled:?}");
        assert_eq!(doubled.len(), 3);
        assert_eq!(sources(Hostility::OneWord, &texts), ["sleeps"]);
        let typed = sources(Hostility::Typos, &texts);
        assert_eq!(typed, sources(Hostility::Typos, &texts));
        assert_eq!(typed.len(), 2, "Chinese characters have no keys beside them: {typed:?}");
    }

    #[test]
    fn references_are_those_of_the_lines() {
        let texts = ["One. ", "Two!", "Three"].map(str::to_owned);
        let two = &Hostility::TwoSentences.lines(&texts)[0];
        assert_eq!(Hostility::TwoSentences.whole(two, &texts), "One. Two!");
        let open = &Hostility::NoFullStop.lines(&texts)[1];
        assert_eq!(Hostility::NoFullStop.whole(open, &texts), "Two");
    }
}
