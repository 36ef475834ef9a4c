//! Arguments of `tokenizer train`, `tokenizer encode`, `tokenizer decode` and `tokenizer pieces`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Overrides, SpecialTokens};

/// Commands under `tokenizer`.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenizerCommand {
    /// Train the tokenizer that a recipe describes
    Train(TokenizerTrain),
    /// Convert text to token ids (or pieces), one line at a time from standard input
    Encode(TokenizerEncode),
    /// Convert token ids back to text, one line at a time from standard input
    Decode(TokenizerFile),
    /// Write a model of SentencePiece that divides text like a tokenizer
    Pieces(TokenizerPieces),
}

/// Arguments of `tokenizer pieces`.
#[derive(Debug, Args)]
pub(crate) struct TokenizerPieces {
    #[command(flatten)]
    pub(crate) file: TokenizerFile,
    /// File to write, usually with the ending .model or .spm
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

/// Arguments of `tokenizer train`.
#[derive(Debug, Args)]
pub(crate) struct TokenizerTrain {
    /// The recipe
    pub(crate) config: PathBuf,
    /// Folder for the tokenizer
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
}

/// Tokenizer file to use.
#[derive(Debug, Args)]
pub(crate) struct TokenizerFile {
    /// File tokenizer.json, or folder of a run
    pub(crate) tokenizer: PathBuf,
    /// Use the target side's tokenizer of a run with two tokenizers
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
