//! Converts a picture of any shape to the square that a model reads: resizes the picture, then
//! crops its middle. The results are those of the image processors of Transformers.

use super::raster::Raster;
use crate::{ImagesConfig, Resize};

/// Largest width and height of a resized picture, in pixels.
const LONGEST_SIDE: usize = 1 << 16;
/// Largest number of pixels of a resized picture.
const MOST_PIXELS: usize = 1 << 26;

/// Prepares a picture for a model.
///
/// # Errors
///
/// If the resized picture is too large, or the prepared picture does not have the size that the
/// model reads. The error describes the fault.
pub(super) fn prepared(picture: Raster, settings: &ImagesConfig) -> Result<Raster, String> {
    let (height, width) = resized_shape((picture.height, picture.width), settings);
    let sides = 1..=LONGEST_SIDE;
    if !sides.contains(&height) || !sides.contains(&width) || height * width > MOST_PIXELS {
        return Err(format!(
            "has {} x {} pixels, which data.images.resize turns into {height} x {width}: leave the \
             image out, or cut it to another shape",
            picture.height, picture.width
        ));
    }
    let mut picture = picture.resized(height, width, settings.resample);
    let size = settings.size;
    if settings.center_crop {
        picture = picture.middle(size, size);
    }
    if (picture.height, picture.width) == (size, size) {
        return Ok(picture);
    }
    Err(format!(
        "comes out with {} x {} pixels, but the model reads {size} x {size}: set \
         data.images.center_crop = true or data.images.resize = \"stretch\", or bring the picture \
         into shape",
        picture.height, picture.width
    ))
}

/// Height and width of a picture after resizing, rounded as in Transformers.
fn resized_shape((height, width): (usize, usize), settings: &ImagesConfig) -> (usize, usize) {
    let whole = |share: f64| share as usize;
    let (first, second) = match settings.resize_to[..] {
        [] => (settings.size, None),
        [first] => (first, None),
        [first, second, ..] => (first, Some(second)),
    };
    match settings.resize {
        Resize::None => (height, width),
        Resize::Stretch => (first, second.unwrap_or(first)),
        Resize::Fit => {
            let [height, width] = [height as f64, width as f64];
            let scale = (first as f64 / height).min(second.unwrap_or(first) as f64 / width);
            (whole(height * scale), whole(width * scale))
        }
        Resize::ShortestEdge => {
            let (shorter, longer) = (height.min(width), height.max(width));
            let mut edge = first;
            let mut exact = first as f64;
            if let Some(most) = second
                && longer as f64 / shorter as f64 * exact > most as f64
            {
                exact = most as f64 * shorter as f64 / longer as f64;
                edge = exact.round_ties_even() as usize;
            }
            let other = match (second, edge == shorter) {
                (Some(_), true) => longer,
                _ => whole(exact * longer as f64 / shorter as f64),
            };
            if width <= height { (other, edge) } else { (edge, other) }
        }
    }
}
