//! Attention of a Vision Transformer, as a picture.
//!
//! Attention is rolled out over the layers (Abnar and Zuidema 2020, "Quantifying Attention Flow in
//! Transformers", section 3), as in Dosovitskiy et al. 2021, appendix D.8. For each layer, the
//! attention weights are averaged over the heads, and then averaged with the identity matrix, which
//! stands for the residual connection. The matrices of all layers are multiplied, with later layers
//! on the left.
//!
//! In the product, rows are tokens that attend, and columns are tokens attended to. The weight of a
//! patch is the entry in the row of the class token and the column of the patch. In a model without
//! a class token, it is the mean of the patch's column over all rows. The weights are then scaled
//! so that they sum to 1.

use std::path::Path;

use anyhow::{Context, Result};
use candle_core::DType;
use taper_data::Pixels;
use taper_model::{ImageClassifier, Model, Sequences};

use super::rollout;
use crate::LoadedRun;
use crate::finite::require_finite;

/// Smallest height of a picture in pixels; smaller pictures are enlarged.
const LEAST_HEIGHT: usize = 224;

/// Rolled-out attention weight of each patch of an image, row by row; the weights sum to 1. `image`
/// has the pixel values.
///
/// # Errors
/// When the image does not have the model's shape, or the model has no attention weights.
pub fn rolled_out(model: &ImageClassifier, image: &[u8]) -> Result<Vec<f64>> {
    let values: Vec<u32> = image.iter().map(|&value| u32::from(value)).collect();
    let images = Sequences::pack(&[values]);
    let layers = taper_ops::threads::in_pool(model.device(), || model.attention(&images))?;
    let mut means: Vec<Vec<Vec<f64>>> = Vec::with_capacity(layers.len());
    for layer in layers {
        let of_heads = layer.weights.to_dtype(DType::F64)?.get(0)?; // (H, T, T)
        means.push(of_heads.mean(0)?.to_vec2()?);
    }
    let flow = rollout(means);
    let flow = flow.context("a model without layers")?;
    let patches = model.shape().patches();
    let counted: Vec<f64> = match flow.len() - patches {
        0 => (0..patches).map(|patch| flow.iter().map(|row| row[patch]).sum()).collect(),
        first => flow[0][first..].to_vec(),
    };
    require_finite("the attention", counted.iter().copied())?;
    let sum: f64 = counted.iter().sum();
    Ok(counted.into_iter().map(|weight| weight / sum).collect())
}

/// Writes a PNG file to `to`. On the left is the image; on the right is a copy in which each patch
/// is darker the less attention it receives.
///
/// # Errors
/// When the image cannot be read, the model has no attention weights, or the file `to` cannot be
/// written.
pub fn draw_attention(run: &LoadedRun<ImageClassifier>, image: &Path, to: &Path) -> Result<()> {
    let settings = &run.config.data.images;
    let pixels = Pixels::of_file(image, settings)?;
    let weights = rolled_out(&run.model, &pixels.0)?;
    let brightest = weights.iter().copied().fold(0.0, f64::max);
    let (size, side) = (settings.size, settings.size / settings.patch);
    let zoom = LEAST_HEIGHT.div_ceil(size);
    let (height, width) = (size * zoom, 2 * size * zoom);
    let mut picture = Vec::with_capacity(3 * height * width);
    for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
        let (y, x) = (row / zoom, column / zoom % size);
        let light = match column >= size * zoom {
            true => weights[y / settings.patch * side + x / settings.patch] / brightest,
            false => 1.0,
        };
        for colour in 0..3 {
            let channel = if settings.channels == 3 { colour } else { 0 };
            let value = pixels.0[(channel * size + y) * size + x];
            picture.push((f64::from(value) * light).round() as u8);
        }
    }
    Ok(taper_data::write_png(to, width as u32, height as u32, &picture)?)
}
