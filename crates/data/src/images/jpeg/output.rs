//! Converts components to pixels. Components with fewer samples are interpolated by libjpeg's
//! triangle filter (`jdsample.c`), and colours are converted to red, green and blue (`jdcolor.c`).

use super::{Colours, Component, Decoder};

/// Pixels of the picture, row by row: grey, or red, green and blue.
pub(super) fn pixels(decoder: &Decoder, colours: Colours) -> Vec<u8> {
    let (width, height) = (decoder.width, decoder.height);
    if colours == Colours::Grey {
        let rows = (0..height).map(|row| &decoder.components[0].row(row)[..width]);
        return rows.collect::<Vec<_>>().concat();
    }
    let mut pixels = Vec::with_capacity(3 * width * height);
    for row in 0..height {
        let rows: Vec<Vec<u8>> =
            decoder.components.iter().map(|one| one.spread(decoder, row)).collect();
        let pixel = |at: usize| {
            let three = [rows[0][at], rows[1][at], rows[2][at]];
            match colours {
                Colours::YCbCr => from_y_cb_cr(three),
                Colours::Cmyk => from_inks(three, rows[3][at]),
                Colours::Ycck => from_inks(from_y_cb_cr(three).map(|ink| 255 - ink), rows[3][at]),
                Colours::Rgb | Colours::Grey => three,
            }
        };
        pixels.extend((0..width).flat_map(pixel));
    }
    pixels
}

/// Converts a pixel from YCbCr to red, green and blue. The factors are fixed-point numbers with 16
/// fraction bits, as in libjpeg.
fn from_y_cb_cr([y, cb, cr]: [u8; 3]) -> [u8; 3] {
    let [y, cb, cr] = [i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128];
    const HALF: i32 = 1 << 15;
    let red = y + ((91_881 * cr + HALF) >> 16);
    let green = y + ((-22_554 * cb - 46_802 * cr + HALF) >> 16);
    let blue = y + ((116_130 * cb + HALF) >> 16);
    [red, green, blue].map(|value| value.clamp(0, 255) as u8)
}

/// Converts a pixel of four inks (CMYK) to red, green and blue, as Pillow does. Adobe's programs
/// store the inks inverted.
fn from_inks(inks: [u8; 3], black: u8) -> [u8; 3] {
    inks.map(|ink| {
        let product = u32::from(255 - ink) * u32::from(black) + 128;
        black.saturating_sub((((product >> 8) + product) >> 8) as u8)
    })
}

impl Component {
    /// Samples of the component's row `row`. If the component has no such row, these are the
    /// samples of its last row.
    fn row(&self, row: usize) -> &[u8] {
        let start = row.min(self.height - 1) * 8 * self.blocks_across;
        &self.samples[start..start + self.width]
    }

    /// Samples of the component for each pixel of a row of the picture, interpolated.
    fn spread(&self, decoder: &Decoder, row: usize) -> Vec<u8> {
        let across = decoder.most_across / self.across;
        let down = decoder.most_down / self.down;
        // If the picture has twice as many rows as the component, each row of the picture lies
        // between two rows of the component: a near one and a far one.
        let near = row / 2;
        let far = if row.is_multiple_of(2) { near.saturating_sub(1) } else { near + 1 };
        match (across, down) {
            (1, 1) => self.row(row).to_vec(),
            (2, 1) if self.width > 2 => across_twice(self.row(row)),
            (1, 2) => {
                let bias = 1 + (row % 2) as u32;
                let pairs = self.row(near).iter().zip(self.row(far));
                let mixed = |(&near, &far): (&u8, &u8)| {
                    ((3 * u32::from(near) + u32::from(far) + bias) >> 2) as u8
                };
                pairs.map(mixed).collect()
            }
            (2, 2) if self.width > 2 => {
                let pairs = self.row(near).iter().zip(self.row(far));
                let sums = pairs.map(|(&near, &far)| 3 * u32::from(near) + u32::from(far));
                both_twice(&sums.collect::<Vec<_>>())
            }
            _ => {
                let samples = self.row(row / down);
                (0..decoder.width).map(|at| samples[at / across]).collect()
            }
        }
    }
}

/// Doubles the number of samples in a row. Each new sample is three quarters of the nearest old
/// sample plus one quarter of the second nearest one.
fn across_twice(samples: &[u8]) -> Vec<u8> {
    let value = |at: usize| u32::from(samples[at.min(samples.len() - 1)]);
    let doubled = |at: usize| {
        let weighted = 3 * value(at);
        let left = (weighted + value(at.saturating_sub(1)) + 1) >> 2;
        let right = (weighted + value(at + 1) + 2) >> 2;
        [left as u8, right as u8]
    };
    (0..samples.len()).flat_map(doubled).collect()
}

/// Doubles the number of samples in a row, with the same weights as [`across_twice`]. Each of
/// `sums` is already a weighted sum of samples in two rows; its weights add up to 4.
fn both_twice(sums: &[u32]) -> Vec<u8> {
    let value = |at: usize| sums[at.min(sums.len() - 1)];
    let doubled = |at: usize| {
        let weighted = 3 * value(at);
        let left = (weighted + value(at.saturating_sub(1)) + 8) >> 4;
        let right = (weighted + value(at + 1) + 7) >> 4;
        [left as u8, right as u8]
    };
    (0..sums.len()).flat_map(doubled).collect()
}
