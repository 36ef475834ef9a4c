//! Arguments of the commands under `theory`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Pictures;

/// Commands under `theory`.
#[derive(Debug, Subcommand)]
pub(crate) enum TheoryCommand {
    /// Run a Turing machine on a decoder, which predicts its steps token by token
    Turing(TheoryTuring),
    /// Compile a program of select and aggregate to an encoder, and run it
    Rasp(TheoryRasp),
    /// Measure a claim on models with weights set by hand, or on small models that are trained for
    /// it, in minutes; without a name, list the claims
    Show(TheoryShow),
}

/// Arguments of `theory turing`.
#[derive(Debug, Args)]
pub(crate) struct TheoryTuring {
    /// File of the machine: lines `blank SYMBOL`, `start STATE`, `halt STATE…` and rules
    /// `STATE SYMBOL -> STATE SYMBOL MOVE`, with the move L, R or S
    pub(crate) machine: PathBuf,
    /// Symbols on the tape, from the cell under the head on
    #[arg(default_value = "")]
    pub(crate) input: String,
    /// Number of steps after which to stop
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) steps: usize,
    /// Also save the decoder as a run, for `taper generate`, `inspect` and `attention`
    #[arg(long, value_name = "FOLDER")]
    pub(crate) save: Option<PathBuf>,
    /// Print the steps as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) pictures: Pictures,
}

/// Arguments of `theory rasp`.
#[derive(Debug, Args)]
pub(crate) struct TheoryRasp {
    /// File of the program: `alphabet "…"`, then a definition `NAME = EXPRESSION` on each line; the
    /// last one is the result
    pub(crate) program: PathBuf,
    /// Input of the program
    pub(crate) input: Option<String>,
    /// Longest input, in characters, for which the encoder is made [default: 16, or the length of
    /// the input]
    #[arg(long, value_name = "N")]
    pub(crate) longest: Option<usize>,
    /// Also save the encoder as a run, for `taper inspect` and `attention`
    #[arg(long, value_name = "FOLDER")]
    pub(crate) save: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) pictures: Pictures,
}

/// Arguments of `theory show`.
#[derive(Debug, Args)]
pub(crate) struct TheoryShow {
    /// Name of the claim
    pub(crate) name: Option<String>,
    /// Print the table as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) pictures: Pictures,
}
