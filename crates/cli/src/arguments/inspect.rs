//! Arguments of `runs`, `inspect` and `config`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Overrides;

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
    /// Sequence length for which the arithmetic of each layer is counted [default: the block length
    /// (data.text.block_length) of a language model, 512 for other models]
    #[arg(long, value_name = "N")]
    pub(crate) tokens: Option<usize>,
    /// Number of processes that train together. The memory is shown for each of them, and the
    /// optimizer's state is divided among them
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) processes: NonZeroUsize,
    /// For a run of recurrent layers: measure on this split how the gradient fades over the steps.
    /// Shows the norm of the gradient of the loss with respect to the states, for each distance of a
    /// state from the last state of its layer
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

/// Commands under `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the resolved recipe, with every default written out
    Show(ConfigFile),
    /// Check keys, types and combinations; train nothing
    Check(ConfigFile),
    /// Explain a key of a recipe: its meaning, values, default, and when it has no effect
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
