//! Formats of corpora.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How sentence pairs are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Two files, one sentence a line.
    Text,
    /// One file of tab-separated columns.
    Tsv,
    /// One file of comma-separated columns, of which any may stand in quotes (RFC 4180).
    Csv,
    /// One file with a JSON object a line.
    Jsonl,
    /// One Apache Parquet file.
    Parquet,
    /// A data set on the Hugging Face hub, in its Parquet form; a split's stem is its name there.
    Hub,
}
