//! Shape of images: size, channels and patches, and the normalisation of values.

use crate::{ModelError, Result, Sequences};

/// Shape of the images of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageShape {
    /// Height and width of an image, which are equal, in pixels.
    pub size: usize,
    /// Number of channels.
    pub channels: usize,
    /// Side of a patch, in pixels. It must divide `size`.
    pub patch: usize,
    /// Mean of each channel; it is subtracted from values, which have been scaled to the range from
    /// 0 to 1.
    pub mean: Vec<f64>,
    /// Standard deviation of each channel; values are divided by it after the mean is subtracted.
    pub deviation: Vec<f64>,
}

impl ImageShape {
    /// Number of patches of an image.
    #[must_use]
    pub fn patches(&self) -> usize {
        let side = self.size / self.patch.max(1);
        side * side
    }

    /// Number of values of an image.
    #[must_use]
    pub fn values(&self) -> usize {
        self.channels * self.size * self.size
    }

    /// Number of values of a patch.
    #[must_use]
    pub(crate) fn patch_values(&self) -> usize {
        self.channels * self.patch * self.patch
    }

    /// Refuses impossible shapes.
    pub(crate) fn validate(&self) -> Result<()> {
        let is_shape = self.channels > 0
            && self.patch > 0
            && self.size > 0
            && self.size.is_multiple_of(self.patch)
            && [&self.mean, &self.deviation]
                .iter()
                .all(|channel_values| channel_values.len() == self.channels);
        if is_shape {
            return self.validate_values();
        }
        Err(ModelError::Config(format!(
            "images of {} pixels in {} channels with {} means and {} deviations cannot be cut into \
             patches of {}",
            self.size,
            self.channels,
            self.mean.len(),
            self.deviation.len(),
            self.patch
        )))
    }

    /// Refuses means and deviations if the normalised values of pixels would not be finite.
    fn validate_values(&self) -> Result<()> {
        let is_finite = |(mean, deviation): (&f64, &f64)| {
            let ends = [0.0, 1.0].map(|value| ((value - mean) / deviation) as f32);
            *deviation > 0.0 && ends.iter().all(|value| value.is_finite())
        };
        if self.mean.iter().zip(&self.deviation).all(is_finite) {
            return Ok(());
        }
        Err(ModelError::Config(format!(
            "values of images cannot be normalised with the means {:?} and the standard deviations \
             {:?}: all must be finite, and deviations above 0",
            self.mean, self.deviation
        )))
    }

    /// Cuts B images into rows, one for each of P patches: `(B·P, C·p·p)`, for C channels and
    /// patches of p · p pixels. A row has all values of one channel, then all values of the next.
    pub(crate) fn patched(&self, ids: &[u32]) -> Vec<f32> {
        let (size, patch) = (self.size, self.patch);
        let scaled = |channel: usize| {
            let (mean, deviation) = (self.mean[channel], self.deviation[channel]);
            (0..=255).map(move |value| ((f64::from(value) / 255.0 - mean) / deviation) as f32)
        };
        let scales: Vec<Vec<f32>> = (0..self.channels).map(|c| scaled(c).collect()).collect();
        let mut patches = Vec::with_capacity(ids.len());
        for image in ids.chunks_exact(self.values().max(1)) {
            let corners = (0..size).step_by(patch);
            for (top, left) in corners.clone().flat_map(|y| corners.clone().map(move |x| (y, x))) {
                for (plane, scale) in image.chunks_exact(size * size).zip(&scales) {
                    for row in top..top + patch {
                        let values = &plane[row * size + left..row * size + left + patch];
                        patches.extend(values.iter().map(|&value| scale[value as usize]));
                    }
                }
            }
        }
        patches
    }

    /// Refuses sequences that are not images of this shape.
    pub(crate) fn check(&self, images: &Sequences) -> Result<()> {
        images.check()?;
        let values = self.values();
        if let Some(other) = images.lengths.iter().find(|&&length| length != values) {
            return Err(ModelError::Batch(format!(
                "an image has {other} values, but the model reads {values}"
            )));
        }
        match images.ids.iter().find(|&&value| value > 255) {
            Some(value) => Err(ModelError::Batch(format!(
                "an image has the value {value}: they go from 0 to 255"
            ))),
            None => Ok(()),
        }
    }
}
