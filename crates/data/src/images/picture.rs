//! Decodes PNG and JPEG files to pixels with the size and the channels that a model reads.

use std::path::Path;

use super::metadata::{is_jpeg, is_whole, orientation};
use super::preparation::prepared;
use super::raster::Raster;
use super::{jpeg, png};
use crate::files::{not_a_file, read_regular};
use crate::{Error, ImagesConfig, Result};

/// Largest width and height of a picture, in pixels.
const MOST_PIXELS: usize = 16_384;
/// Largest number of bytes of a picture's file, and of its decoded pixels.
const MOST_BYTES: usize = 256 << 20;

/// The pixels of one image: channel by channel, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pixels(pub Vec<u8>);

impl Pixels {
    /// Decodes a PNG or JPEG file, applies its orientation, and converts it to the size and
    /// channels of `settings`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is neither a PNG nor a JPEG, or is cut off or damaged. Also if
    /// the picture has more than 16,384 pixels on a side, or if the converted picture does not have
    /// the size that the model reads.
    pub fn of_file(path: &Path, settings: &ImagesConfig) -> Result<Self> {
        if let Some(kind) = not_a_file(path) {
            return Err(malformed(path, format!("is {kind}, where an image is expected")));
        }
        let bytes =
            read_regular(path, MOST_BYTES as u64).map_err(|error| Error::io(path, error))?;
        Self::read(&bytes, path, settings)
    }

    /// Decodes and converts the bytes of a picture file in the same way as [`Pixels::of_file`].
    ///
    /// # Errors
    ///
    /// See [`Pixels::of_file`].
    pub fn of_bytes(bytes: &[u8], settings: &ImagesConfig) -> Result<Self> {
        Self::read(bytes, Path::new("the picture"), settings)
    }

    fn read(bytes: &[u8], path: &Path, settings: &ImagesConfig) -> Result<Self> {
        let raster = turned(bytes, path)?.in_channels(settings.channels);
        let prepared = prepared(raster, settings).map_err(|message| malformed(path, message))?;
        Ok(Self(prepared.planes()))
    }
}

fn malformed(path: &Path, message: String) -> Error {
    Error::Malformed { path: path.to_owned(), message }
}

/// Decodes the bytes of a picture file and turns the picture upright. Errors name `path`.
///
/// # Errors
///
/// If the file is not a PNG or JPEG, or is cut off, damaged or too large.
pub(super) fn turned(bytes: &[u8], path: &Path) -> Result<Raster> {
    if is_jpeg(bytes) && !is_whole(bytes) {
        let message = "is a JPEG that is cut off: its end is missing; fetch or copy it again, or \
                       leave it out";
        return Err(malformed(path, message.to_owned()));
    }
    let decoded = match is_jpeg(bytes) {
        true => jpeg::decoded(bytes, MOST_PIXELS, MOST_BYTES),
        false => png::decoded(bytes, MOST_PIXELS, MOST_BYTES),
    };
    let picture = decoded
        .map_err(|error| malformed(path, format!("is no PNG or JPEG that can be read: {error}")))?;
    Ok(picture.turned(orientation(bytes)))
}
