//! What becomes of images before a model sees them: `preprocessor_config.json`, between a folder of
//! the library Transformers and `[data.images]`.
//!
//! A folder without the file has 0.5 for mean and deviation, which Transformers takes for a ViT
//! then.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;
use taper_data::ImagesConfig;

use super::export::write_json;
use super::import::read_keys;

/// The file of the settings.
const PREPROCESSOR: &str = "preprocessor_config.json";

/// The keys that change what a model sees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Preprocessor {
    image_mean: Vec<f64>,
    image_std: Vec<f64>,
    do_normalize: bool,
    do_rescale: bool,
    rescale_factor: f64,
}

impl Default for Preprocessor {
    fn default() -> Self {
        let (image_mean, image_std) = (vec![0.5; 3], vec![0.5; 3]);
        let rescale_factor = 1.0 / 255.0;
        Self { image_mean, image_std, do_normalize: true, do_rescale: true, rescale_factor }
    }
}

impl Preprocessor {
    /// The settings of the folder `source`.
    ///
    /// # Errors
    /// When the file is damaged.
    pub(super) fn read(source: &Path) -> Result<Self> {
        let path = source.join(PREPROCESSOR);
        if !path.exists() {
            return Ok(Self::default());
        }
        serde_json::from_value(read_keys(&path)?)
            .with_context(|| format!("{}: not of an image processor", path.display()))
    }

    /// Puts the settings into `images`, whose size and channels are set.
    ///
    /// # Errors
    /// When images cannot be prepared so here, with the key.
    pub(super) fn describe(&self, images: &mut ImagesConfig) -> Result<()> {
        if !self.do_rescale || (self.rescale_factor * 255.0 - 1.0).abs() > 1e-9 {
            bail!("{PREPROCESSOR}: do_rescale is false or rescale_factor is not 1/255");
        }
        let channels = images.channels;
        let (mean, deviation) = match self.do_normalize {
            true => (self.image_mean.clone(), self.image_std.clone()),
            false => (vec![0.0; channels], vec![1.0; channels]),
        };
        images.mean = for_channels(mean, channels);
        images.deviation = for_channels(deviation, channels);
        Ok(())
    }
}

/// One number for each channel; three that are all alike become as many as there are channels.
fn for_channels(numbers: Vec<f64>, channels: usize) -> Vec<f64> {
    let alike = numbers.windows(2).all(|pair| pair[0] == pair[1]);
    match numbers.first() {
        Some(&first) if alike => vec![first; channels],
        _ => numbers,
    }
}

/// Writes the settings of `images` into `folder`.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write_preprocessor(images: &ImagesConfig, folder: &Path) -> Result<()> {
    let settings = json!({
        "image_processor_type": "ViTImageProcessor",
        "do_normalize": true,
        "do_rescale": true,
        "do_resize": true,
        "image_mean": images.mean,
        "image_std": images.deviation,
        "resample": 2,
        "rescale_factor": 1.0 / 255.0,
        "size": { "height": images.size, "width": images.size },
    });
    write_json(&folder.join(PREPROCESSOR), &settings)
}
