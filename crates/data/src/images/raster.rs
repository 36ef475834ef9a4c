//! A decoded picture of any shape, in grey or colour, before it is converted for a model.

/// The pixels of a picture, row by row. The channels of a pixel are next to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Raster {
    pub(super) height: usize,
    pub(super) width: usize,
    /// Number of channels: 1 for grey, 3 for red, green and blue.
    pub(super) channels: usize,
    pub(super) values: Vec<u8>,
}

impl Raster {
    /// Turns the picture upright. `orientation` is the number that EXIF uses, from 1 to 8.
    pub(super) fn turned(self, orientation: u32) -> Self {
        let swaps = orientation > 4;
        let mirrors_rows = matches!(orientation, 3 | 4 | 6 | 7);
        let mirrors_columns = matches!(orientation, 2 | 3 | 7 | 8);
        if orientation == 1 {
            return self;
        }
        let Self { height, width, channels, values } = self;
        let stored_at = |row: usize, column: usize| {
            let (row, column) = if swaps { (column, row) } else { (row, column) };
            let row = if mirrors_rows { height - 1 - row } else { row };
            let column = if mirrors_columns { width - 1 - column } else { column };
            (row * width + column) * channels
        };
        let (new_height, new_width) = if swaps { (width, height) } else { (height, width) };
        let mut turned = Vec::with_capacity(values.len());
        for row in 0..new_height {
            for column in 0..new_width {
                let at = stored_at(row, column);
                turned.extend_from_slice(&values[at..at + channels]);
            }
        }
        Self { height: new_height, width: new_width, channels, values: turned }
    }

    /// Converts the picture as Pillow does: to grey if `channels` is 1, to red, green and blue if
    /// it is 3.
    pub(super) fn in_channels(self, channels: usize) -> Self {
        let values = match (channels, self.channels) {
            (1, 3) => self.values.as_chunks().0.iter().copied().map(grey).collect(),
            (3, 1) => self.values.iter().flat_map(|&value| [value; 3]).collect(),
            _ => self.values,
        };
        Self { values, channels, ..self }
    }

    /// The middle of the picture, `height` by `width` pixels. Pixels outside the picture are black.
    ///
    /// If the number of pixels to remove or to add is odd, one margin has one pixel more than the
    /// other. The code chooses this margin like the image processors of Transformers that use
    /// Pillow. A larger picture loses the additional pixel on the right or at the bottom; a smaller
    /// picture gets it on the left or at the top. Transformers with torchvision adds it on the
    /// right or at the bottom.
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
