//! Settings that decide which sentence pairs are dropped: the `[data.cleaning]` table of a recipe
//! (the TOML file with all settings of a training).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Rules by which pairs are dropped. A pair is always dropped with both sides, so that they stay
/// aligned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CleaningConfig {
    /// A pair is dropped if a side has fewer tokens than this.
    #[schemars(extend("x-names" = "min_len min_seq_len min_length"))]
    pub min_tokens: usize,
    /// A pair is dropped if a side has more tokens than this.
    #[schemars(range(min = 1))]
    #[schemars(
        extend("x-names" = "max_len max_seq_len max_seq_length max_sequence_length \
            max_sent_length max_source_length max_target_length src_seq_length max_length")
    )]
    pub max_tokens: usize,
    /// A pair is dropped if its longer side has more than this many times the tokens of its shorter
    /// one; 0 for no such limit.
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-names" = "length_ratio ratio"))]
    pub max_ratio: f64,
    /// A pair is dropped, before it is tokenised, if a side has more characters than this.
    pub max_characters: usize,
    /// Whether to drop a training pair that equals an earlier one, letter for letter.
    pub drop_duplicates: bool,
    /// A pair is dropped if a side is in another language with at least this probability, by the
    /// bundled model of 74 languages; 0: languages are not identified.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-names" = "language_id langid lid"))]
    pub other_language: f64,
    /// A pair is dropped if less than this share of the letters of a side belongs to the script of
    /// its language; 0: scripts are not checked.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-names" = "script_ratio"))]
    pub min_own_script: f64,
    /// Whether to drop a pair whose target has the same letters and digits as its source.
    #[schemars(extend("x-names" = "copy copies"))]
    pub drop_copies: bool,
    /// Whether to drop a pair whose sides have different digits; order and script do not matter.
    /// Missing digits are ignored if a side has Chinese numerals.
    #[schemars(extend("x-names" = "digits numbers"))]
    pub same_digits: bool,
    /// Whether to drop a pair if one side is in capitals throughout and the other is not.
    pub same_case: bool,
    /// A training pair is dropped if the ratio of its lengths in characters differs from the usual
    /// ratio by more than this many standard deviations. Usual ratio and deviation are learned from
    /// other pairs of the same languages and of about the same length; 0: they are not learned.
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-names" = "length_zscore gale_church"))]
    pub length_deviations: f64,
    /// A training pair is dropped if its text and the text of an earlier one have at least this
    /// Jaccard index: the number of pieces of five letters, or of two Chinese characters, that are
    /// in both texts, divided by the number of pieces that are in at least one of them. Values are
    /// from 0.5 to 1, and 0.8 is usual; 0: texts are not compared.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-names" = "minhash near_dedup fuzzy_dedup"))]
    pub near_duplicates: f64,
}

impl CleaningConfig {
    /// True if there are rules that drop pairs because of the content of their text.
    pub(crate) fn has_text_rules(&self) -> bool {
        let Self { drop_copies, same_digits, same_case, .. } = *self;
        self.other_language > 0.0
            || self.min_own_script > 0.0
            || drop_copies
            || same_digits
            || same_case
    }

    /// Checks that each limit is in its allowed range.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], with the key of the first limit that is outside its range.
    pub(crate) fn validate(&self) -> Result<()> {
        let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
        if self.max_tokens == 0 || self.max_tokens < self.min_tokens {
            return wrong(
                "data.cleaning.max_tokens",
                "must be at least 1 and at least data.cleaning.min_tokens",
            );
        }
        if !(self.max_ratio == 0.0 || (1.0..=f64::MAX).contains(&self.max_ratio)) {
            return wrong("data.cleaning.max_ratio", "must be 0 (no limit) or at least 1");
        }
        for (key, share) in [
            ("data.cleaning.other_language", self.other_language),
            ("data.cleaning.min_own_script", self.min_own_script),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return wrong(key, "must lie between 0 (off) and 1");
            }
        }
        let deviations = self.length_deviations;
        if !(deviations == 0.0 || (1.0..=f64::MAX).contains(&deviations)) {
            return wrong("data.cleaning.length_deviations", "must be 0 (off) or at least 1");
        }
        if !(self.near_duplicates == 0.0 || (0.5..=1.0).contains(&self.near_duplicates)) {
            return wrong(
                "data.cleaning.near_duplicates",
                "must be 0 (off) or lie between 0.5 and 1",
            );
        }
        Ok(())
    }
}

impl Default for CleaningConfig {
    fn default() -> Self {
        Self {
            min_tokens: 1,
            max_tokens: 250,
            max_ratio: 9.0,
            max_characters: 10_000,
            drop_duplicates: false,
            other_language: 0.0,
            min_own_script: 0.0,
            drop_copies: false,
            same_digits: false,
            same_case: false,
            length_deviations: 0.0,
            near_duplicates: 0.0,
        }
    }
}
