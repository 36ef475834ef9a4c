//! Settings of running text: the `[data.text]` table of a recipe (the TOML file with all settings
//! of a training).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Conversion of running text to the training and validation data of a language model.
///
/// A split named `train` is the file `{dir}/train.txt`, or every file of the folder `{dir}/train`
/// in the order of their names; each may end in `.gz` or `.zst`. In files called `.jsonl`, `.csv`,
/// `.tsv` or `.parquet`, the field that `data.fields.text` names is read, and each record is a
/// document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunningTextConfig {
    /// Number of tokens of a block, which is the longest context of a prediction.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["no-running-text"]))]
    pub block_length: usize,
    /// Share of the training text, at its end, that is used for validation instead of training if
    /// `data.validation` is empty; 0: none.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(extend("x-idle" = ["no-running-text"]))]
    pub hold_out: f64,
    /// What a document is. The token `</s>` separates documents.
    #[schemars(extend("x-idle" = ["no-running-text"]))]
    pub documents: Documents,
    /// Whether the model sees only the present document when it predicts a token, and nothing of
    /// the documents before it. A block with several documents then becomes a row for each; each
    /// row begins with `</s>` and has its own positions.
    #[schemars(extend("x-idle" = ["not-language-model"]))]
    pub barrier: bool,
}

impl Default for RunningTextConfig {
    fn default() -> Self {
        Self { block_length: 256, hold_out: 0.0, documents: Documents::Files, barrier: false }
    }
}

/// Definition of a document of running text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Documents {
    /// A file.
    Files,
    /// Each line that is not blank, without its end.
    Lines,
}
