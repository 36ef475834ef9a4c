//! Arguments of `average`, `merge`, `quantize` and `page`, which make new weights from existing
//! ones, and of `shortlist`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::{Checkpoint, PageLanguage};

/// Arguments of `average`.
#[derive(Debug, Args)]
pub(crate) struct Average {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Number of newest checkpoints to average [default: the run's training.average_last, else all]
    #[arg(long, value_name = "K")]
    pub(crate) last: Option<usize>,
    /// Share of the averaged weights in the result, from 0 to 1. The rest comes from the weights
    /// that the run began with, so that the model forgets less of what it could do before
    #[arg(long, value_name = "SHARE")]
    pub(crate) with_parent: Option<f64>,
}

/// Arguments of `merge`.
#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// Folder of the run with adapters
    pub(crate) run: PathBuf,
    /// Folder to make
    pub(crate) new: PathBuf,
    #[command(flatten)]
    pub(crate) from: Checkpoint,
}

/// Arguments of `quantize`.
#[derive(Debug, Args)]
pub(crate) struct Quantize {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Folder to make [default: the run's name followed by -int8]
    #[arg(long, short, value_name = "FOLDER")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) from: Checkpoint,
}

/// Arguments of `shortlist`.
#[derive(Debug, Args)]
pub(crate) struct ShortlistOfRun {
    /// Folder of the translation run
    pub(crate) run: PathBuf,
    /// Number of the likeliest translations of each source token, up to 512
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) best: usize,
    /// Number of the most frequent target tokens, which every translation may contain
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) frequent: usize,
    /// Number of iterations of expectation-maximisation
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) iterations: usize,
    /// Split of the run's data [default: its training text]
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Option<String>,
}

/// Arguments of `page`.
#[derive(Debug, Args)]
pub(crate) struct PageOfRun {
    /// Folder of the translation run
    pub(crate) run: PathBuf,
    /// File to write, such as translate.html
    pub(crate) page: PathBuf,
    /// WebAssembly module that translates, made by scripts/package/web.sh [default: the one that is
    /// installed beside the program]
    #[arg(long, value_name = "FILE")]
    pub(crate) module: Option<PathBuf>,
    /// Language of the page
    #[arg(long, value_enum, default_value_t)]
    pub(crate) language: PageLanguage,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) from: Checkpoint,
}
