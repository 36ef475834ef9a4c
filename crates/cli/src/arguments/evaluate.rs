//! Arguments of `evaluate` and `score`.

use std::path::PathBuf;

use clap::Args;

use super::{Overrides, Search, Weights};

/// Arguments of `evaluate`.
#[derive(Debug, Args)]
pub(crate) struct Evaluate {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Stem of a split of the run's data, for example val; may be repeated [default: data.test;
    /// of a language model without any, its validation text]
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Vec<String>,
    #[command(flatten)]
    pub(crate) search: Search,
    #[command(flatten)]
    pub(crate) weights: Weights,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Print the scores as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `score`.
#[derive(Debug, Args)]
pub(crate) struct Score {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Source sentences, one a line
    #[arg(long, value_name = "FILE")]
    pub(crate) source: PathBuf,
    /// Their translations, one a line
    #[arg(long, value_name = "FILE")]
    pub(crate) target: PathBuf,
    /// The most tokens of a line; a longer one is refused [default: the run's
    /// data.cleaning.max_tokens, the most it was trained on]
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
    #[command(flatten)]
    pub(crate) weights: Weights,
    /// One JSON object a line, with the log-probability of each token
    #[arg(long)]
    pub(crate) json: bool,
}
