//! Export of models to folders for [CTranslate2](https://opennmt.net/CTranslate2), a program in C++
//! (an engine) for translation and generation on CPUs and GPUs.
//!
//! A folder has `model.bin` with the weights and the architecture ([`binary`], [`layers`]),
//! `config.json` with special tokens, and vocabularies as lists of tokens ([`tokens`]). The engine
//! reads tokens and not text, so the folder also has the tokenizers of the exported run. Models
//! that the engine does not compute in the same way as Taper are refused ([`limits`]).

mod binary;
mod layers;
mod limits;
mod tokens;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Engine;
use super::limits::require_expressed;
use crate::folder::files::{require_free, write_whole};
use crate::folders::Exported;
use crate::tasks::{TaskModel, without_adapters};
use crate::{LoadedRun, model_card};

/// File with the weights and the architecture of the model.
const MODEL: &str = "model.bin";
/// File with the special tokens and some settings of the model.
const CONFIG: &str = "config.json";

/// Number types of the weights in a folder. The names are those that the converters of CTranslate2
/// use. If the engine loads the folder with another `compute_type`, it converts the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quantization {
    /// All values as 32-bit floating-point numbers.
    #[default]
    Float32,
    /// All values as 16-bit floating-point numbers of IEEE 754.
    Float16,
    /// All values in bf16.
    Bfloat16,
    /// Matrices in int8, each row with the scale 127 / max |w|; other values as 32-bit
    /// floating-point numbers.
    Int8,
    /// Matrices in int8; other values as 16-bit floating-point numbers of IEEE 754.
    Int8Float16,
    /// Matrices in int8; other values in bf16.
    Int8Bfloat16,
}

/// The engine CTranslate2. Exports have weights of this type.
#[derive(Debug, Clone, Copy)]
pub struct Ctranslate2(pub Quantization);

impl Engine for Ctranslate2 {
    const NAME: &'static str = "CTranslate2";

    fn export<M: TaskModel>(&self, run: &LoadedRun<M>, folder: &Path) -> Result<Exported> {
        let config = &without_adapters(&run.config);
        require_expressed(config, Self::NAME, &["output_scale"], limits::refused(config))?;
        let tokens = tokens::Tokens::from_run(&run.config, &run.tokenizers)?;
        let parameters = run.model.parameters();
        let variables = layers::variables(&run.config, parameters, &tokens.never_written)?;
        require_free(folder)?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        write_whole(&folder.join(MODEL), |file| variables.write(self.0, file))?;
        tokens.write(folder, &run.tokenizers)?;
        let usage = tokens.usage(&run.config, &run.tokenizers);
        model_card::write(run, folder, &model_card::Library { name: "ctranslate2", usage })?;
        tokens.write_config(&run.config, &folder.join(CONFIG))?;
        Ok(Exported { checkpoint: run.checkpoint.clone(), step: run.state.step })
    }
}
