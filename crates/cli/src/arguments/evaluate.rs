//! Arguments of `evaluate` and `score`.

use std::path::PathBuf;

use clap::Args;

use super::{Overrides, Search, SpecialTokens, Strict, Weights};

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

/// Arguments of `score`: of one of its three kinds of text.
#[derive(Debug, Args)]
pub(crate) struct Score {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Source sentences, one a line
    #[arg(long, value_name = "FILE", requires = "target")]
    pub(crate) source: Option<PathBuf>,
    /// Their translations, one a line
    #[arg(long, value_name = "FILE", requires = "source")]
    pub(crate) target: Option<PathBuf>,
    /// Of a language model: texts, one a line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "max_tokens"])]
    pub(crate) text: Option<PathBuf>,
    /// Of a language model: JSON lines with a `prompt` and its `choices`, of which it is told which
    /// one the model would choose; with an `answer`, counted from 0, also how often it is right
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "text", "max_tokens"])]
    pub(crate) choices: Option<PathBuf>,
    /// The most tokens of a line; a longer one is refused [default: the run's
    /// data.cleaning.max_tokens, the most it was trained on]
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
    #[command(flatten)]
    pub(crate) weights: Weights,
    #[command(flatten)]
    pub(crate) special_tokens: SpecialTokens,
    #[command(flatten)]
    pub(crate) strict: Strict,
    /// One JSON object a line, with the log-probability of each token; or error, where there is none
    #[arg(long)]
    pub(crate) json: bool,
}
