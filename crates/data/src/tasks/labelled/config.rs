//! The `[data.labelled]` table of a recipe.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a classifier is trained on.
///
/// A split named `train` is the file `{dir}/train.tsv`, which may end in `.gz` or `.zst`: a label, a
/// tab and a text on each line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LabelledConfig {
    /// The labels, in the order of the classes; any other in a file is refused.
    pub labels: Vec<String>,
    /// Tokens that are read of a text, with its marks; the rest is left out.
    #[schemars(range(min = 3))]
    pub max_tokens: usize,
}

impl Default for LabelledConfig {
    fn default() -> Self {
        Self { labels: vec!["0".to_owned(), "1".to_owned()], max_tokens: 128 }
    }
}
