//! A classifier of texts (Devlin et al. 2019, section 4): an encoder, and a head on the state of
//! the first token or on the mean of all states.

use crate::config::ModelConfig;
use crate::layers::encoders::text::{TextEncoder, TextPooling, first_rows};
use crate::layers::head::ClassHead;
use crate::{
    Batch, Builder, LossOutput, LossSpec, Model, ModelCore, ModelError, Pass, Result, Sequences,
};
use candle_core::Tensor;

/// A classifier with its parameters. The encoder's parameters have the same names as in a
/// [`MaskedLanguageModel`](crate::MaskedLanguageModel), so that a classifier can begin with the
/// weights of such a model.
#[derive(Debug, Clone)]
pub struct TextClassifier {
    core: ModelCore,
    classes: usize,
    encoder: TextEncoder,
    pooling: TextPooling,
    head: ClassHead,
}

impl TextClassifier {
    /// Makes a model with `classes` classes from `builder`.
    ///
    /// # Errors
    /// If the configuration is impossible, or the device has no memory left.
    pub fn new(
        config: &ModelConfig,
        vocabulary: usize,
        classes: usize,
        builder: Builder,
    ) -> Result<Self> {
        let mut builder = builder.of_transformer(config)?;
        let build = &mut builder;
        let encoder = TextEncoder::with_embedding(build, config, vocabulary)?;
        let pooling = TextPooling::new(build, config)?;
        let head = ClassHead::new(build, "classes", classes, config)?;
        Ok(Self { core: builder.finish(config, &["text"]), classes, encoder, pooling, head })
    }

    /// Number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Computes one state for each of B texts, `(B, D)`, from which the class of the text is
    /// predicted.
    fn pooled(&self, (segments, text): (&Sequences, &Sequences), pass: &Pass) -> Result<Tensor> {
        if text.lengths.contains(&0) {
            return Err(ModelError::Batch("a text is empty".to_owned()));
        }
        let hidden = self.encoder.states((segments, text), pass)?; // (N, D), N tokens
        Ok(self.pooling.forward(&hidden, &text.lengths, pass)?)
    }

    /// Computes the logits of the classes for each text, in f32. `segments` has 0 for tokens of a
    /// first text, and 1 for tokens of a second text.
    ///
    /// # Shapes
    /// B texts → `(B, C)`, where C is the number of classes.
    ///
    /// # Errors
    /// If an id is not in the vocabulary, if a segment is neither 0 nor 1, if the number of
    /// segments is not the number of tokens, or if a text is empty or longer than the learned
    /// positions.
    pub fn logits(&self, segments: &Sequences, text: &Sequences) -> Result<Tensor> {
        let pass = Pass::evaluate();
        let pooled = self.pooled((segments, text), &pass)?;
        let rows = (0..text.lengths.len() as u32).collect();
        Ok(self.head.logits(&pooled, rows, &pass)?)
    }
}

/// Reads the segments and the text. The class of a text is predicted at its first token.
impl Model for TextClassifier {
    fn core(&self) -> &ModelCore {
        &self.core
    }

    fn answer_classes(&self) -> Option<usize> {
        Some(self.classes)
    }

    fn loss_of_pass(&self, batch: &Batch, spec: LossSpec<'_>) -> Result<LossOutput> {
        let [segments, text] = batch.read(["segments", "text"])?;
        if batch.asked.as_deref() != Some(&*first_rows(&text.lengths)) {
            return Err(ModelError::Batch(
                "a classifier is asked for the first token of each text".to_owned(),
            ));
        }
        let pooled = self.pooled((segments, text), spec.pass)?;
        let rows = (0..text.lengths.len() as u32).collect();
        Ok(self.head.loss((&pooled, rows), &batch.answers, spec)?)
    }
}
