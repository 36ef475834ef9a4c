//! The `[data.text]` table of a recipe.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How running text becomes what a language model is trained and validated on.
///
/// A split named `train` is the file `{dir}/train.txt`, or every file of the folder `{dir}/train`
/// in the order of their names; each may end in `.gz` or `.zst`. Of files called `.jsonl`, `.csv`,
/// `.tsv` or `.parquet` the field that `data.fields.text` names is read, and each record is a document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunningTextConfig {
    /// Tokens of a block, which is as far back as a prediction looks.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["no-running-text"]))]
    pub block_length: usize,
    /// The share of the training text, its end, that is not trained but validated on where
    /// `data.validation` is empty; 0 for none.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(extend("x-idle" = ["no-running-text"]))]
    pub hold_out: f64,
    /// What a document is. `</s>` stands between two.
    #[schemars(extend("x-idle" = ["no-running-text"]))]
    pub documents: Documents,
    /// Whether no prediction looks back beyond the beginning of its document: a block in which
    /// others begin becomes a row for each, with positions of its own, which `</s>` begins.
    #[schemars(extend("x-idle" = ["not-language-model"]))]
    pub barrier: bool,
}

impl Default for RunningTextConfig {
    fn default() -> Self {
        Self { block_length: 256, hold_out: 0.0, documents: Documents::Files, barrier: false }
    }
}

/// What makes a document of running text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Documents {
    /// A file.
    Files,
    /// A line that is not blank, without its end.
    Lines,
}
