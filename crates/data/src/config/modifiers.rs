//! Settings that change training pairs at random: the `[data.modifiers]` table of a recipe (the
//! TOML file with all settings of a training).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Changes to training pairs that make a model robust.
/// Each key is the probability that a pair gets this change, redrawn in each epoch. Batches are
/// planned by the tokens of unchanged text, validation and test sets are not changed, and a pair
/// that would exceed `data.cleaning.max_tokens` is not changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModifiersConfig {
    /// Capital letters throughout, on both sides, if the source has letters with a case.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-names" = "uppercase upper"), extend("x-change" = "accepted"))]
    pub upper_case: f64,
    /// A capital at the beginning of each word, on both sides, if the source has letters with a
    /// case.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-names" = "titlecase title"), extend("x-change" = "accepted"))]
    pub title_case: f64,
    /// Typing errors in the source, about one in 25 letters and at least one: a letter is replaced
    /// by that of a neighbouring key or by a similar letter of another script, exchanged with the
    /// next letter, omitted or doubled.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-names" = "typo noise"), extend("x-change" = "accepted"))]
    pub typos: f64,
    /// No punctuation at the end of either side, if both have some.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-names" = "remove_end_punct"), extend("x-change" = "accepted"))]
    pub no_end_punctuation: f64,
    /// A second sentence after the first, on both sides: the next pair of the corpus.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-names" = "merge concatenated"), extend("x-change" = "accepted"))]
    pub merged_sentences: f64,
    /// Only one word of the source, with its translation in the target. Only words with a clear
    /// translation in the first 50,000 pairs of the training text are used; in free translations,
    /// most words have no clear translation.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-names" = "one_word word_pairs"), extend("x-change" = "accepted"))]
    pub single_words: f64,
    /// One word of the source twice; in a text without spaces, one character twice.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-names" = "repeated_words"), extend("x-change" = "accepted"))]
    pub doubled_words: f64,
    /// The same one to three emoji, on both sides, at the beginning or the end.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-change" = "accepted"))]
    pub emoji: f64,
    /// The same unknown text, on both sides, at the beginning or the end: codes, numbers, addresses
    /// and words of random letters, which the model should copy.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-names" = "inline_noise copied_spans"), extend("x-change" = "accepted"))]
    pub unknown_spans: f64,
    /// Other spaces between Chinese characters and Japanese letters of the source: existing spaces
    /// are removed, or some are added if there are none.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-change" = "accepted"))]
    pub spaces: f64,
}

impl ModifiersConfig {
    /// Full key of each field, such as `data.modifiers.typos`, with the field's probability.
    fn probabilities(&self) -> [(&'static str, f64); 10] {
        [
            ("data.modifiers.upper_case", self.upper_case),
            ("data.modifiers.title_case", self.title_case),
            ("data.modifiers.typos", self.typos),
            ("data.modifiers.no_end_punctuation", self.no_end_punctuation),
            ("data.modifiers.merged_sentences", self.merged_sentences),
            ("data.modifiers.single_words", self.single_words),
            ("data.modifiers.doubled_words", self.doubled_words),
            ("data.modifiers.emoji", self.emoji),
            ("data.modifiers.unknown_spans", self.unknown_spans),
            ("data.modifiers.spaces", self.spaces),
        ]
    }

    /// True if any change has a probability above 0.
    pub fn is_active(&self) -> bool {
        self.probabilities().iter().any(|(_, probability)| *probability > 0.0)
    }

    /// Refuses numbers that are not probabilities, and combinations that are impossible.
    /// `is_lowercased` is true if the recipe lowercases text, and `has_links` if its corpora have
    /// word links (which word of a source belongs to which word of its target).
    pub(super) fn validate(&self, is_lowercased: bool, has_links: bool) -> Result<()> {
        let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
        for (key, probability) in self.probabilities() {
            if !(0.0..=1.0).contains(&probability) {
                return wrong(key, "is a probability: it must lie between 0 and 1");
            }
        }
        if self.upper_case + self.title_case > 1.0 {
            return wrong(
                "data.modifiers.title_case",
                "and data.modifiers.upper_case exclude each other: together they must be at most 1",
            );
        }
        if is_lowercased && self.upper_case + self.title_case > 0.0 {
            return wrong(
                "data.modifiers.upper_case",
                "and data.modifiers.title_case are lost in text that data.lowercase lowercases: \
                 set them to 0",
            );
        }
        if has_links && self.is_active() {
            return wrong(
                "data.modifiers",
                "changes words, to which the word links of data.train would no longer belong: \
                 leave out the links, or the modifiers",
            );
        }
        Ok(())
    }
}
