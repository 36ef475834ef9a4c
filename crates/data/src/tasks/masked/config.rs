//! Settings of masked language models: the `[data.masked]` table of a recipe (the TOML file with
//! all settings of a training).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Prediction task of a masked language model (Devlin et al. 2019, section 3.1).
///
/// Text, prepared as for a language model and cut into rows within one document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MaskedConfig {
    /// Share of the tokens of a row (a sequence that the model reads) that are predicted; it is at
    /// least one token. Of these, 80 % become `<mask>`, 10 % become another token, and 10 % stay
    /// unchanged.
    #[schemars(extend("exclusiveMinimum" = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub rate: f64,
    /// Whether all tokens of a word are predicted together.
    pub whole_words: bool,
    /// Whether a row has two texts. In half of the rows the second text follows the first; in the
    /// other rows it comes from elsewhere. The model predicts which is the case.
    pub next_sentence: bool,
}

impl Default for MaskedConfig {
    fn default() -> Self {
        Self { rate: 0.15, whole_words: false, next_sentence: false }
    }
}
