//! Arguments of `attention` and `prune-heads`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use taper_run::attention::AttentionPart;

use crate::arguments::{Loading, PageLanguage};
use crate::features::png_path;

/// Arguments of `attention`.
#[derive(Debug, Args)]
pub(crate) struct Attention {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Text that the model reads
    pub(crate) text: String,
    /// Translation to show instead of the model's own
    #[arg(long, value_name = "TEXT")]
    pub(crate) target: Option<String>,
    /// Kind of attention, by its queries and keys [default: cross, if the model has it]
    #[arg(long, value_enum)]
    pub(crate) part: Option<PartChoice>,
    /// Layer, counted from 1 [default: the last; for cross, the one before the last]
    #[arg(long, value_name = "N")]
    pub(crate) layer: Option<usize>,
    /// Head, counted from 1 [default: the mean of all]
    #[arg(long, value_name = "N", conflicts_with = "rollout")]
    pub(crate) head: Option<usize>,
    /// Attention rollout through all layers of the encoder or decoder, instead of one layer
    #[arg(long, conflicts_with = "layer")]
    pub(crate) rollout: bool,
    /// Table of the behaviour of each head, instead of weights
    #[arg(long, conflicts_with_all = ["layer", "head", "rollout"])]
    pub(crate) heads: bool,
    /// Write a page that shows any layer and head
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the weights as a drawing
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the weights as a picture
    #[arg(long, value_name = "FILE", value_parser = png_path())]
    pub(crate) png: Option<PathBuf>,
    /// The language of pages and figures
    #[arg(long, value_enum, default_value_t)]
    pub(crate) language: PageLanguage,
    /// Print everything as JSON
    #[arg(long, conflicts_with = "heads")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) loading: Loading,
}

/// Kind of attention, by its queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PartChoice {
    /// Encoder tokens to encoder tokens
    Encoder,
    /// Decoder tokens to themselves and earlier decoder tokens
    Decoder,
    /// Decoder tokens to encoder tokens
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
    /// Only measure the importance of each head, and remove none; required, because removal is not
    /// implemented yet
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Split of the run's data to measure on [default: data.validation, else data.test]
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Option<String>,
    /// Approximate number of tokens of the split to measure on
    #[arg(long, value_name = "N", default_value = "10000")]
    pub(crate) tokens: usize,
    /// Print the measures as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) loading: Loading,
}
