//! The `[data.masked]` table of a recipe.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a masked language model is asked (Devlin et al. 2019, section 3.1).
///
/// Its text is that of a language model, cut into rows that do not go beyond a document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MaskedConfig {
    /// The share of the tokens of a row that are asked, at least one. Of these 80 % become `<mask>`,
    /// 10 % another token, and 10 % stay as they are.
    #[schemars(extend("exclusiveMinimum" = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub rate: f64,
    /// Whether all tokens of a word are asked or none.
    pub whole_words: bool,
    /// Whether a row has two texts, of which the second follows the first or, in half of the rows,
    /// comes from elsewhere, and the model is asked which.
    pub next_sentence: bool,
}

impl Default for MaskedConfig {
    fn default() -> Self {
        Self { rate: 0.15, whole_words: false, next_sentence: false }
    }
}
