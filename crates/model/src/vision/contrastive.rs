//! Images and texts embedded in one space (Radford et al. 2021, "Learning Transferable Visual
//! Models From Natural Language Supervision", CLIP). There is an encoder for images and one for
//! texts. They are trained so that, within a batch, the text nearest to an image is the text of
//! this image, and the image nearest to a text is the image of this text.
//!
//! The wrong texts for an image are the other texts of its micro-batch. So with gradient
//! accumulation, an update consists of several smaller comparisons, not of one large comparison.

use super::ImageShape;
use super::captioner::require_patches;
use crate::builder::tally::Stream;
use crate::config::{ContrastiveConfig, ModelConfig};
use crate::cost::PartCost;
use crate::layers::embedding::TokenEmbedding;
use crate::layers::encoders::vision::PatchEmbedding;
use crate::layers::head::{last_rows, loss_of_rows, picked};
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::layers::stack::Stack;
use crate::layers::stack::StackKind;
use crate::layers::weight::Weight;
use crate::{Batch, Builder, LossOutput, LossSpec, Model, ModelCore, ModelError, Pass, Sequences};
use candle_core::{DType, Result, Tensor};
use taper_ops::{CrossEntropySpec, Dropout, Products, composed};

/// Upper bound of the factor of similarities, as in CLIP.
const MOST: f64 = 100.0;

/// Two encoders with their parameters. The image encoder's parameters have the same names as in an
/// [`ImageClassifier`](crate::ImageClassifier).
#[derive(Debug, Clone)]
pub struct ContrastiveModel {
    shape: ImageShape,
    core: ModelCore,
    patches: PatchEmbedding,
    embedding_norm: Norm,
    encoder: Stack,
    image_projection: Linear,
    tokens: TokenEmbedding,
    text: Stack,
    text_projection: Linear,
    /// Logarithm of the factor of similarities: `(1,)`.
    scale: Weight,
}

impl ContrastiveModel {
    /// Makes a model from `builder`.
    ///
    /// # Errors
    /// If the configuration is impossible, or the device has no memory left.
    pub fn new(
        config: &ModelConfig,
        shape: &ImageShape,
        vocabulary: usize,
        builder: Builder,
    ) -> std::result::Result<Self, ModelError> {
        builder.check(|| {
            shape.validate()?;
            require_patches(config)?;
            config.validate(true)?;
            config.contrastive.text(config).validate(true)
        })?;
        let of_text = config.contrastive.text(config);
        let mut builder = builder.with_biases(config.biases);
        let build = &mut builder;
        let ContrastiveConfig { dimensions, temperature, .. } = config.contrastive;
        let width = config.d_model;
        let (encoder_layers, text_layers) = (config.encoder_layers, config.decoder_layers);
        let (patches, embedding_norm, encoder) = build.in_stream(Stream::First, |build| {
            build.count(PartCost::kept(width));
            Ok::<_, candle_core::Error>((
                build.with_biases_if(false, |build| PatchEmbedding::new(build, shape, config))?,
                Norm::new(build, "encoder.embedding_norm", width, config)?,
                Stack::new(build, "encoder", config, encoder_layers, StackKind::Encoder)?,
            ))
        })?;
        let table = build.token_table("text_embedding.weight", vocabulary, of_text.d_model)?;
        let tokens = TokenEmbedding::new(build, "text", table, &of_text)?;
        let text = Stack::new(build, "text", &of_text, text_layers, StackKind::DecoderOnly)?;
        // Projections run only once for each image or text, so only their parameters count.
        let mut projection = |name: &str, width: usize| {
            build.with_biases_if(false, |build| {
                build.counted_as(PartCost::once, |build| {
                    Linear::new(build, name, width, dimensions, 1)
                })
            })
        };
        let image_projection = projection("image_projection", width)?;
        let text_projection = projection("text_projection", of_text.d_model)?;
        let scale = build.constant("scale", &[1], (1.0 / temperature).ln() as f32)?;
        Ok(Self {
            shape: shape.clone(),
            core: builder.finish(config, &["image", "text"]),
            patches,
            embedding_norm,
            encoder,
            image_projection,
            tokens,
            text,
            text_projection,
            scale,
        })
    }

    /// Factor by which similarities are multiplied.
    ///
    /// # Errors
    /// If the factor cannot be read from the device.
    pub fn scale(&self) -> std::result::Result<f64, ModelError> {
        let scale = self.scale.get(&Pass::evaluate()).to_vec1::<f32>()?;
        Ok(scale.first().map_or(1.0, |&scale| f64::from(scale).exp()).min(MOST))
    }

