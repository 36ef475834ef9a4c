//! The `[data.labelled]` table of a recipe.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a classifier is trained on.
///
/// A split named `train` is the file `{dir}/train.tsv`, which may end in `.gz` or `.zst`: a label, a
/// tab and a text on each line, or two texts with a tab between them. Of files called `.jsonl`, `.csv`
/// or `.parquet`, and of `.tsv` where `data.fields` names columns, the fields `label`, `text` and
/// `text_pair` are read. For a tagger it is `{dir}/train.conll` or `{dir}/train.txt`: a word, spaces or
/// a tab and its tag on each line, and a blank line after each sentence; columns between the first and
/// the last are not read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LabelledConfig {
    /// The labels, or tags, in the order of the classes; any other in a file is refused.
    pub labels: Vec<String>,
    /// Whether there are two texts to a label, as premise and hypothesis are: the second has segment
    /// 1.
    pub pairs: bool,
    /// Tokens that are read, with the marks; the rest is left out, of two texts that of the longer.
    #[schemars(range(min = 3))]
    pub max_tokens: usize,
}

impl LabelledConfig {
    /// A mark, and a token of each text with the mark behind it.
    pub(crate) fn shortest_row(&self) -> usize {
        if self.pairs { 5 } else { 3 }
    }
}

impl Default for LabelledConfig {
    fn default() -> Self {
        Self { labels: vec!["0".to_owned(), "1".to_owned()], pairs: false, max_tokens: 128 }
    }
}
