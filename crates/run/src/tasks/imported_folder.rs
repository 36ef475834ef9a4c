//! Properties of a task that a folder of the library Transformers describes.

use anyhow::Result;
use taper_data::ImagesConfig;

use crate::config::RunConfig;

/// Folder of a model that a task takes its settings from, after the keys of `[model]`.
pub trait ImportedFolder {
    /// Whether the folder has weights for a parameter of the model of `recipe`.
    fn has(&self, recipe: &RunConfig, parameter: &str) -> bool;

    /// Whether the model in the folder has a head.
    fn has_head(&self) -> bool;

    /// Labels of a classifier, in the order of its classes; `head` is the parameter with a row for
    /// each.
    ///
    /// # Errors
    /// With the key of `config.json` that is damaged.
    fn labels(&self, recipe: &RunConfig, head: &str) -> Result<Vec<String>>;

    /// Sets the preparation of images.
    ///
    /// # Errors
    /// With the file that is damaged, or requests something unsupported.
    fn describe_images(&self, images: &mut ImagesConfig) -> Result<()>;

    /// Sets the search for translations, or how a language model writes.
    ///
    /// # Errors
    /// With the key of the folder that requests something unsupported.
    fn describe_search(&self, recipe: &mut RunConfig) -> Result<()>;
}
