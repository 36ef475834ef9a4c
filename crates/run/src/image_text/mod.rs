//! Images beside text: captions that a model writes, and which text belongs to which image.

mod describe;
mod matching;

use std::path::Path;

use anyhow::Result;
use taper_data::{ImagesConfig, Pixels};

pub(crate) use describe::{caption_search, describe};
pub use describe::{describe_images, describe_pixels};
pub(crate) use matching::{Placed, PlacedLabels, recalls};
pub use matching::{match_images, match_pixels};

/// The values of a PNG or JPEG file as models of images read them.
fn values_of(file: &Path, settings: &ImagesConfig) -> Result<Vec<u32>> {
    Ok(values(Pixels::of_file(file, settings)?))
}

/// The values of an image as models of images read them.
fn values(pixels: Pixels) -> Vec<u32> {
    pixels.0.into_iter().map(u32::from).collect()
}
