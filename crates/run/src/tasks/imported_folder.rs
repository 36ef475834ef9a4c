//! Settings of a task that are read from a model folder of the library Transformers, for the recipe
//! (configuration) of the imported model. The shape of the model is read elsewhere.

use anyhow::Result;
use taper_data::ImagesConfig;

use crate::config::RunConfig;

/// Model folder from which a task reads its settings, after the section `[model]` of the recipe has
/// been set.
pub trait ImportedFolder {
    /// True if the folder has weights for a parameter of the model of `recipe`.
    fn has(&self, recipe: &RunConfig, parameter: &str) -> bool;

    /// Whether the model in the folder has an output layer.
    fn has_head(&self) -> bool;

    /// Labels of a classifier, in the order of its classes. `head`: name of the parameter with one
    /// row for each class.
    ///
    /// # Errors
    /// If a key of `config.json` is not valid. The message names the key.
    fn labels(&self, recipe: &RunConfig, head: &str) -> Result<Vec<String>>;

    /// Sets size, channels and scaling of images in `images` as the folder describes them.
    ///
    /// # Errors
    /// If a file is damaged, or has a setting that is not supported. The message names the file.
    fn describe_images(&self, images: &mut ImagesConfig) -> Result<()>;

    /// Sets the keys of the recipe for search or text generation to the values in the folder.
    ///
    /// # Errors
    /// If a key in the folder has a value that is not supported. The message names the key.
    fn describe_search(&self, recipe: &mut RunConfig) -> Result<()>;
}
