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
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// The folder that is made
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) weights: Weights,
}