    /// Embeds images as rows of Euclidean length 1, in f32.
    ///
    /// # Shapes
    /// B images → `(B, E)`, where E is the number of dimensions of the common space.
    ///
    /// # Errors
    /// If an image does not have the model's shape, or the device has no memory left.
    pub fn images(
        &self,
        images: &Sequences,
        pass: &Pass,
    ) -> std::result::Result<Tensor, ModelError> {
        self.shape.check(images)?;
        let (x, divided) = self.patches.forward(images, pass)?;
        let x = self.embedding_norm.forward(&x, pass)?;
        let hidden = self.encoder.forward(x, &divided, None, pass)?; // (N, D), N tokens
        let pooled = self.patches.pooled(&hidden, images.lengths.len(), pass)?; // (B, D)
        Ok(unit_rows(&self.image_projection.forward(&pooled, pass)?, pass)?)
    }

    /// Embeds texts, by the states of their last tokens, as rows of Euclidean length 1, in f32.
    ///
    /// # Shapes
    /// B texts → `(B, E)`, where E is the number of dimensions of the common space.
    ///
    /// # Errors
    /// If an id is not in the vocabulary, or a text is empty or longer than the learned positions.
    pub fn texts(&self, texts: &Sequences, pass: &Pass) -> std::result::Result<Tensor, ModelError> {
        texts.check()?;
        if texts.lengths.contains(&0) {
            return Err(ModelError::Batch("a text is empty".to_owned()));
        }
        let x = self.tokens.forward(texts, pass)?;
        let hidden = self.text.forward(x, texts, None, pass)?; // (N, D), N tokens
        let last = picked(&hidden, last_rows(&texts.lengths), Dropout::none(), pass)?; // (B, D)
        Ok(unit_rows(&self.text_projection.forward(&last, pass)?, pass)?)
    }

    /// Multiplies `rows` by the factor of similarities.
    fn scaled(&self, rows: &Tensor, pass: &Pass) -> Result<Tensor> {
        let inputs = [rows, self.scale.get(pass)];
        composed::on_tape(pass.tape(), "temperature", &inputs, |inputs| {
            let most = Tensor::full(MOST.ln() as f32, 1, inputs[1].device())?;
            inputs[0].broadcast_mul(&inputs[1].minimum(&most)?.exp()?)
        })
    }

    /// Computes one half of the loss: for row i of `rows`, the classes are the rows of `others`,
    /// and the right class is row i.
    fn half(
        &self,
        (rows, others): (&Tensor, &Tensor),
        LossSpec { objective, scale, pass }: LossSpec<'_>,
    ) -> Result<LossOutput> {
        let answers: Vec<u32> = (0..rows.dim(0)? as u32).collect();
        let spec = CrossEntropySpec {
            smoothing: objective.label_smoothing,
            r_drop: 0.0,
            scale: scale / 2.0,
            // Similarities are multiplied by up to 100, so their products need full precision.
            products: Products::F32,
        };
        loss_of_rows(&self.scaled(rows, pass)?, (others, None), &answers, &spec, pass)
    }
}

/// Divides each row by its Euclidean length, in f32.
fn unit_rows(rows: &Tensor, pass: &Pass) -> Result<Tensor> {
    composed::on_tape(pass.tape(), "length of 1", &[rows], |inputs| {
        let rows = inputs[0].to_dtype(DType::F32)?;
        rows.broadcast_div(&rows.sqr()?.sum_keepdim(1)?.sqrt()?)
    })
}

/// Reads images and equally many texts; text i belongs to image i. At the last token of each text,
/// the answer to predict is the index of the text in the batch.
impl Model for ContrastiveModel {
    fn core(&self) -> &ModelCore {
        &self.core
    }

    /// Computes `Σ (CE(image → text) + CE(text → image)) / 2` over the pairs of the batch (Radford
    /// et al. 2021, figure 3).
    fn loss_of_pass(
        &self,
        batch: &Batch,
        spec: LossSpec<'_>,
    ) -> std::result::Result<LossOutput, ModelError> {
        let LossSpec { objective, pass, .. } = spec;
        let refuse = |message: &str| Err(ModelError::Batch(message.to_owned()));
        if objective.r_drop > 0.0 {
            return refuse(
                "training.r_drop repeats the texts of a batch, and the copy of an image's text \
                 would count as a wrong text: set it to 0",
            );
        }
        let [images, texts] = batch.read(["image", "text"])?;
        if batch.asked.as_deref() != Some(&*last_rows(&texts.lengths)) {
            return refuse("images and texts are compared by the last token of each text");
        }
        let (images, texts) = (self.images(images, pass)?, self.texts(texts, pass)?); // (B, E)
        let to_text = self.half((&images, &texts), spec)?;
        let to_image = self.half((&texts, &images), spec)?;
        let losses = [&to_text.loss, &to_image.loss];
        let loss = composed::on_tape(pass.tape(), "sum of losses", &losses, |losses| {
            &losses[0] + &losses[1]
        })?;
        let mean = |sum: fn(&LossOutput) -> f64| (sum(&to_text) + sum(&to_image)) / 2.0;
        Ok(LossOutput {
            loss,
            smoothed_sum: mean(|half| half.smoothed_sum),
            nll_sum: mean(|half| half.nll_sum),
            objective_sum: mean(|half| half.objective_sum),
            correct: (to_text.correct + to_image.correct) / 2,
            ..to_text
        })
    }
}
