//! A classifier of texts (Devlin et al. 2019, section 4): an encoder, and classes told from the state
//! of the first token.

use crate::config::ModelConfig;
use crate::cost::{Cost, LayerCost, PartCost};
use crate::layers::block::Block;
use crate::layers::head::{BiasedHead, picked};
use crate::layers::stack::StackKind;
use crate::layers::text_encoder::{Pooler, TextEncoder, first_rows};
use crate::{Batch, Builder, Core, LossOutput, Model, ModelError, Objective, Pass, Sequences};
use candle_core::{Device, Tensor};
use std::sync::Arc;
use taper_ops::rng::name_key;

/// A classifier with its parameters. Those of the encoder are called as a
/// [`MaskedLanguageModel`](crate::MaskedLanguageModel) calls them, whose weights it can begin with.
#[derive(Debug, Clone)]
pub struct TextClassifier {
    config: ModelConfig,
    core: Core,
    vocabulary: usize,
    classes: usize,
    encoder: TextEncoder,
    pooler: Pooler,
    head: BiasedHead,
}

impl TextClassifier {
    /// Makes a model for so many classes, as `builder` says.
    ///
    /// # Errors
    /// When the configuration is impossible, or the device has no memory left.
    pub fn new(
        config: &ModelConfig,
        vocabulary: usize,
        classes: usize,
        builder: Builder,
    ) -> Result<Self, ModelError> {
        config.require_transformer()?;
        config.validate(true)?;
        if classes < 2 {
            return Err(ModelError::Config(format!(
                "a classifier needs at least two classes, not {classes}"
            )));
        }
        let mut builder = builder.with_biases(config.biases);
        let build = &mut builder;
        let table = build.embedding("embedding.weight", vocabulary, config.d_model)?;
        let encoder = TextEncoder::new(build, table, config)?;
        let pooler = Pooler::new(build, config.d_model)?;
        let weight = build.matrix("classes.weight", classes, config.d_model, 1)?;
        let head = BiasedHead::new(build, "classes", weight, classes)?;
        let config = config.clone();
        let core = builder.finish(config.d_model);
        Ok(Self { config, core, vocabulary, classes, encoder, pooler, head })
    }

    /// What a model of this shape would cost on `device`, known before memory is taken for it.
    #[must_use]
    pub fn cost_of(
        config: &ModelConfig,
        vocabulary: usize,
        classes: usize,
        _device: &Device,
    ) -> Cost {
        let parts = PartCost::table(vocabulary, config.d_model)
            + TextEncoder::cost(config)
            + Pooler::cost(config)
            + PartCost::table(classes, config.d_model + 1);
        Cost::of([("text", parts)])
    }

    /// What one of its layers costs, counted from 0.
    #[must_use]
    pub fn layer_cost(config: &ModelConfig, layer: usize) -> LayerCost {
        LayerCost::of(Block::cost(config, StackKind::Encoder, layer))
    }

    /// The number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The state of each text, from which its class is told.
    fn pooled(
        &self,
        (segments, text): (&Sequences, &Sequences),
        rows: Arc<[u32]>,
        pass: &Pass,
    ) -> Result<Tensor, ModelError> {
        text.check()?;
        if segments.lengths != text.lengths {
            return Err(ModelError::Batch("segments are not as long as their texts".to_owned()));
        }
        let hidden = self.encoder.forward(text, segments.ids.as_slice().into(), pass)?; // (N, D)
        let pooled = self.pooler.forward(&hidden, rows, pass)?; // (B, D)
        let dropout = pass.dropout(self.config.residual_dropout, name_key("classes"));
        if !dropout.is_active() {
            return Ok(pooled);
        }
        let all: Arc<[u32]> = (0..pooled.dim(0)? as u32).collect();
        Ok(picked(&pooled, all, dropout, pass)?)
    }

    /// The logits of the classes of each text, in f32; `segments` has 0 for the tokens of a first
    /// text and 1 for those of a second.
    ///
    /// # Shapes
    /// B texts → `(B, C)`.
    ///
    /// # Errors
    /// When an id is not in the vocabulary, a segment is neither 0 nor 1 or there is not one for
    /// each token, or a text is empty or longer than learned positions reach.
    pub fn logits(&self, segments: &Sequences, text: &Sequences) -> Result<Tensor, ModelError> {
        if text.lengths.contains(&0) {
            return Err(ModelError::Batch("a text is empty".to_owned()));
        }
        let pass = Pass::evaluate();
        let pooled = self.pooled((segments, text), first_rows(&text.lengths), &pass)?;
        Ok(self.head.logits(&pooled, &pass)?)
    }
}

/// Reads the segments and the text; the first token of each text is asked for its class.
impl Model for TextClassifier {
    fn core(&self) -> &Core {
        &self.core
    }

    fn cost(&self) -> Cost {
        Self::cost_of(&self.config, self.vocabulary, self.classes, self.device())
    }

    fn loss_of_pass(
        &self,
        batch: &Batch,
        objective: &Objective,
        scale: f64,
        pass: &Pass,
    ) -> Result<LossOutput, ModelError> {
        let [segments, text] = batch.read(["segments", "text"])?;
        let rows = first_rows(&text.lengths);
        if batch.asked.as_deref() != Some(&*rows) {
            return Err(ModelError::Batch(
                "a classifier is asked for the first token of each text".to_owned(),
            ));
        }
        let pooled = self.pooled((segments, text), rows, pass)?;
        Ok(self.head.loss(&pooled, &batch.answers, objective, scale, pass)?)
    }
}
