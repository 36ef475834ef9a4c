//! A classifier of images: a Vision Transformer (Dosovitskiy et al. 2021), which has the same
//! layers as models of text, or a small convolutional network for comparison.
//!
//! **Decision.** An image is a sequence of its values, from 0 to 255, channel by channel and row by
//! row. These are ids, as in texts, so that batches, their division and the two passes of R-Drop
//! need no special case for images. The model cuts patches, and normalises values by mean and
//! standard deviation. The alternative, a batch with tensors, would need a second case everywhere
//! between corpus and model.

mod captioner;
mod contrastive;
mod shape;

use crate::config::{ImageEncoder, ModelConfig};
use crate::cost::LayerCost;
use crate::layers::encoders::convolutional::{Convolutions, last_width};
use crate::layers::encoders::text::first_rows;
use crate::layers::encoders::vision::{VisionEncoder, validate};
use crate::layers::head::Head;
use crate::{
    AttentionRecord, Batch, Builder, LossOutput, LossSpec, Model, ModelCore, ModelError, Pass,
    Records, Result, Sequences,
};
use candle_core::Tensor;

pub use captioner::ImageCaptioner;
pub use contrastive::ContrastiveModel;
pub use shape::ImageShape;

/// A classifier of images with its parameters.
#[derive(Debug, Clone)]
pub struct ImageClassifier {
    shape: ImageShape,
    core: ModelCore,
    classes: usize,
    encoder: Encoder,
    head: Head,
}

/// Encoder of images.
#[derive(Debug, Clone)]
enum Encoder {
    Transformer(Box<VisionEncoder>),
    Convolutional(Convolutions),
}

/// Width of the state from which the class is predicted.
fn head_width(config: &ModelConfig, shape: &ImageShape) -> usize {
    match config.image_encoder {
        ImageEncoder::Transformer => config.d_model,
        ImageEncoder::Convolutional => last_width(config, shape),
    }
}

impl ImageClassifier {
    /// Makes a model with `classes` classes from `builder`.
    ///
    /// # Errors
    /// If the configuration is impossible, or the device has no memory left.
    pub fn new(
        config: &ModelConfig,
        shape: &ImageShape,
        classes: usize,
        builder: Builder,
    ) -> Result<Self> {
        builder.check(|| {
            config.validate_transformer()?;
            shape.validate()?;
            if config.image_encoder == ImageEncoder::Transformer {
                validate(config)?;
            }
            if classes < 2 {
                return Err(ModelError::Config(format!(
                    "a classifier needs at least two classes, not {classes}"
                )));
            }
            Ok(())
        })?;
        let mut builder = builder.with_biases(config.biases);
        let build = &mut builder;
        let encoder = match config.image_encoder {
            ImageEncoder::Transformer => {
                Encoder::Transformer(Box::new(VisionEncoder::new(build, shape, config)?))
            }
            ImageEncoder::Convolutional => {
                Encoder::Convolutional(Convolutions::new(build, shape, config)?)
            }
        };
        let weight = build.matrix("classes.weight", classes, head_width(config, shape), 1)?;
        let head = Head::new(build, "classes", (weight, classes), true)?;
        let (core, shape) = (builder.finish(config, &["image"]), shape.clone());
        Ok(Self { shape, core, classes, encoder, head })
    }

    /// Cost of the layer with the index `layer`, from 0; for convolutions, always the cost of the
    /// last layer.
    #[must_use]
    pub fn layer_cost_of(config: &ModelConfig, shape: &ImageShape, layer: usize) -> LayerCost {
        match config.image_encoder {
            ImageEncoder::Transformer => Self::layer_cost(config, layer),
            ImageEncoder::Convolutional => Convolutions::last_cost(config, shape),
        }
    }

    /// Number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Shape of the model's images.
    #[must_use]
    pub fn shape(&self) -> &ImageShape {
        &self.shape
    }

