//! Arguments of `languages identify`, `languages evaluate` and `languages train`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use taper_data::IdentifierTraining;

/// Commands under `languages`.
#[derive(Debug, Subcommand)]
pub(crate) enum LanguagesCommand {
    /// Print the language of each line, and its probability
    Identify(LanguagesIdentify),
    /// Print the share of lines whose language is identified correctly, for each language of a file
    Evaluate(LanguagesEvaluate),
    /// Train a model on lines in known languages
    Train(LanguagesTrain),
}

/// Model to use.
#[derive(Debug, Args)]
pub(crate) struct LanguageModelFile {
    /// File of a model that `taper languages train` has written [default: the one in the program]
    #[arg(long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,
}

/// Arguments of `languages identify`.
#[derive(Debug, Args)]
pub(crate) struct LanguagesIdentify {
    /// File with one text per line; - is standard input
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    pub(crate) input: PathBuf,
    #[command(flatten)]
    pub(crate) model: LanguageModelFile,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `languages evaluate`.
#[derive(Debug, Args)]
pub(crate) struct LanguagesEvaluate {
    /// File with a language, a tab and a text on each line
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) model: LanguageModelFile,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `languages train`.
#[derive(Debug, Args)]
pub(crate) struct LanguagesTrain {
    /// File with a language, a tab and a text on each line
    pub(crate) file: PathBuf,
    /// File of the model
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Number of vectors that n-grams share; each takes 12 bytes of the model
    #[arg(long, value_name = "N", default_value_t = IdentifierTraining::default().features)]
    pub(crate) features: usize,
    /// Number of pieces to train on; each is a part of a line, drawn at random
    #[arg(long, value_name = "N", default_value_t = IdentifierTraining::default().pieces)]
    pub(crate) pieces: u64,
    /// Seed of random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}
