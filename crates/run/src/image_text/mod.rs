//! Images beside text: captions that a model writes, and which text belongs to which image.

mod describe;
mod matching;

use std::path::Path;

use anyhow::Result;
use taper_data::{ImagesConfig, Pixels};

pub use describe::describe_images;
pub(crate) use describe::{caption_search, describe};
pub use matching::match_images;
pub(crate) use matching::{Placed, PlacedLabels, recalls};

/// The values of a PNG or JPEG file as models of images read them.
fn values_of(file: &Path, settings: &ImagesConfig) -> Result<Vec<u32>> {
    Ok(Pixels::of_file(file, settings)?.0.into_iter().map(u32::from).collect())
}
