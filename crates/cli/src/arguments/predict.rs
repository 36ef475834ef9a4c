//! Arguments of `predict`.

use std::path::PathBuf;

use clap::Args;

use super::Weights;

/// Arguments of `predict`.
#[derive(Debug, Args)]
pub(crate) struct Predict {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Texts, one a line; - is standard input
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    pub(crate) input: PathBuf,
    #[command(flatten)]
    pub(crate) weights: Weights,
    /// One JSON object a line: label, its probability, those of all labels
    #[arg(long)]
    pub(crate) json: bool,
}
