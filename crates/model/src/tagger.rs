//! A tagger of tokens (Devlin et al. 2019, section 5.3): an encoder, and a class told from the state
//! of each token that is asked.

use crate::config::ModelConfig;
use crate::cost::{Cost, LayerCost, PartCost};
use crate::layers::block::Block;
use crate::layers::head::{BiasedHead, picked};
use crate::layers::stack::StackKind;
use crate::layers::text_encoder::TextEncoder;
use crate::{Batch, Builder, Core, LossOutput, Model, ModelError, Objective, Pass, Sequences};
use candle_core::{Device, Tensor};
use std::sync::Arc;
use taper_ops::rng::name_key;

/// A tagger with its parameters. Those of the encoder are called as a
/// [`MaskedLanguageModel`](crate::MaskedLanguageModel) calls them, whose weights it can begin with.
#[derive(Debug, Clone)]
pub struct TokenTagger {
    config: ModelConfig,
    core: Core,
    vocabulary: usize,
    tags: usize,
    encoder: TextEncoder,
    head: BiasedHead,
}

impl TokenTagger {
    /// Makes a model for so many tags, as `builder` says.
    ///
    /// # Errors
    /// When the configuration is impossible, or the device has no memory left.
    pub fn new(
        config: &ModelConfig,
        vocabulary: usize,
        tags: usize,
        builder: Builder,
    ) -> Result<Self, ModelError> {
        config.require_transformer()?;
        config.validate(true)?;
        if tags < 2 {
            return Err(ModelError::Config(format!(
                "a tagger needs at least two tags, not {tags}"
            )));
        }
        let mut builder = builder.with_biases(config.biases);
        let build = &mut builder;
        let table = build.embedding("embedding.weight", vocabulary, config.d_model)?;
        let encoder = TextEncoder::new(build, table, config)?;
        let weight = build.matrix("tags.weight", tags, config.d_model, 1)?;
        let head = BiasedHead::new(build, "tags", weight, tags)?;
        let core = builder.finish(config.d_model);
        Ok(Self { config: config.clone(), core, vocabulary, tags, encoder, head })
    }

    /// What a model of this shape would cost on `device`, known before memory is taken for it.
    #[must_use]
    pub fn cost_of(config: &ModelConfig, vocabulary: usize, tags: usize, device: &Device) -> Cost {
        let parts = PartCost::table(vocabulary, config.d_model)
            + TextEncoder::cost(config)
            + PartCost::table(tags, config.d_model)
            + BiasedHead::cost(config, tags, 1.0, device).keeping(2 * config.d_model);
        Cost::of([("text", parts)])
    }

    /// What one of its layers costs, counted from 0.
    #[must_use]
    pub fn layer_cost(config: &ModelConfig, layer: usize) -> LayerCost {
        LayerCost::of(Block::cost(config, StackKind::Encoder, layer))
    }

    /// The states of the tokens at `rows`, from which their tags are told.
    fn states(
        &self,
        (segments, text): (&Sequences, &Sequences),
        rows: Arc<[u32]>,
        pass: &Pass,
    ) -> Result<Tensor, ModelError> {
        text.check()?;
        if segments.lengths != text.lengths {
            return Err(ModelError::Batch("segments are not as long as their texts".to_owned()));
        }
        if let Some(row) = rows.iter().find(|&&row| row as usize >= text.ids.len()) {
            let count = text.ids.len();
            return Err(ModelError::Batch(format!("token {row} of {count} is asked for its tag")));
        }
        let hidden = self.encoder.forward(text, segments.ids.as_slice().into(), pass)?; // (N, D)
        let dropout = pass.dropout(self.config.residual_dropout, name_key("tags"));
        Ok(picked(&hidden, rows, dropout, pass)?) // (A, D)
    }

    /// The logits of the tags of the tokens at `rows`, in f32; `segments` has 0 for each token.
    ///
    /// # Shapes
    /// A rows of N tokens → `(A, C)`.
    ///
    /// # Errors
    /// When an id is not in the vocabulary, a segment is neither 0 nor 1 or there is not one for
    /// each token, a row is of no token, or a text is longer than learned positions reach.
    pub fn logits(
        &self,
        segments: &Sequences,
        text: &Sequences,
        rows: &[u32],
    ) -> Result<Tensor, ModelError> {
        let pass = Pass::evaluate();
        Ok(self.head.logits(&self.states((segments, text), rows.into(), &pass)?, &pass)?)
    }
}

/// Reads the segments and the text, of which some tokens are asked for their tags.
impl Model for TokenTagger {
    fn core(&self) -> &Core {
        &self.core
    }

    fn cost(&self) -> Cost {
        Self::cost_of(&self.config, self.vocabulary, self.tags, self.device())
    }

    fn loss_of_pass(
        &self,
        batch: &Batch,
        objective: &Objective,
        scale: f64,
        pass: &Pass,
    ) -> Result<LossOutput, ModelError> {
        let [segments, text] = batch.read(["segments", "text"])?;
        let rows = match batch.asked_rows() {
            Some(rows) => rows,
            None => (0..text.ids.len() as u32).collect(),
        };
        let states = self.states((segments, text), rows, pass)?;
        Ok(self.head.loss(&states, &batch.answers, objective, scale, pass)?)
    }
}
