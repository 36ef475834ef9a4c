//! Arguments of `extrapolate`.

use std::path::PathBuf;

use clap::Args;
use taper_run::evaluation::{ExtrapolationSettings, Passkey};

use super::{Loading, Pictures};

/// Arguments of `extrapolate`.
#[derive(Debug, Args)]
pub(crate) struct Extrapolate {
    /// Folders of runs of language models
    #[arg(required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// Block lengths, in tokens [default: 1, 2, 4, 8, 16 and 32 times the blocks of training]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub(crate) lengths: Vec<usize>,
    #[command(flatten)]
    passkeys: Passkeys,
    #[command(flatten)]
    pub(crate) loading: Loading,
    #[command(flatten)]
    pub(crate) pictures: Pictures,
    /// Print the scores as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Keys to hide in texts, and to ask for.
#[derive(Debug, Args)]
struct Passkeys {
    /// Also hide a key in filler text of each length and ask for it at the end, N times at each
    /// depth; --svg draws the share of keys that were found
    #[arg(long, value_name = "N")]
    passkeys: Option<usize>,
    /// Number of depths, from the beginning of the text to its end
    #[arg(long, value_name = "N", requires = "passkeys")]
    #[arg(default_value_t = Passkey::default().depths)]
    depths: usize,
    /// Sentence that states the key, with {key} in its place
    #[arg(long, value_name = "TEXT", requires = "passkeys")]
    #[arg(default_value_t = Passkey::default().statement)]
    statement: String,
    /// Question at the end, which the key continues
    #[arg(long, value_name = "TEXT", requires = "passkeys")]
    #[arg(default_value_t = Passkey::default().question)]
    question: String,
    /// Characters that keys are made of
    #[arg(long, value_name = "TEXT", requires = "passkeys")]
    #[arg(default_value_t = Passkey::default().characters)]
    key_characters: String,
    /// Number of characters of a key
    #[arg(long, value_name = "N", requires = "passkeys")]
    #[arg(default_value_t = Passkey::default().key_length)]
    key_length: usize,
    /// Seed of keys and filler
    #[arg(long, value_name = "N", requires = "passkeys")]
    #[arg(default_value_t = Passkey::default().seed)]
    passkey_seed: u64,
}

impl Extrapolate {
    /// Returns the settings of the requested measurements.
    pub(crate) fn settings(&self) -> ExtrapolationSettings {
        let given = &self.passkeys;
        let passkey = given.passkeys.map(|keys| Passkey {
            depths: given.depths,
            keys,
            characters: given.key_characters.clone(),
            key_length: given.key_length,
            statement: given.statement.clone(),
            question: given.question.clone(),
            seed: given.passkey_seed,
        });
        ExtrapolationSettings { lengths: self.lengths.clone(), passkey }
    }
}
