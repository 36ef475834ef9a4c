//! PNG files: decoding to 8 bits, and writing.

use std::io::Cursor;
use std::path::Path;

use png::{BitDepth, ColorType, Decoder, DecodingError, Encoder, EncodingError, Limits};
use png::{Transformations, Writer};

use super::raster::Raster;
use crate::files::write_atomically;
use crate::{Error, Result};

/// Decodes a PNG with at most `most_side` pixels on a side and at most `most_bytes` in memory. The
/// result has one channel (grey) or three (red, green and blue).
///
/// Transparency is dropped, not blended. Of 16-bit values, the upper 8 bits are kept, as Pillow
/// does for colours. For 16-bit grey this differs from Pillow, which clips at 255 and so makes most
/// pictures white.
///
/// # Errors
///
/// A description, if the file is no PNG, is damaged or too large.
pub(super) fn decoded(bytes: &[u8], most_side: usize, most_bytes: usize) -> Result<Raster, String> {
    let described = |error: DecodingError| error.to_string();
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: most_bytes });
    let header = decoder.read_header_info().map_err(described)?;
    let (width, height) = (header.width as usize, header.height as usize);
    if width.max(height) > most_side {
        return Err(format!(
            "it has {width} x {height} pixels, at most {most_side} a side are read"
        ));
    }
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(described)?;
    let size = reader.output_buffer_size().filter(|&size| size <= most_bytes);
    let mut values = vec![0; size.ok_or("it takes too much memory")?];
    reader.next_frame(&mut values).map_err(described)?;
    let stored = reader.output_color_type().0.samples();
    // An alpha channel may follow the grey value or the three colours.
    let channels = if stored < 3 { 1 } else { 3 };
    if stored > channels {
        values =
            values.chunks_exact(stored).flat_map(|pixel| &pixel[..channels]).copied().collect();
    }
    Ok(Raster { height, width, channels, values })
}

/// Writes a PNG file. `values` are the red, green and blue of each pixel, row by row.
///
/// # Errors
///
/// If the number of values does not match the picture, or the file cannot be written.
pub fn write_png(path: &Path, width: u32, height: u32, values: &[u8]) -> Result<()> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, width, height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(values)?;
        Writer::finish(writer)
    });
    written.map_err(|error: EncodingError| Error::io(path, std::io::Error::other(error)))?;
    write_atomically(path, &bytes)
}
