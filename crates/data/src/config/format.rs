//! Formats of corpora.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file_names::{is_archive, uncompressed};

/// Storage format of sentence pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Two files, with one sentence on each line.
    Text,
    /// One file of tab-separated columns.
    Tsv,
    /// One file of comma-separated columns, any of which may be quoted (RFC 4180).
    Csv,
    /// One file with a JSON object on each line.
    Jsonl,
    /// One Apache Parquet file.
    Parquet,
    /// A translation memory, TMX 1.1 to 1.4b, with any number of languages.
    Tmx,
    /// A file for exchange between translation tools, XLIFF 1.2 or 2.
    Xliff,
    /// A message catalog of gettext.
    Po,
    /// A ZIP archive with two files as for `"text"`, whose names end in the languages. OPUS offers
    /// such archives.
    Zip,
    /// A data set on the Hugging Face hub, in its Parquet form; the stem of a corpus is the name of
    /// a split.
    Hub,
}

impl Format {
    /// Format of a single file that contains both sides of its pairs, according to the ending of
    /// its name. An ending such as `.gz` of a compressed file is ignored. `None` for any other
    /// ending.
    #[must_use]
    pub fn by_name(path: &Path) -> Option<Self> {
        let plain = uncompressed(path);
        let ending = plain.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        match ending.as_deref() {
            Some("tsv" | "tab") => Some(Self::Tsv),
            Some("csv") => Some(Self::Csv),
            Some("jsonl" | "ndjson") => Some(Self::Jsonl),
            Some("parquet") => Some(Self::Parquet),
            Some("tmx") => Some(Self::Tmx),
            Some("xlf" | "xliff") => Some(Self::Xliff),
            Some("po") => Some(Self::Po),
            _ => is_archive(path).then_some(Self::Zip),
        }
    }

    /// Ending of a file's name after the stem, without a dot; `None` for formats that are not a
    /// single file.
    #[must_use]
    pub fn ending(self) -> Option<&'static str> {
        Some(match self {
            Self::Text | Self::Hub => return None,
            Self::Tsv => "tsv",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
            Self::Tmx => "tmx",
            Self::Xliff => "xlf",
            Self::Po => "po",
            Self::Zip => "zip",
        })
    }

    /// True if the records of the format have columns or named fields.
    pub(crate) fn is_table(self) -> bool {
        matches!(self, Self::Tsv | Self::Csv | Self::Jsonl | Self::Parquet)
    }

    /// True for the formats of translation tools (TMX, XLIFF and gettext), which contain only
    /// pairs.
    pub(crate) fn is_bilingual(self) -> bool {
        matches!(self, Self::Tmx | Self::Xliff | Self::Po)
    }
}
