//! A tagger of tokens (Devlin et al. 2019, section 5.3): an encoder, and a head that predicts
//! classes from the states of tokens.

use crate::config::ModelConfig;
use crate::layers::encoders::text::TextEncoder;
use crate::layers::head::ClassHead;
use crate::{
    Batch, Builder, LossOutput, LossSpec, Model, ModelCore, ModelError, Pass, Result, Sequences,
};
use candle_core::Tensor;

/// A tagger with its parameters. The encoder's parameters have the same names as in a
/// [`MaskedLanguageModel`](crate::MaskedLanguageModel), so that a tagger can begin with the weights
/// of such a model.
#[derive(Debug, Clone)]
pub struct TokenTagger {
    core: ModelCore,
    tags: usize,
    encoder: TextEncoder,
    head: ClassHead,
}

impl TokenTagger {
    /// Makes a model with `tags` tags from `builder`.
    ///
    /// # Errors
    /// If the configuration is impossible, or the device has no memory left.
    pub fn new(
        config: &ModelConfig,
        vocabulary: usize,
        tags: usize,
        builder: Builder,
    ) -> Result<Self> {
        let mut builder = builder.of_transformer(config)?;
        let build = &mut builder;
        let encoder = TextEncoder::with_embedding(build, config, vocabulary)?;
        let head = ClassHead::of_tokens(build, "tags", tags, config)?;
        Ok(Self { core: builder.finish(config, &["text"]), tags, encoder, head })
    }

    /// Computes the logits of the tags, in f32, for the tokens at the given rows; `segments` has 0
    /// for each token of the text.
    ///
    /// # Shapes
    /// N tokens, of which A are at `rows` → `(A, C)`, where C is the number of tags.
    ///
    /// # Errors
    /// If an id is not in the vocabulary, if a segment is neither 0 nor 1, if the number of
    /// segments is not the number of tokens, if a row does not exist, or if a text is longer than
    /// the learned positions.
    pub fn logits(&self, segments: &Sequences, text: &Sequences, rows: &[u32]) -> Result<Tensor> {
        if let Some(row) = rows.iter().find(|&&row| row as usize >= text.ids.len()) {
            let count = text.ids.len();
            return Err(ModelError::Batch(format!("there is no token {row} to tag among {count}")));
        }
        let pass = Pass::evaluate();
        let states = self.encoder.states((segments, text), &pass)?; // (N, D)
        Ok(self.head.logits(&states, rows.into(), &pass)?)
    }
}

/// Reads the segments and the text, and predicts the tags of the tokens that the batch asks for.
impl Model for TokenTagger {
    fn core(&self) -> &ModelCore {
        &self.core
    }

    fn answer_classes(&self) -> Option<usize> {
        Some(self.tags)
    }

    fn loss_of_pass(&self, batch: &Batch, spec: LossSpec<'_>) -> Result<LossOutput> {
        let [segments, text] = batch.read(["segments", "text"])?;
        let rows = match batch.asked_rows() {
            Some(rows) => rows,
            None => (0..text.ids.len() as u32).collect(),
        };
        let states = self.encoder.states((segments, text), spec.pass)?; // (N, D)
        Ok(self.head.loss((&states, rows), &batch.answers, spec)?)
    }
}
