//! A decoded picture of any shape, in grey or colour, before it is converted for a model.

use image::DynamicImage;

/// The pixels of a picture, row by row. The channels of a pixel are next to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Raster {
    pub(super) height: usize,
    pub(super) width: usize,
    /// Number of channels, 1 or 3.
    pub(super) channels: usize,
    pub(super) values: Vec<u8>,
}

impl Raster {
    /// Converts a picture as Pillow does: to grey if `channels` is 1, to red, green and blue if it
    /// is 3.
    ///
    /// Transparency is dropped, not blended. The upper 8 bits of 16-bit values are kept, as in
    /// Pillow for colours. Pillow clips 16-bit grey at 255 instead, which makes most pictures
    /// white.
    pub(super) fn from_picture(picture: DynamicImage, channels: usize) -> Self {
        let (width, height, color) = (picture.width(), picture.height(), picture.color());
        let stored = usize::from(color.channel_count());
        let is_wide = color.bits_per_pixel() / u16::from(color.channel_count()) == 16;
        let mut values = picture.into_bytes();
        if is_wide {
            let upper = |pair: &[u8; 2]| (u16::from_ne_bytes(*pair) >> 8) as u8;
            values = values.as_chunks().0.iter().map(upper).collect();
        }
        let pixels = values.chunks_exact(stored);
        // Both grey and colours may be followed by an alpha channel.
        let values = match (channels, stored < 3) {
            (1, true) => pixels.map(|pixel| pixel[0]).collect(),
            (1, false) => pixels.map(|pixel| grey([pixel[0], pixel[1], pixel[2]])).collect(),
            (_, true) => pixels.flat_map(|pixel| [pixel[0]; 3]).collect(),
            (_, false) => pixels.flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
        };
        Self { height: height as usize, width: width as usize, channels, values }
    }

    /// The middle of the picture, `height` by `width` pixels. Pixels outside the picture are black.
    ///
    /// If the two margins together have an odd number of pixels, the additional pixel is on the
    /// right or at the bottom, as in `center_crop` of Transformers without torchvision.
    pub(super) fn middle(self, height: usize, width: usize) -> Self {
        let start = |from: usize, to: usize| (from as isize - to as isize).div_euclid(2);
        let (top, left) = (start(self.height, height), start(self.width, width));
        let inside = |at: usize, start: isize, end: usize| {
            usize::try_from(at as isize + start).ok().filter(|&at| at < end)
        };
        let channels = self.channels;
        let mut values = vec![0; height * width * channels];
        for (row, pixels) in values.chunks_exact_mut(width * channels).enumerate() {
            let Some(from_row) = inside(row, top, self.height) else { continue };
            for (column, pixel) in pixels.chunks_exact_mut(channels).enumerate() {
                if let Some(from_column) = inside(column, left, self.width) {
                    let at = (from_row * self.width + from_column) * channels;
                    pixel.copy_from_slice(&self.values[at..at + channels]);
                }
            }
        }
        Self { height, width, values, ..self }
    }

    /// The values of the first channel, row by row, then those of the next channel.
    pub(super) fn planes(self) -> Vec<u8> {
        if self.channels == 1 {
            return self.values;
        }
        let plane = |channel| self.values.iter().skip(channel).step_by(self.channels).copied();
        (0..self.channels).flat_map(plane).collect()
    }
}

/// Grey value of a colour by Rec. 601, rounded as in Pillow's `convert("L")`.
fn grey([red, green, blue]: [u8; 3]) -> u8 {
    let sum = u32::from(red) * 19_595 + u32::from(green) * 38_470 + u32::from(blue) * 7_471;
    ((sum + 0x8000) >> 16) as u8
}
