//! Arguments of `explain` and `positions`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::{Loading, Overrides, PageLanguage};

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Folder of the run: translation, captions, a language model, a tagger or a classifier
    pub(crate) run: PathBuf,
    /// The text, or the image file
    pub(crate) text: String,
    /// Write a page: one diagram from the text to the answer
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// The language of pages and figures
    #[arg(long, value_enum, default_value_t)]
    pub(crate) language: PageLanguage,
    /// Print everything as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) loading: Loading,
}

/// Arguments of `positions`.
#[derive(Debug, Args)]
pub(crate) struct PositionsArguments {
    /// Recipe whose model determines widths and heads
    pub(crate) config: PathBuf,
    /// Number of positions
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse_count)]
    pub(crate) count: usize,
    /// Write a page with all figures
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Draw each figure into this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) svg: Option<PathBuf>,
    /// The language of pages and figures
    #[arg(long, value_enum, default_value_t)]
    pub(crate) language: PageLanguage,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
}

/// Parses a number of positions that can be drawn.
fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 2..=4096) => Ok(count),
        _ => Err("a whole number from 2 to 4096".to_owned()),
    }
}
