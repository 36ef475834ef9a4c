//! The `[data.cleaning]` table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rules by which pairs are dropped. A pair is always dropped with both sides, so that they stay
/// aligned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CleaningConfig {
    /// A side with fewer tokens drops its pair.
    #[schemars(extend("x-names" = "min_len min_seq_len min_length"))]
    pub min_tokens: usize,
    /// A side with more tokens drops its pair.
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
    /// A side with more characters drops its pair before it is tokenised.
    pub max_characters: usize,
    /// Whether to drop a training pair that equals an earlier one, letter for letter.
    pub drop_duplicates: bool,
}

impl Default for CleaningConfig {
    fn default() -> Self {
        Self {
            min_tokens: 1,
            max_tokens: 250,
            max_ratio: 9.0,
            max_characters: 10_000,
            drop_duplicates: false,
        }
    }
}
