//! Folders of [CTranslate2](https://opennmt.net/CTranslate2), an engine in C++ for translation and
//! generation on CPUs and GPUs.
//!
//! A folder has `model.bin` with the weights and the shape ([`binary`], [`layers`]), `config.json`
//! with special tokens, and vocabularies as lists of tokens ([`tokens`]). The engine reads tokens,
//! not text, so the tokenizers of the run are written, too. Models that the engine does not compute
//! in the same way as Taper are refused ([`limits`]).

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

/// File with the weights and the shape.
const MODEL: &str = "model.bin";
/// File with the special tokens.
const CONFIG: &str = "config.json";

/// Types of the weights in a folder, with the names that the converters of CTranslate2 use. The
/// engine converts the values when it loads a folder with another `compute_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quantization {
    /// All values in 32 bits.
    #[default]
    Float32,
    /// All values in the 16 bits of IEEE 754.
    Float16,
    /// All values in bf16.
    Bfloat16,
    /// Matrices in int8, each row with the scale 127 / max |w|; other values in 32 bits.
    Int8,
    /// Matrices in int8; other values in the 16 bits of IEEE 754.
    Int8Float16,
    /// Matrices in int8; other values in bf16.
    Int8Bfloat16,
}

/// CTranslate2, with weights of the given type.
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
