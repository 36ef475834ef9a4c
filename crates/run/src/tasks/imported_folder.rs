//! Settings of a task in a folder of the library Transformers, apart from the model's shape.

use anyhow::Result;
use taper_data::ImagesConfig;

use crate::config::RunConfig;

/// Folder of a model from which a task takes its settings, after `[model]` has been set.
pub trait ImportedFolder {
    /// True if the folder has weights for a parameter of the model of `recipe`.
    fn has(&self, recipe: &RunConfig, parameter: &str) -> bool;

    /// True if the model in the folder has a head.
    fn has_head(&self) -> bool;

    /// Labels of a classifier, in the order of its classes; `head` is the name of the parameter
    /// that has one row for each class.
    ///
    /// # Errors
    /// When a key of `config.json` is damaged; the message names it.
    fn labels(&self, recipe: &RunConfig, head: &str) -> Result<Vec<String>>;

    /// Sets `images` to the preparation of images that the folder describes.
    ///
    /// # Errors
    /// When a file is damaged, or requests something unsupported; the message names it.
    fn describe_images(&self, images: &mut ImagesConfig) -> Result<()>;

    /// Sets the search for translations, or the generation of a language model, to the folder's.
    ///
    /// # Errors
    /// When a key of the folder requests something unsupported; the message names it.
    fn describe_search(&self, recipe: &mut RunConfig) -> Result<()>;
}
