//! Arguments of `init`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `init`.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Two text files with one sentence per line, the second the translation of the first; or a
    /// table: .tsv, .csv, .jsonl, .parquet, .tmx, .xlf or .po. All but .parquet may be compressed:
    /// .gz, .zst, .xz, .bz2 or .zip [default: asks]
    #[arg(value_name = "FILE", num_args = 0..=2)]
    pub(crate) files: Vec<PathBuf>,
    /// Language of the first file, such as en [default: the ending of its name, else asks]
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) source_language: Option<String>,
    /// Language of the second file
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) target_language: Option<String>,
    /// Columns of a table: numbers from 1, or names; for .jsonl and .parquet, fields, with dots
    /// [default: 1,2; fields named like the languages]
    #[arg(long, value_name = "SOURCE,TARGET")]
    pub(crate) columns: Option<String>,
    /// Recipe to write [default: named like the text]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Folder for the text if a validation and a test set have to be split off [default: data/<name
    /// of the recipe>]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Write the recipe without measuring the duration of training
    #[arg(long)]
    pub(crate) no_measure: bool,
}
