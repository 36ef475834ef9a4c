//! Arguments of `tokenizer train`, `tokenizer encode` and `tokenizer decode`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Overrides, SpecialTokens};

/// The commands under `tokenizer`.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenizerCommand {
    /// Train the tokenizer that a recipe describes
    Train(TokenizerTrain),
    /// Text to token ids (or pieces), one line at a time from standard input
    Encode(TokenizerEncode),
    /// Token ids back to text, one line at a time from standard input
    Decode(TokenizerFile),
}

/// Arguments of `tokenizer train`.
#[derive(Debug, Args)]
pub(crate) struct TokenizerTrain {
    /// The recipe
    pub(crate) config: PathBuf,
    /// Folder that receives the tokenizer
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
}

/// Which tokenizer file to use.
#[derive(Debug, Args)]
pub(crate) struct TokenizerFile {
    /// A tokenizer.json, or the folder of a run
    pub(crate) tokenizer: PathBuf,
    /// Of a run with two tokenizers, use the target side's
    #[arg(long)]
    pub(crate) target: bool,
}

/// Arguments of `tokenizer encode`.
#[derive(Debug, Args)]
pub(crate) struct TokenizerEncode {
    #[command(flatten)]
    pub(crate) file: TokenizerFile,
    #[command(flatten)]
    pub(crate) special_tokens: SpecialTokens,
    /// Print pieces of text instead of ids
    #[arg(long)]
    pub(crate) pieces: bool,
}
