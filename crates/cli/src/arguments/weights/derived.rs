//! Arguments of `average`, `merge` and `quantize`, which make new weights from existing ones.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::Checkpoint;

/// Arguments of `average`.
#[derive(Debug, Args)]
pub(crate) struct Average {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Number of newest checkpoints to average [default: the run's training.average_last, else all]
    #[arg(long, value_name = "K")]
    pub(crate) last: Option<usize>,
    /// Share of these weights, from 0 to 1; the rest comes from the weights that the run began
    /// with, so that their abilities are forgotten less
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
