//! Folders of [CTranslate2](https://opennmt.net/CTranslate2), an engine in C++ for translation and
//! generation on CPUs and GPUs.
//!
//! A folder has `model.bin` with the weights and the shape ([`binary`], [`layers`]), and
//! `config.json` with special tokens, next to vocabularies as lists of tokens ([`tokens`]). The
//! engine reads tokens, not text, so the tokenizers of the run are copied too. Models that the
//! engine does not compute like Taper are refused ([`limits`]).

mod binary;
mod layers;
mod limits;
mod tokens;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use taper_model::{LanguageModel, TranslationModel};

use crate::folder::RunFolder;
use crate::folder::files::{put_in_place, require_free, with_suffix};
use crate::folders::Exported;
use crate::tasks::{TaskEntry, TaskModel, entry, without_adapters};
use crate::{LoadSettings, LoadedRun, model_card};

/// File of the weights and the shape.
const MODEL: &str = "model.bin";
/// File of the special tokens.
const CONFIG: &str = "config.json";

/// Types of the weights in a folder, named as in the converters of CTranslate2. The engine converts
/// the values when it loads a folder for another `compute_type`.
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

/// Writes the run at `root`, with the weights that `settings` name, into `folder`, which must be
/// empty or not exist.
///
/// # Errors
/// When the run cannot be loaded, CTranslate2 has no such model, or the folder cannot be written.
pub fn export_run(
    root: &Path,
    settings: &LoadSettings,
    quantization: Quantization,
    folder: &Path,
) -> Result<Exported> {
    let task = RunFolder::open(root)?.load_config(&settings.overrides)?.task;
    match entry(task) {
        TaskEntry { translates: true, .. } => {
            export::<TranslationModel>(&LoadedRun::open(root, settings)?, quantization, folder)
        }
        TaskEntry { generates: true, .. } => {
            export::<LanguageModel>(&LoadedRun::open(root, settings)?, quantization, folder)
        }
        _ => bail!(
            "a run of the task {task} cannot be exported for CTranslate2: runs can of the tasks {} \
             and {}",
            TranslationModel::TASK,
            LanguageModel::TASK
        ),
    }
}

/// Writes a loaded run like [`export_run`].
///
/// # Errors
/// See [`export_run`].
pub fn export<M: TaskModel>(
    run: &LoadedRun<M>,
    quantization: Quantization,
    folder: &Path,
) -> Result<Exported> {
    limits::require_expressed(&without_adapters(&run.config))?;
    let tokens = tokens::Tokens::of(&run.config, &run.tokenizers)?;
    let variables = layers::variables(&run.config, run.model.parameters(), &tokens.never_written)?;
    require_free(folder)?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(MODEL);
    let partial = with_suffix(&path, ".partial");
    let shown = || format!("cannot write {}", path.display());
    let write = || -> Result<()> {
        let mut file = BufWriter::new(File::create(&partial).with_context(shown)?);
        variables.write(quantization, &mut file).with_context(shown)?;
        file.flush().with_context(shown)?;
        put_in_place(file.get_ref(), &partial, &path).with_context(shown)
    };
    if let Err(error) = write() {
        // The failure is reported; the part that was written would only take up space.
        let _ = fs::remove_file(&partial);
        return Err(error);
    }
    tokens.write(folder, &run.tokenizers)?;
    let usage = tokens.usage(&run.config, &run.tokenizers);
    model_card::write(run, folder, &model_card::Library { name: "ctranslate2", usage })?;
    tokens.write_config(&run.config, &folder.join(CONFIG))?;
    Ok(Exported { checkpoint: run.checkpoint.clone(), step: run.state.step })
}
