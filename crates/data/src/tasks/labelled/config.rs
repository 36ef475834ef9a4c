//! Settings of texts with labels: the `[data.labelled]` table of a recipe (the TOML file with all
//! settings of a training).

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Training data of a classifier.
///
/// A split named `train` is the file `{dir}/train.tsv`, which may end in `.gz` or `.zst`: a label,
/// a tab and a text on each line, or two texts with a tab between them. In files called `.jsonl`,
/// `.csv` or `.parquet`, and in `.tsv` files if `data.fields` names columns, the fields `label`,
/// `text` and `text_pair` are read. For a tagger the file is `{dir}/train.conll` or
/// `{dir}/train.txt`: each line has a word, spaces or a tab, and the tag, and a blank line follows
/// each sentence; columns between the first and the last are not read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LabelledConfig {
    /// The labels, or tags, in the order of the classes; files with other labels are refused.
    #[schemars(extend("x-idle" = ["no-labelled-texts"]))]
    pub labels: Vec<String>,
    /// Whether each label has two texts, such as a premise and a hypothesis, with a tab between
    /// them. The first text has segment 0, the second segment 1. With "auto", the setting of
    /// imported classifiers, a line with a tab is two texts, and a line without one is a single
    /// text.
    #[schemars(extend("x-idle" = ["not-classification"]))]
    pub pairs: Pairs,
    /// Largest number of tokens that are read of an example, including special tokens. The rest is
    /// cut off; of two texts, the longer one is shortened at its end.
    #[schemars(range(min = 3))]
    #[schemars(extend("x-idle" = ["no-labelled-texts"]))]
    pub max_tokens: usize,
}

impl LabelledConfig {
    /// Smallest number of tokens of a row: the mark `<cls>`, and for each text a token and a mark
    /// `<sep>`.
    pub(crate) fn shortest_row(&self) -> usize {
        if self.pairs == Pairs::No { 3 } else { 5 }
    }
}

/// Whether each label has two texts: `true`, `false` or `"auto"` in a recipe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum Pairs {
    /// One text, even if it contains a tab.
    #[default]
    No,
    /// Two texts.
    Yes,
    /// Two texts in a line with a tab, otherwise one: for classifiers whose training data are
    /// unknown.
    Auto,
}

/// Value of `pairs` as it is written in a recipe.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected true, false or \"auto\"")]
enum Written {
    Flag(bool),
    Name(String),
}

impl From<Pairs> for Written {
    fn from(pairs: Pairs) -> Self {
        match pairs {
            Pairs::No => Self::Flag(false),
            Pairs::Yes => Self::Flag(true),
            Pairs::Auto => Self::Name("auto".to_owned()),
        }
    }
}

impl TryFrom<Written> for Pairs {
    type Error = String;

    fn try_from(written: Written) -> std::result::Result<Self, String> {
        match written {
            Written::Flag(false) => Ok(Self::No),
            Written::Flag(true) => Ok(Self::Yes),
            Written::Name(name) if name == "auto" => Ok(Self::Auto),
            Written::Name(name) => Err(format!("expected true, false or \"auto\", not {name:?}")),
        }
    }
}

impl JsonSchema for Pairs {
    fn schema_name() -> Cow<'static, str> {
        "Pairs".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-values": "true, false or \"auto\"",
            "anyOf": [{ "type": "boolean" }, { "const": "auto" }]
        })
    }
}

impl Default for LabelledConfig {
    fn default() -> Self {
        Self { labels: vec!["0".to_owned(), "1".to_owned()], pairs: Pairs::No, max_tokens: 128 }
    }
}
