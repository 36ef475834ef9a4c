//! Arguments of `average`, `merge`, `quantize`, `runs`, `inspect`, `config` and `completions`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Overrides;

/// Arguments of `average`.
#[derive(Debug, Args)]
pub(crate) struct Average {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Number of newest checkpoints to average [default: the run's training.average_last, else all]
    #[arg(long, value_name = "K")]
    pub(crate) last: Option<usize>,
    /// Share of these weights, from 0 to 1: the rest is of the weights that the run began with, so that
    /// it forgets less of what those can do
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
    /// best, last, average, a name such as step-00001000, or the path of a checkpoint folder
    /// [default: average if there and not older than last, else best, else last]
    #[arg(long)]
    pub(crate) checkpoint: Option<String>,
}

/// Arguments of `quantize`.
#[derive(Debug, Args)]
pub(crate) struct Quantize {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Folder to make [default: the run's, with -int8 behind its name]
    #[arg(long, short, value_name = "FOLDER")]
    pub(crate) output: Option<PathBuf>,
    /// best, last, average, a name such as step-00001000, or the path of a checkpoint folder
    /// [default: average if there and not older than last, else best, else last]
    #[arg(long)]
    pub(crate) checkpoint: Option<String>,
}

/// Arguments of `runs`.
#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// Folder of runs, or folder of one run
    #[arg(default_value = "runs")]
    pub(crate) folder: PathBuf,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// Folder of a run, or a recipe
    #[arg(required_unless_present = "shape")]
    pub(crate) target: Option<PathBuf>,
    /// Published model to inspect instead: gpt1, gpt2, gpt2-medium, gpt2-large, gpt2-xl, gpt3,
    /// bert-base or bert-large
    #[arg(long, value_name = "NAME", conflicts_with_all = ["target", "set"])]
    pub(crate) shape: Option<String>,
    /// Sequence length for the arithmetic of a layer [default: a block of a language model, else
    /// 512]
    #[arg(long, value_name = "N")]
    pub(crate) tokens: Option<usize>,
    /// Number of processes that train together, for the memory of each: they divide the optimizer's
    /// state
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) processes: NonZeroUsize,
    /// For a run of recurrent layers: norm of the loss gradient with respect to each state on this
    /// split, by the number of steps that follow the state
    #[arg(long, value_name = "SPLIT", requires = "target")]
    pub(crate) state_gradients: Option<String>,
    /// Number of sentences of the split for the state gradients
    #[arg(long, value_name = "N", default_value_t = 200, requires = "state_gradients")]
    pub(crate) sentences: usize,
    /// Also draw the state gradients, into this SVG file
    #[arg(long, value_name = "FILE", requires = "state_gradients")]
    pub(crate) figure: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell
    pub(crate) shell: clap_complete::Shell,
}

/// Commands under `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the resolved recipe, with every default written out
    Show(ConfigFile),
    /// Check keys, types and combinations; train nothing
    Check(ConfigFile),
    /// Explain a key of a recipe: its meaning, values, default, and where it has no effect
    Explain(ConfigExplain),
}

/// Arguments of `config explain`.
#[derive(Debug, Args)]
pub(crate) struct ConfigExplain {
    /// Key or section, for example training.schedule [default: all]
    pub(crate) key: Option<String>,
    /// Print all keys as a page in Markdown
    #[arg(long, conflicts_with_all = ["key", "json"])]
    pub(crate) markdown: bool,
    /// Print all keys as a JSON Schema, which editors use to complete and check recipes
    #[arg(long, conflicts_with = "key")]
    pub(crate) json: bool,
}

/// A recipe with overrides.
#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    /// Recipe
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
