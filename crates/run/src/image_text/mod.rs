//! Images and text: captions, and matching of texts and images.

mod describe;
mod figures;
mod matching;

use std::path::Path;

use anyhow::Result;
use taper_data::{ImagesConfig, Pixels};

pub(crate) use describe::{caption_search, describe};
pub use describe::{describe_images, describe_pixels};
pub use figures::{Matches, matches_figure};
pub(crate) use matching::{Placed, PlacedLabels, recalls};
pub use matching::{match_images, match_pixels};

/// Pixel values of a PNG or JPEG file, as a model reads them.
fn values_of(file: &Path, settings: &ImagesConfig) -> Result<Vec<u32>> {
    Ok(values(Pixels::of_file(file, settings)?))
}

/// Pixel values of an image, as a model reads them.
fn values(pixels: Pixels) -> Vec<u32> {
    pixels.0.into_iter().map(u32::from).collect()
}
