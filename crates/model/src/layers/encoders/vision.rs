//! Encoder of ViT (Dosovitskiy et al. 2021, section 3.1). Its inputs are the patches of images; its
//! outputs are one row for each patch, and one for the class.

use super::text::first_rows;
use crate::config::{Pooling, Positions, SinusoidFrequencies};
use crate::cost::PartCost;
use crate::layers::head::picked;
use crate::layers::linear::Linear;
use crate::layers::positions::sinusoids;
use crate::layers::stack::Stack;
use crate::layers::stack::StackKind;
use crate::layers::weight::Weight;
use crate::{Builder, ImageShape, ModelConfig, ModelError, Pass, Sequences};
use candle_core::{DType, Result, Tensor};
use taper_ops::rng::name_key;
use taper_ops::{Dropout, EmbeddingSpec, composed, converted};

/// Computes `stack(dropout([class; W patch + b] + position))`.
#[derive(Debug, Clone)]
pub(crate) struct VisionEncoder {
    patches: PatchEmbedding,
    stack: Stack,
}

/// Computes `dropout([class; W patch + b] + position)`, the input of the first layer.
#[derive(Debug, Clone)]
pub(crate) struct PatchEmbedding {
    shape: ImageShape,
    patches: Linear,
    /// State of an additional token, `(1, D)`; `None` if the class is predicted from the mean of
    /// the patches.
    class_token: Option<Weight>,
    positions: PatchPositions,
    dropout: f64,
    site: u64,
    activations: DType,
}

/// Positions that are added to the tokens of an image: `(T, D)` for T tokens, which are the patches
/// and, if there is one, the class token.
#[derive(Debug, Clone)]
enum PatchPositions {
    Nothing,
    Learned(Weight),
    Sinusoids(Tensor),
}

/// Refuses configurations that an encoder of patches does not support.
///
/// # Errors
/// If a setting is not supported; the error names the key, its value and the requirement.
pub(crate) fn validate(config: &ModelConfig) -> std::result::Result<(), ModelError> {
    let refuse = |message: String| Err(ModelError::Config(message));
    match config.positions {
        Positions::Learned | Positions::None => Ok(()),
        positions if positions.are_sinusoids() => {
            if config.d_model.is_multiple_of(4) {
                return Ok(());
            }
            refuse(format!(
                "sinusoidal model.positions of images need a model.d_model that 4 divides, not {}",
                config.d_model
            ))
        }
        _ => refuse(
            "model.positions of images must be \"learned\", \"sinusoidal\", \
             \"sinusoidal-halves\" or \"none\": the others are for sequences"
                .to_owned(),
        ),
    }
}

impl VisionEncoder {
    pub(crate) fn new(
        build: &mut Builder,
        shape: &ImageShape,
        config: &ModelConfig,
    ) -> Result<Self> {
        Ok(Self {
            patches: PatchEmbedding::new(build, shape, config)?,
            stack: Stack::new(build, "encoder", config, config.encoder_layers, StackKind::Encoder)?,
        })
    }

    /// Encodes whole images. A sequence of `images` has the values of one image, channel by channel
    /// and row by row.
    ///
    /// # Shapes
    /// B images of P patches → `(B·P, D)`, or with class tokens `(B·(P + 1), D)`.
    pub(crate) fn forward(&self, images: &Sequences, pass: &Pass) -> Result<Tensor> {
        let (x, tokens) = self.patches.forward(images, pass)?;
        self.stack.forward(x, &tokens, None, pass)
    }

    /// Pools the states of images; see [`PatchEmbedding::pooled`].
    pub(crate) fn pooled(&self, hidden: &Tensor, count: usize, pass: &Pass) -> Result<Tensor> {
        self.patches.pooled(hidden, count, pass)
    }
}

impl PatchEmbedding {
    pub(crate) fn new(
        build: &mut Builder,
        shape: &ImageShape,
        config: &ModelConfig,
    ) -> Result<Self> {
        let width = config.d_model;
        let patches = Linear::new(build, "patches", shape.patch_values(), width, 1)?;
        // The backward pass keeps the pixels, for the gradient of their projection. The
        // projection's result is copied into one tensor with the class token.
        build.count(PartCost::kept(shape.patch_values()).keeping(width.saturating_mul(2)));
        let class_token = match config.pooling {
            Pooling::ClassToken => Some(build.embedding("class_token.weight", 1, width)?),
            Pooling::Mean => None,
        };
        let tokens = shape.patches() + usize::from(class_token.is_some());
        let positions = match config.positions {
            Positions::Learned => PatchPositions::Learned(build.embedding(
                "encoder.positions.weight",
                tokens,
                width,
            )?),
            Positions::None => PatchPositions::Nothing,
            _ if build.is_outline() => PatchPositions::Nothing,
            kind => {
                let halves = kind == Positions::SinusoidalHalves;
                let side = shape.size / shape.patch;
                let mut table = vec![0.0; (tokens - side * side) * width];
                table.extend(grid_sinusoids(side, width, halves, config.sinusoid_frequencies));
                let device = build.store.device();
                PatchPositions::Sinusoids(Tensor::from_vec(table, (tokens, width), device)?)
            }
        };
        Ok(Self {
            shape: shape.clone(),
            patches,
            class_token,
            positions,
            dropout: config.embedding_dropout,
            site: name_key("encoder.embedding"),
            activations: build.activations,
        })
    }

