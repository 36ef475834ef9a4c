//! Model whose training continues.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use taper_data::TokenizerPair;
use taper_trainer::read_state;

use crate::advice::{Action, Advice};
use crate::config::{RunConfig, trained_with};
use crate::event::RunObserver;
use crate::folder::RunFolder;
use crate::folders::{self, ImportSettings};

/// File by which a model folder of the library Transformers is recognised.
const SHAPE: &str = "config.json";

/// Model whose training continues.
pub(super) struct Parent {
    /// Run or checkpoint folder, as the user named it.
    pub(super) path: PathBuf,
    /// Recipe with which the model's weights were trained.
    pub(super) config: RunConfig,
    pub(super) tokenizers: TokenizerPair,
}

impl Parent {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let (run, checkpoint) = RunFolder::of_weights(path)?;
        let written = run.load_config(&[])?;
        let config = trained_with(&read_state(&checkpoint)?, &written)?.unwrap_or(written);
        let tokenizers = config.task.load_tokenizers(run.root())?;
        Ok(Self { path: path.to_owned(), config, tokenizers })
    }

    /// Name for the recipe (configuration) of the further training.
    pub(super) fn name(&self) -> String {
        let plain = |name: &str| name.replace(['/', '\\', '\0', ' '], "-");
        if self.config.name.is_empty() { "run".to_owned() } else { plain(&self.config.name) }
    }
}

/// Path of a run or checkpoint with the weights at `path`. If `path` is a run or a checkpoint,
/// `path` is returned. If it is a model folder of the library Transformers, it is imported as the
/// run `target`, unless this was done before, and `target` is returned.
///
/// # Errors
/// If `path` is neither a run, a checkpoint nor a model folder, if it cannot be imported, or if
/// `target` exists and is not an import of `path` with these settings.
pub fn run_of(
    path: &Path,
    target: &Path,
    settings: &ImportSettings,
    observer: &mut dyn RunObserver,
) -> Result<PathBuf> {
    if RunFolder::of_weights(path).is_ok() {
        return Ok(path.to_owned());
    }
    if !path.join(SHAPE).is_file() {
        // The first error says why the folder is not a run.
        RunFolder::of_weights(path).with_context(|| {
            format!("{}: neither a run nor a folder with {SHAPE}", path.display())
        })?;
    }
    let folder = RunFolder::new(target);
    if !folder.exists() {
        folders::import_with(path, &folder, settings, observer)?;
        return Ok(target.to_owned());
    }
    let (run, checkpoint) = RunFolder::of_weights(target)?;
    let origin = read_state(&checkpoint)?.parent.map(|parent| parent.path);
    let data = run.load_config(&[])?.data;
    let speaks = |asked: &Option<String>, language: &String| {
        asked.as_ref().is_none_or(|one| one == language)
    };
    let is_it = origin.is_some() && origin == path.canonicalize().ok();
    if !is_it
        || !speaks(&settings.source_language, &data.source_language)
        || !speaks(&settings.target_language, &data.target_language)
    {
        let error = anyhow!(
            "{} exists already, and is not an import of {} with these settings",
            target.display(),
            path.display()
        );
        let import = Action::Import(path.to_owned());
        return Err(Advice::new(import, "makes a run to be fine-tuned").about(error));
    }
    Ok(target.to_owned())
}
