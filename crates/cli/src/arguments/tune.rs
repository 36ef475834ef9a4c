//! Arguments of `tune`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use taper_run::evaluation::TuningMetric;

use super::{Overrides, Weights};

/// Arguments of `tune`.
#[derive(Debug, Args)]
pub(crate) struct Tune {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Split to translate; never one on which the run will be judged [default: the validation set]
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Option<String>,
    /// Largest number of its sentences, spread evenly over it
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) sentences: usize,
    /// Beams to try in addition to the run's own, each with one search
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "2,4,8")]
    pub(crate) beams: Vec<usize>,
    /// Length penalties to try
    #[arg(
        long,
        value_name = "X,X,…",
        value_delimiter = ',',
        default_value = "0,0.2,0.4,0.6,0.8,1,1.2,1.4"
    )]
    pub(crate) length_penalties: Vec<f64>,
    /// Length rewards to try, each with each length penalty
    #[arg(long, value_name = "X,X,…", value_delimiter = ',', default_value = "0,0.1,0.2,0.3")]
    pub(crate) length_rewards: Vec<f64>,
    /// Score to maximise
    #[arg(long, value_enum, default_value = "bleu")]
    pub(crate) metric: TunedMetric,
    /// Print the result and leave the run unchanged
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) weights: Weights,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Print the trials as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Score to maximise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TunedMetric {
    /// BLEU
    Bleu,
    /// chrF2
    Chrf,
}

impl From<TunedMetric> for TuningMetric {
    fn from(metric: TunedMetric) -> Self {
        match metric {
            TunedMetric::Bleu => Self::Bleu,
            TunedMetric::Chrf => Self::Chrf,
        }
    }
}