    /// Computes one state for each image, from which the image's class is predicted.
    fn pooled(&self, images: &Sequences, pass: &Pass) -> Result<Tensor> {
        Ok(match &self.encoder {
            Encoder::Transformer(encoder) => {
                let hidden = encoder.forward(images, pass)?; // (N, D), N tokens
                encoder.pooled(&hidden, images.lengths.len(), pass)? // (B, D)
            }
            Encoder::Convolutional(encoder) => encoder.forward(images, pass)?,
        })
    }

    /// Computes the logits of the classes for each image, in f32.
    ///
    /// # Shapes
    /// B images → `(B, C)`, where C is the number of classes.
    ///
    /// # Errors
    /// If an image does not have the model's shape, or the device has no memory left.
    pub fn logits(&self, images: &Sequences) -> Result<Tensor> {
        self.shape.check(images)?;
        let pass = Pass::evaluate();
        Ok(self.head.logits(&self.pooled(images, &pass)?, &pass)?)
    }

    /// Computes the logits of the classes for each image, and records attention weights, queries,
    /// keys and values, and the states of tokens.
    ///
    /// # Shapes
    /// B images → records, and `(B, C)`, where C is the number of classes.
    ///
    /// # Errors
    /// The errors of [`ImageClassifier::logits`].
    pub fn traced(&self, images: &Sequences) -> Result<(Records, Tensor)> {
        self.shape.check(images)?;
        let pass = Pass::evaluate_with_states();
        let logits = self.head.logits(&self.pooled(images, &pass)?, &pass)?;
        Ok((pass.into_records(), logits))
    }

    /// Computes the states of all places (positions in the layer's grid) of each image after each
    /// convolution.
    ///
    /// # Shapes
    /// B images → for each layer `(B · P, D)`: the P places of each image, row by row, with D
    /// channels.
    ///
    /// # Errors
    /// The errors of [`ImageClassifier::logits`], and an error if the encoder is not convolutional.
    pub fn convolved(&self, images: &Sequences) -> Result<Vec<Tensor>, ModelError> {
        self.shape.check(images)?;
        let Encoder::Convolutional(encoder) = &self.encoder else {
            let message = "a Vision Transformer has no convolutions".to_owned();
            return Err(ModelError::Config(message));
        };
        let mut states = Vec::new();
        encoder.places(images, &Pass::evaluate(), |x| states.push(x.clone()))?;
        Ok(states)
    }

    /// Computes the attention weights of all layers between the tokens of each image.
    ///
    /// # Errors
    /// The errors of [`ImageClassifier::logits`], and an error if the model has no attention with
    /// weights.
    pub fn attention(&self, images: &Sequences) -> Result<Vec<AttentionRecord>> {
        self.shape.check(images)?;
        let pass = Pass::evaluate_with_attention();
        self.pooled(images, &pass)?;
        let layers = pass.into_attention();
        if layers.len() < self.config().encoder_layers {
            return Err(ModelError::Config(
                "the model has no attention weights: its encoder is convolutional, or its \
                 attention is linear"
                    .to_owned(),
            ));
        }
        Ok(layers)
    }
}

/// Reads one stream (kind of input of a batch), the values of images. The class of an image is
/// predicted at its first value.
impl Model for ImageClassifier {
    fn core(&self) -> &ModelCore {
        &self.core
    }

    fn answer_classes(&self) -> Option<usize> {
        Some(self.classes)
    }

    fn loss_of_pass(&self, batch: &Batch, spec: LossSpec<'_>) -> Result<LossOutput> {
        let [images] = batch.read(["image"])?;
        self.shape.check(images)?;
        if batch.asked.as_deref() != Some(&*first_rows(&images.lengths)) {
            return Err(ModelError::Batch(
                "a classifier is asked for the first value of each image".to_owned(),
            ));
        }
        let pooled = self.pooled(images, spec.pass)?;
        Ok(self.head.loss_of_rows(&pooled, &batch.answers, spec)?)
    }
}
