//! Arguments of the commands that show runs: `report`, `compare`, `top`, `scaling`, `extrapolate`.

mod extrapolate;
mod pictures;
#[cfg_attr(not(feature = "serve"), path = "without_serve.rs")]
mod serve;

use std::path::PathBuf;

use clap::Args;
use taper_report::SentenceAddress;

use super::Loading;

pub(crate) use extrapolate::Extrapolate;
pub(crate) use pictures::{PageLanguage, Pictures};
pub(crate) use serve::Serve;

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Page to write [default: report.html in the run]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Also show the attention on these translations of the test set, which loads the model: line
    /// numbers from 1, preceded by the split and a colon if it is not the first
    #[arg(long, value_name = "[SPLIT:]LINE,…", value_delimiter = ',')]
    pub(crate) attention: Vec<SentenceAddress>,
    #[command(flatten)]
    pub(crate) loading: Loading,
    #[command(flatten)]
    pub(crate) pictures: Pictures,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Folders of two or more runs; the others are compared with the first
    #[arg(required = true, num_args = 2..)]
    pub(crate) runs: Vec<PathBuf>,
    /// Also write a page with curves and the sentences won and lost
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pictures: Pictures,
}

/// Arguments of `scaling`.
#[derive(Debug, Args)]
pub(crate) struct Scaling {
    /// Folders of runs of language models
    #[arg(required_unless_present = "points")]
    pub(crate) runs: Vec<PathBuf>,
    /// CSV table of further points, with the columns parameters (or Model Size), tokens (or flops,
    /// Training FLOP) and loss
    #[arg(long, value_name = "FILE")]
    pub(crate) points: Option<PathBuf>,
    /// Number of points with the highest loss to leave out
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) leave_out: usize,
    /// Resamples of the points for the intervals
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) resamples: usize,
    /// Amounts of training for which to find the best model [default: the largest amount of a
    /// point, 10 times and 100 times as much]
    #[arg(long, value_name = "FLOPS", value_delimiter = ',')]
    pub(crate) flops: Vec<f64>,
    #[command(flatten)]
    pub(crate) pictures: Pictures,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Folders of runs, or of folders that hold runs [default: runs]
    pub(crate) runs: Vec<PathBuf>,
}
