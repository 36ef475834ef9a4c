//! Arguments of `import` and `export`.

use std::path::PathBuf;

use clap::Args;

use super::Weights;

/// Arguments of `import`.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// A folder with config.json, model.safetensors or pytorch_model.bin, whole or in shards, and,
    /// where it reads text, tokenizer.json
    pub(crate) folder: PathBuf,
    /// Folder of the run that is made
    pub(crate) run: PathBuf,
    /// The folder has adapters of the library PEFT, which change the weights of this run or
    /// checkpoint
    #[arg(long, value_name = "RUN_OR_CHECKPOINT")]
    pub(crate) onto: Option<PathBuf>,
    /// Language that a translation model reads, as its folder calls it, such as eng_Latn, en or
    /// en_XX; a model of several languages needs it
    #[arg(long, value_name = "LANGUAGE", conflicts_with = "onto")]
    pub(crate) source: Option<String>,
    /// Language that it writes
    #[arg(long, value_name = "LANGUAGE", conflicts_with = "onto")]
    pub(crate) target: Option<String>,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// The folder that is made
    pub(crate) folder: PathBuf,
    /// Write the run's adapters alone, as the library PEFT keeps them, and not the model with them
    #[arg(long, conflicts_with = "weight_type")]
    pub(crate) adapters: bool,
    #[command(flatten)]
    pub(crate) weights: Weights,
}
