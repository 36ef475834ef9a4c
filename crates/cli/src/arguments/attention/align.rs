//! Arguments of `align` and `align evaluate`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use taper_run::attention::{Symmetrization, WordAlignerSettings};

use crate::arguments::Weights;

/// Arguments of `align`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Align {
    #[command(subcommand)]
    pub(crate) command: Option<AlignCommand>,
    /// Folder of the run
    #[arg(required = true)]
    pub(crate) run: Option<PathBuf>,
    /// Source sentences, one per line
    #[arg(long, value_name = "FILE", requires = "target", conflicts_with = "split")]
    pub(crate) source: Option<PathBuf>,
    /// Translations of the source sentences, one per line
    #[arg(long, value_name = "FILE", requires = "source")]
    pub(crate) target: Option<PathBuf>,
    /// A split of the run's data, for example test, instead of two files
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Option<String>,
    /// Reference links, made by people, one line per pair: the computed links are scored against
    /// them on standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) reference: Option<PathBuf>,
    /// Decoder layer whose attention is read, counted from 1 [default: the guided head's layer,
    /// else the one before the last]
    #[arg(long, value_name = "N")]
    pub(crate) layer: Option<usize>,
    /// Attention head, counted from 1 [default: the guided head, else the mean of all]
    #[arg(long, value_name = "N")]
    pub(crate) head: Option<usize>,
    /// A run that translates in the other direction, to combine both alignments
    #[arg(long, value_name = "RUN")]
    pub(crate) reverse: Option<PathBuf>,
    /// Combination of the links of both directions
    #[arg(long, value_enum, default_value = "grow-diagonal", requires = "reverse")]
    pub(crate) symmetrization: SymmetrizationChoice,
    /// Largest number of tokens of a line; a longer line is refused [default: the run's
    /// data.cleaning.max_tokens, the longest lines of training]
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
    #[command(flatten)]
    pub(crate) weights: Weights,
}

impl Align {
    /// Returns the settings of the word alignment.
    pub(crate) fn settings(&self) -> WordAlignerSettings {
        let Self { layer, head, max_tokens, .. } = *self;
        WordAlignerSettings { layer, head, max_tokens }
    }
}

/// Commands on existing alignments.
#[derive(Debug, Subcommand)]
pub(crate) enum AlignCommand {
    /// Score links against reference links: precision, recall and alignment error rate
    Evaluate(AlignEvaluate),
}

/// Arguments of `align evaluate`.
#[derive(Debug, Args)]
pub(crate) struct AlignEvaluate {
    /// Links to score, one line per pair, such as `0-0 1-2`
    pub(crate) found: PathBuf,
    /// Reference links, one line per pair; `1?2` is possible but not sure
    pub(crate) reference: PathBuf,
    /// Print the scores as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Combination of the links of both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SymmetrizationChoice {
    /// Links of both directions
    Intersection,
    /// Links of at least one direction
    Union,
    /// The intersection, plus neighbouring links of the union for words that have no link yet
    GrowDiagonal,
}

impl From<SymmetrizationChoice> for Symmetrization {
    fn from(choice: SymmetrizationChoice) -> Self {
        match choice {
            SymmetrizationChoice::Intersection => Self::Intersection,
            SymmetrizationChoice::Union => Self::Union,
            SymmetrizationChoice::GrowDiagonal => Self::GrowDiagonal,
        }
    }
}
