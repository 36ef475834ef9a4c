//! Resizes pictures. The result is identical to Pillow's, byte for byte, because image models were
//! trained on pictures that Pillow resized.
//!
//! Each value of the result is a weighted mean of the values around its place. A filter determines
//! the weights. If the picture becomes smaller, the filter is stretched (antialiasing). Weights are
//! fixed-point numbers with 22 fraction bits. Rows and columns are resized in two passes, and the
//! values after the first pass are rounded to 8 bits. The code in Pillow is
//! `src/libImaging/Resample.c` and, for the nearest pixel, `Geometry.c`.

use std::f64::consts::PI;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::raster::Raster;

/// Weighting of pixels when a picture is resized: the filters of Pillow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Resampling {
    /// The nearest pixel, filter 0 in Pillow.
    Nearest,
    /// Lanczos's filter over three pixels on each side, filter 1.
    Lanczos,
    /// Triangles, filter 2.
    Bilinear,
    /// Cubic curves over two pixels on each side, filter 3.
    Bicubic,
    /// The plain mean, filter 4.
    Box,
    /// Hamming's window over one pixel on each side, filter 5.
    Hamming,
}

/// Number of fraction bits of a weight.
const PRECISION: u32 = 22;

impl Resampling {
    /// All filters, each at its index in Pillow.
    pub const ALL: [Self; 6] =
        [Self::Nearest, Self::Lanczos, Self::Bilinear, Self::Bicubic, Self::Box, Self::Hamming];

    /// Radius of the filter in pixels, for a picture that is not scaled.
    fn support(self) -> f64 {
        match self {
            Self::Nearest => 0.0,
            Self::Box => 0.5,
            Self::Bilinear | Self::Hamming => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// Weight of a pixel at the signed distance `x`, in pixels, from the centre of the filter.
    fn weight(self, x: f64) -> f64 {
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) };
        let distance = x.abs();
        match self {
            Self::Nearest => 0.0,
            Self::Box => f64::from(x > -0.5 && x <= 0.5),
            Self::Bilinear => (1.0 - distance).max(0.0),
            Self::Hamming if distance >= 1.0 => 0.0,
            Self::Hamming => sinc(distance) * (0.54 + 0.46 * (distance * PI).cos()),
            // Keys's cubic filter with a = -0.5.
            Self::Bicubic if distance < 1.0 => (1.5 * distance - 2.5) * distance * distance + 1.0,
            Self::Bicubic if distance < 2.0 => {
                (((distance - 5.0) * distance + 8.0) * distance - 4.0) * -0.5
            }
            Self::Bicubic => 0.0,
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Self::Lanczos => 0.0,
        }
    }
}

/// The pixels of a row or column that contribute to one pixel of the result, with their weights.
struct Window {
    first: usize,
    weights: Vec<i64>,
}

/// The window of each pixel when `from` pixels are resized to `to` pixels.
fn windows(from: usize, to: usize, by: Resampling) -> Vec<Window> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let support = by.support() * stretch;
    let window = |at: usize| {
        let center = (at as f64 + 0.5) * scale;
        // A cast turns negative numbers into 0, and rounds others down.
        let first = (center - support + 0.5) as usize;
        let end = ((center + support + 0.5) as usize).min(from);
        // Distances are multiplied by this factor, not divided by `stretch`, because Pillow
        // multiplies too, and a division would be rounded differently.
        let narrowing = 1.0 / stretch;
        let weight = |pixel: usize| by.weight((pixel as f64 - center + 0.5) * narrowing);
        let weights: Vec<f64> = (first..end).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let fixed = |weight: f64| {
            let share = if sum == 0.0 { weight } else { weight / sum };
            (share * f64::from(1 << PRECISION)).round() as i64
        };
        Window { first, weights: weights.into_iter().map(fixed).collect() }
    };
    (0..to).map(window).collect()
}

/// Converts a weighted sum to a value of 8 bits.
fn rounded(sum: i64) -> u8 {
    ((sum + (1 << (PRECISION - 1))) >> PRECISION).clamp(0, 255) as u8
}

impl Raster {
    /// Resizes the picture to `height` rows of `width` pixels; both are at least 1.
    pub(super) fn resized(self, height: usize, width: usize, by: Resampling) -> Self {
        if by == Resampling::Nearest {
            return self.of_nearest(height, width);
        }
        // As in Pillow 13, the height is changed first if it loses more than twice as many pixels
        // as the width.
        let [fewer_rows, fewer_columns] =
            [(self.height, height), (self.width, width)].map(|(from, to)| from as i64 - to as i64);
        match fewer_rows > 0 && fewer_rows > 2 * fewer_columns {
            true => self.resized_down(height, by).resized_across(width, by),
            false => self.resized_across(width, by).resized_down(height, by),
        }
    }

    /// Resizes each row to `width` pixels.
    fn resized_across(self, width: usize, by: Resampling) -> Self {
        if width == self.width {
            return self;
        }
        let channels = self.channels;
        let windows = windows(self.width, width, by);
        let mut values = Vec::with_capacity(self.height * width * channels);
        for row in self.values.chunks_exact(self.width * channels) {
            for window in &windows {
                let pixels = row[window.first * channels..].chunks_exact(channels);
                let mut sums = [0; 3];
                for (pixel, weight) in pixels.zip(&window.weights) {
                    for (sum, &value) in sums.iter_mut().zip(pixel) {
                        *sum += i64::from(value) * weight;
                    }
                }
                values.extend(sums[..channels].iter().map(|&sum| rounded(sum)));
            }
        }
        Self { width, values, ..self }
    }

    /// Resizes each column to `height` pixels.
    fn resized_down(self, height: usize, by: Resampling) -> Self {
        if height == self.height {
            return self;
        }
        let row = self.width * self.channels;
        let mut values = Vec::with_capacity(height * row);
        let mut sums = vec![0; row];
        for window in windows(self.height, height, by) {
            sums.fill(0);
            let rows = self.values[window.first * row..].chunks_exact(row);
            for (pixels, weight) in rows.zip(&window.weights) {
                for (sum, &value) in sums.iter_mut().zip(pixels) {
                    *sum += i64::from(value) * weight;
                }
            }
            values.extend(sums.iter().map(|&sum| rounded(sum)));
        }
        Self { height, values, ..self }
    }

    /// Gives each new pixel the value of the old pixel that contains the new pixel's centre.
    fn of_nearest(&self, height: usize, width: usize) -> Self {
        // The step is added again and again, as in Pillow. A product of the step and an index would
        // be rounded differently.
        let places = |from: usize, to: usize| {
            let step = from as f64 / to as f64;
            let next = move |at: &f64| Some(at + step);
            std::iter::successors(Some(step * 0.5), next).map(move |at| (at as usize).min(from - 1))
        };
        let channels = self.channels;
        let columns: Vec<usize> = places(self.width, width).take(width).collect();
        let mut values = Vec::with_capacity(height * width * channels);
        for row in places(self.height, height).take(height) {
            for column in &columns {
                let at = (row * self.width + column) * channels;
                values.extend_from_slice(&self.values[at..at + channels]);
            }
        }
        Self { height, width, values, ..*self }
    }
}
