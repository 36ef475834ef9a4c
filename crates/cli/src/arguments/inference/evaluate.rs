//! Arguments of `evaluate` and `score`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::{ItemRules, Loading, Search, Weights};

/// Arguments of `evaluate`.
#[derive(Debug, Args)]
pub(crate) struct Evaluate {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Split of the run's data, for example val; may be repeated [default: the test sets
    /// of data.test; for a language model without test sets, its validation text]
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Vec<String>,
    /// Score hostile variants of the test sets in addition to the original sets: capitals
    /// throughout, no full stop, two sentences, doubled words, one word, typing errors; the run
    /// keeps the scores in scores.hostile.json
    #[arg(long)]
    pub(crate) hostile: bool,
    #[command(flatten)]
    pub(crate) search: Search,
    #[command(flatten)]
    pub(crate) loading: Loading,
    /// Print the scores as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `score`, which reads one of three kinds of text.
#[derive(Debug, Args)]
pub(crate) struct Score {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Source sentences, one per line
    #[arg(long, value_name = "FILE", requires = "target")]
    pub(crate) source: Option<PathBuf>,
    /// Translations of the source sentences, one per line
    #[arg(long, value_name = "FILE", requires = "source")]
    pub(crate) target: Option<PathBuf>,
    /// Texts for a language model, one per line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "max_tokens"])]
    pub(crate) text: Option<PathBuf>,
    /// JSON lines for a language model, each with a `prompt` and its `choices`: prints the choice
    /// that the model prefers; if lines have an `answer`, counted from 0, also the share of correct
    /// choices
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "text", "max_tokens"])]
    pub(crate) choices: Option<PathBuf>,
    /// Largest number of tokens of a line; a longer line is refused [default: the run's
    /// data.cleaning.max_tokens, the longest lines of training]
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
    #[command(flatten)]
    pub(crate) weights: Weights,
    #[command(flatten)]
    pub(crate) items: ItemRules,
    /// Print one JSON object per line: the log-probability of each token, or an error
    #[arg(long)]
    pub(crate) json: bool,
}
