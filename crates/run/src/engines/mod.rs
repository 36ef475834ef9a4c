//! Export of trained models to other programs (engines) that can translate or generate text,
//! without Python.
//!
//! Each engine is an implementation of [`Engine`]. All engines share the code that decides which
//! tasks can be exported, and the code that refuses a model. If a model is refused, the error names
//! a key of the model's recipe (configuration).

pub mod browser;
pub mod ctranslate2;
mod limits;
pub mod onnx;

use std::path::Path;

use anyhow::{Result, bail};
use taper_data::{Tokenizer, TokenizerPair};
use taper_model::{LanguageModel, TranslationModel};

use crate::folder::RunFolder;
use crate::folders::Exported;
use crate::tasks::{TaskEntry, TaskModel, entry};
use crate::{LoadSettings, LoadedRun};

/// Program or library (engine) that can translate or generate text with models that Taper has
/// trained.
pub trait Engine {
    /// Name of the engine, for people.
    const NAME: &'static str;

    /// Writes a loaded run (trained model with its tokenizers) into `folder`, which must be empty
    /// or not exist.
    ///
    /// # Errors
    /// When the engine cannot compute the model, or the folder cannot be written.
    fn export<M: TaskModel>(&self, run: &LoadedRun<M>, folder: &Path) -> Result<Exported>;
}

/// Writes the run at `root`, with the weights that `settings` select, into `folder` in the format
/// of `engine`. The folder must be empty or not exist.
///
/// # Errors
/// When the run cannot be loaded, its task cannot be exported, the engine cannot compute the model,
/// or the folder cannot be written.
pub fn export_run<E: Engine>(
    root: &Path,
    settings: &LoadSettings,
    engine: &E,
    folder: &Path,
) -> Result<Exported> {
    let task = RunFolder::open(root)?.load_config(&settings.overrides)?.task;
    match entry(task) {
        TaskEntry { translates: true, .. } => {
            let run: LoadedRun = LoadedRun::open(root, settings)?;
            run.require_one_direction()?;
            engine.export(&run, folder)
        }
        TaskEntry { generates: true, .. } => {
            engine.export::<LanguageModel>(&LoadedRun::open(root, settings)?, folder)
        }
        _ => bail!(
            "a run of the task {task} cannot be exported for {}: possible tasks are {} and {}",
            E::NAME,
            TranslationModel::TASK,
            LanguageModel::TASK
        ),
    }
}

/// Tokenizers of a run, each with the name of the file that the Python package `tokenizers` will
/// read it from.
fn tokenizer_files(tokenizers: &TokenizerPair) -> Vec<(&'static str, &Tokenizer)> {
    match tokenizers.is_joint() {
        true => vec![("tokenizer.json", tokenizers.target())],
        false => vec![
            ("tokenizer.source.json", tokenizers.source()),
            ("tokenizer.target.json", tokenizers.target()),
        ],
    }
}
