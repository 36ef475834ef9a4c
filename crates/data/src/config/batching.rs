//! Settings by which pairs or blocks of text are put into batches: the `[data.batching]` table of a
//! recipe (the TOML file with all settings of a training).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Assembly of pairs into batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BatchingConfig {
    /// Largest number of tokens of a batch on either side, end marks included. Batches are packed,
    /// without padding. With `"auto"`, the program finds the number that fits into memory before
    /// training.
    #[serde(with = "tokens_or_auto")]
    #[schemars(schema_with = "tokens_or_auto::schema")]
    #[schemars(
        extend("x-names" = "batch_size bsz batch minibatch mini_batch train_batch_size \
            batch_tokens tokens_per_batch batch_size_tokens")
    )]
    pub max_tokens: usize,
    /// Largest number of sentence pairs of a batch; 0 for no such limit.
    #[schemars(
        extend("x-names" = "batch_size bsz batch minibatch mini_batch train_batch_size \
            batch_sentences per_device_train_batch_size max_batch_size")
    )]
    pub max_sentences: usize,
    /// Whether to draw a new order in each epoch; otherwise every epoch has the order of the
    /// corpus.
    #[schemars(extend("x-idle" = ["functions-drawn"]))]
    pub shuffle: bool,
    /// Whether to put pairs of similar length together.
    #[schemars(
        extend("x-names" = "bucketing bucket sort_by_length length_grouping"),
        extend("x-idle" = ["not-translation", "not-shuffled"])
    )]
    pub group_by_length: bool,
    /// Randomness of the grouping by length. Before pairs are ordered by their lengths, each length
    /// is multiplied by a random factor from 1 - `length_noise` / 2 to 1 + `length_noise` / 2.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-idle" = ["not-translation", "not-shuffled", "not-grouped"]))]
    pub length_noise: f64,
    /// Number of batches that are assembled ahead of the trainer.
    #[schemars(
        extend("x-names" = "queue_size prefetch_factor buffer_size"),
        extend("x-change" = "free")
    )]
    pub prefetch: usize,
}

impl Default for BatchingConfig {
    fn default() -> Self {
        Self {
            max_tokens: 4096,
            max_sentences: 0,
            shuffle: true,
            group_by_length: true,
            length_noise: 0.2,
            prefetch: 4,
        }
    }
}

/// Value of `max_tokens` that stands for `"auto"` in a recipe: the program itself finds the token
/// budget (the largest number of tokens of a batch).
pub const AUTO: usize = usize::MAX;

impl BatchingConfig {
    /// Token budget with which batches are planned: the configured budget, or the default if the
    /// program still has to find one.
    #[must_use]
    pub fn planned_tokens(&self) -> usize {
        match self.max_tokens {
            AUTO => Self::default().max_tokens,
            tokens => tokens,
        }
    }

    /// Largest number of rows (token sequences) of `length` tokens in a batch. It is at least 1,
    /// because a row that exceeds the token budget is a batch by itself.
    pub(crate) fn rows_of(&self, length: usize) -> usize {
        let limit = match self.max_sentences {
            0 => usize::MAX,
            limit => limit,
        };
        (self.planned_tokens() / length.max(1)).clamp(1, limit)
    }
}

/// Reads and writes a field that is a number of tokens or the word `"auto"`, which means [`AUTO`].
mod tokens_or_auto {
    use std::fmt;

    use schemars::{Schema, SchemaGenerator, json_schema};
    use serde::de::{Error, Unexpected, Visitor};
    use serde::{Deserializer, Serializer};

    pub(super) fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-values": "an integer from 1 or \"auto\"",
            "anyOf": [{ "type": "integer", "minimum": 1 }, { "const": "auto" }]
        })
    }

    pub(super) fn serialize<S: Serializer>(
        tokens: &usize,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        if *tokens == super::AUTO {
            serializer.serialize_str("auto")
        } else {
            serializer.serialize_u64(*tokens as u64)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<usize, D::Error> {
        struct Tokens;

        impl Visitor<'_> for Tokens {
            type Value = usize;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number of tokens from 1, or \"auto\"")
            }

            fn visit_i64<E: Error>(self, tokens: i64) -> Result<usize, E> {
                u64::try_from(tokens)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(tokens), &self))
                    .and_then(|tokens| self.visit_u64(tokens))
            }

            fn visit_u64<E: Error>(self, tokens: u64) -> Result<usize, E> {
                usize::try_from(tokens)
                    .map_err(|_| E::invalid_value(Unexpected::Unsigned(tokens), &self))
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<usize, E> {
                if word == "auto" {
                    Ok(super::AUTO)
                } else {
                    Err(E::invalid_value(Unexpected::Str(word), &self))
                }
            }
        }

        deserializer.deserialize_any(Tokens)
    }
}
