//! Arguments of `attention` and `prune-heads`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use taper_run::attention::AttentionPart;

use crate::arguments::{Overrides, PageLanguage, Weights};

/// Arguments of `attention`.
#[derive(Debug, Args)]
pub(crate) struct Attention {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// What the model reads
    pub(crate) text: String,
    /// Its translation, to look at in place of the one that the model finds
    #[arg(long, value_name = "TEXT")]
    pub(crate) target: Option<String>,
    /// Which tokens attend to which [default: cross, where the model has it]
    #[arg(long, value_enum)]
    pub(crate) part: Option<PartChoice>,
    /// The layer, counted from 1 [default: the last; the last but one of cross]
    #[arg(long, value_name = "N")]
    pub(crate) layer: Option<usize>,
    /// The head, counted from 1 [default: the mean of all]
    #[arg(long, value_name = "N", conflicts_with = "rollout")]
    pub(crate) head: Option<usize>,
    /// What flows through all layers of encoder or decoder, in place of one layer
    #[arg(long, conflicts_with = "layer")]
    pub(crate) rollout: bool,
    /// What each head does, as a table, in place of weights
    #[arg(long, conflicts_with_all = ["layer", "head", "rollout"])]
    pub(crate) heads: bool,
    /// Write a page on which every layer and head can be chosen
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the weights as a drawing
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the weights as a picture
    #[arg(long, value_name = "FILE")]
    pub(crate) png: Option<PathBuf>,
    /// The language of pages and figures
    #[arg(long, value_enum, default_value_t)]
    pub(crate) language: PageLanguage,
    /// Print everything as JSON
    #[arg(long, conflicts_with = "heads")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) weights: Weights,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
}

/// Which tokens attend to which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PartChoice {
    /// Those of the encoder to each other
    Encoder,
    /// Those of the decoder to themselves and those before them
    Decoder,
    /// Those of the decoder to the encoder's
    Cross,
}

impl From<PartChoice> for AttentionPart {
    fn from(choice: PartChoice) -> Self {
        match choice {
            PartChoice::Encoder => Self::Encoder,
            PartChoice::Decoder => Self::Decoder,
            PartChoice::Cross => Self::Cross,
        }
    }
}

/// Arguments of `prune-heads`.
#[derive(Debug, Args)]
pub(crate) struct PruneHeads {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Measure what each head is worth, and change nothing: all that can be done so far
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Stem of a split of the run's data to measure on [default: data.validation, else data.test]
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Option<String>,
    /// Tokens of the split that are measured on, about
    #[arg(long, value_name = "N", default_value = "10000")]
    pub(crate) tokens: usize,
    /// Print the measures as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) weights: Weights,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
}
