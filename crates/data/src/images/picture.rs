//! PNG and JPEG files as pixels of the size and the channels that a model reads.

use std::io::{BufRead, BufReader, Cursor, Seek};
use std::path::Path;

use image::imageops::FilterType;
use image::{DynamicImage, ImageReader, Limits};

use crate::files::{not_a_file, write_atomically};
use crate::{Error, ImagesConfig, Result};

/// A picture may be as wide and as high as this, and take so many bytes while it is decoded.
const MOST_PIXELS: u32 = 16_384;
const MOST_BYTES: u64 = 256 << 20;

/// The pixels of one image: channel by channel, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pixels(pub Vec<u8>);

impl Pixels {
    /// Decodes a PNG or JPEG file, scaled to the size of `settings`, in its channels.
    ///
    /// Scaling goes to the square whatever the shape was, by triangles as wide as a pixel of the
    /// result.
    ///
    /// # Errors
    ///
    /// If the file is neither, is damaged, or is larger than 16,384 pixels on a side.
    pub fn of_file(path: &Path, settings: &ImagesConfig) -> Result<Self> {
        if let Some(kind) = not_a_file(path) {
            let message = format!("is {kind}, where an image is expected");
            return Err(Error::Malformed { path: path.to_owned(), message });
        }
        let file = std::fs::File::open(path).map_err(|error| Error::io(path, error))?;
        Self::read(BufReader::new(file), path, settings)
    }

    /// As [`Pixels::of_file`], of the bytes of such a file.
    ///
    /// # Errors
    ///
    /// As for [`Pixels::of_file`].
    pub fn of_bytes(bytes: &[u8], settings: &ImagesConfig) -> Result<Self> {
        Self::read(Cursor::new(bytes), Path::new("the picture"), settings)
    }

    fn read(file: impl BufRead + Seek, path: &Path, settings: &ImagesConfig) -> Result<Self> {
        let malformed = |message: String| Error::Malformed { path: path.to_owned(), message };
        let mut reader =
            ImageReader::new(file).with_guessed_format().map_err(|error| Error::io(path, error))?;
        let mut limits = Limits::default();
        limits.max_image_width = Some(MOST_PIXELS);
        limits.max_image_height = Some(MOST_PIXELS);
        limits.max_alloc = Some(MOST_BYTES);
        reader.limits(limits);
        let picture = reader
            .decode()
            .map_err(|error| malformed(format!("is no PNG or JPEG that can be read: {error}")))?;
        Ok(Self::of_picture(picture, settings))
    }

    fn of_picture(picture: DynamicImage, settings: &ImagesConfig) -> Self {
        let size = settings.size as u32;
        let scaled = |picture: DynamicImage| match (picture.width(), picture.height()) {
            (width, height) if [width, height] == [size; 2] => picture,
            _ => picture.resize_exact(size, size, FilterType::Triangle),
        };
        if settings.channels == 1 {
            return Self(
                scaled(DynamicImage::ImageLuma8(picture.to_luma8())).to_luma8().into_raw(),
            );
        }
        let interleaved = scaled(DynamicImage::ImageRgb8(picture.to_rgb8())).to_rgb8().into_raw();
        let channel = |channel| interleaved.iter().skip(channel).step_by(3).copied();
        Self((0..3).flat_map(channel).collect())
    }
}

/// Writes rows of red, green and blue as a PNG file.
///
/// # Errors
///
/// If there are not as many values as the picture has, or the file cannot be written.
pub fn write_png(path: &Path, width: u32, height: u32, values: &[u8]) -> Result<()> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::write_buffer_with_format(
        &mut bytes,
        values,
        width,
        height,
        image::ExtendedColorType::Rgb8,
        image::ImageFormat::Png,
    )
    .map_err(|error| Error::io(path, std::io::Error::other(error)))?;
    write_atomically(path, bytes.get_ref())
}
