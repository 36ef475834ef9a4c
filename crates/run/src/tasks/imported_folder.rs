//! Properties of a task that a folder of the library Transformers describes.

use anyhow::Result;
use taper_data::ImagesConfig;

use crate::config::RunConfig;

/// Folder of a model that gives a task its settings, after the keys of `[model]`.
pub trait ImportedFolder {
    /// Whether the folder has weights for a parameter of the model of `recipe`.
    fn has(&self, recipe: &RunConfig, parameter: &str) -> bool;

    /// Whether the model in the folder has a head.
    fn has_head(&self) -> bool;

    /// Labels of a classifier, in the order of its classes; `head` is the parameter with one row
    /// for each.
    ///
    /// # Errors
    /// When a key of `config.json` is damaged; the message names it.
    fn labels(&self, recipe: &RunConfig, head: &str) -> Result<Vec<String>>;

    /// Sets the preparation of images.
    ///
    /// # Errors
    /// When a file is damaged, or requests something unsupported; the message names it.
    fn describe_images(&self, images: &mut ImagesConfig) -> Result<()>;

    /// Sets the search for translations, or the generation of a language model.
    ///
    /// # Errors
    /// When a key of the folder requests something unsupported; the message names it.
    fn describe_search(&self, recipe: &mut RunConfig) -> Result<()>;
}