    /// Shape of the images.
    pub(crate) fn shape(&self) -> &ImageShape {
        &self.shape
    }

    /// Embeds whole images. A sequence of `images` has the values of one image, channel by channel
    /// and row by row.
    ///
    /// # Shapes
    /// B images of P patches → `(B·P, D)`, or with class tokens `(B·(P + 1), D)`; and sequences
    /// that say which of these rows belong to which image.
    pub(crate) fn forward(&self, images: &Sequences, pass: &Pass) -> Result<(Tensor, Sequences)> {
        let (count, patches) = (images.lengths.len(), self.shape.patches());
        let pixels = Tensor::from_vec(
            self.shape.patched(&images.ids),
            (count * patches, self.shape.patch_values()),
            self.patches.device(),
        )?;
        let rows = self.patches.forward(&pixels.to_dtype(self.activations)?, pass)?; // (B·P, D)
        let rows = converted(pass.tape(), &rows, DType::F32)?;
        let (table, first) = match &self.class_token {
            Some(token) => {
                let inputs = [token.get(pass), &rows];
                let join = |inputs: &[Tensor]| Tensor::cat(inputs, 0);
                (composed::on_tape(pass.tape(), "class token", &inputs, join)?, 1)
            }
            None => (rows, 0),
        };
        // In each image, the class token, which is row 0 of the table, precedes the patches.
        let tokens = patches + first;
        let id = |image: usize, token: usize| match token.checked_sub(first) {
            Some(patch) => (first + image * patches + patch) as u32,
            None => 0,
        };
        let ids = (0..count).flat_map(|image| (0..tokens).map(move |token| id(image, token)));
        let positions = match &self.positions {
            PatchPositions::Nothing => None,
            PatchPositions::Learned(table) => Some(table.get(pass)),
            PatchPositions::Sinusoids(table) => Some(table),
        };
        let spec = EmbeddingSpec {
            ids: ids.collect(),
            positions: (0..count).flat_map(|_| 0..tokens as u32).collect(),
            scale: 1.0,
            dropout: pass.dropout(self.dropout, self.site),
        };
        let x = taper_ops::embedding(pass.tape(), &table, positions, &spec)?;
        let divided = Sequences { ids: Vec::new(), lengths: vec![tokens; count] };
        Ok((converted(pass.tape(), &x, self.activations)?, divided))
    }

    /// Computes one state for each of `count` images, from which the image's class is predicted.
    ///
    /// # Shapes
    /// `hidden`, with as many rows as [`forward`](Self::forward) returns for B images → `(B, D)`.
    pub(crate) fn pooled(&self, hidden: &Tensor, count: usize, pass: &Pass) -> Result<Tensor> {
        let (rows, width) = hidden.dims2()?;
        if self.class_token.is_some() {
            let rows = first_rows(&vec![rows / count.max(1); count]);
            return picked(hidden, rows, Dropout::none(), pass);
        }
        composed::on_tape(pass.tape(), "mean of patches", &[hidden], |inputs| {
            inputs[0].reshape((count, rows / count.max(1), width))?.mean(1) // (B, D)
        })
    }
}

/// Computes sinusoids in two dimensions: the first half of the width encodes the row, and the
/// second half the column (Chen et al. 2021, "An Empirical Study of Training Self-Supervised Vision
/// Transformers", section 4.2). If `halves` is true, the sines come before the cosines, for the row
/// and for the column, as in Transformers' ViTMAE; otherwise they alternate.
fn grid_sinusoids(
    side: usize,
    width: usize,
    halves: bool,
    frequencies: SinusoidFrequencies,
) -> Vec<f32> {
    let half = width / 2;
    let line = sinusoids(0..side, half, halves, frequencies);
    let sinusoid = |at: usize| &line[at * half..(at + 1) * half];
    let places = (0..side).flat_map(|row| (0..side).map(move |column| (row, column)));
    places.flat_map(|(row, column)| [sinusoid(row), sinusoid(column)].concat()).collect()
}
