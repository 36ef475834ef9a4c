//! Extractor of spans (Devlin et al. 2019, section 4.2): an encoder, and two logits from the state
//! of each token. One is for the first token, and one for the last token, of the span that answers
//! a question.

use crate::config::ModelConfig;
use crate::cost::PartCost;
use crate::layers::encoders::text::{TextEncoder, first_rows};
use crate::layers::head::Head;
use crate::layers::places::loss_of_places;
use crate::{
    Batch, Builder, LossOutput, LossSpec, Model, ModelCore, ModelError, Pass, Result, Sequences,
};
use candle_core::Tensor;

/// Number of logits per token: one as the first token of an answer, and one as the last.
const ENDS: usize = 2;

/// An extractor of spans with its parameters. The encoder's parameters have the same names as in a
/// [`MaskedLanguageModel`](crate::MaskedLanguageModel), so that an extractor can begin with the
/// weights of such a model.
///
/// For each end of the span, the logits become probabilities by a softmax over all tokens of a
/// text, as in BERT. The first token, `<cls>`, stands for "no answer".
#[derive(Debug, Clone)]
pub struct SpanExtractor {
    core: ModelCore,
    vocabulary: usize,
    encoder: TextEncoder,
    head: Head,
}

impl SpanExtractor {
    /// Makes a model from `builder`.
    ///
    /// # Errors
    /// If the configuration is impossible, or the device has no memory left.
    pub fn new(config: &ModelConfig, vocabulary: usize, builder: Builder) -> Result<Self> {
        let mut builder = builder.of_transformer(config)?;
        let build = &mut builder;
        let encoder = TextEncoder::with_embedding(build, config, vocabulary)?;
        let weight = build.matrix("span.weight", ENDS, config.d_model, 1)?;
        // The backward pass keeps the logits, padded and shifted, and their exponentials.
        build.count(PartCost::product(config.d_model, ENDS).keeping(8 * ENDS));
        let head = Head::new(build, "span", (weight, ENDS), true)?;
        let core = builder.finish(config, &["text"]);
        Ok(Self { core, vocabulary, encoder, head })
    }

    /// Number of tokens in the vocabulary.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn logits_of(&self, (segments, text): (&Sequences, &Sequences), pass: &Pass) -> Result<Tensor> {
        if text.lengths.contains(&0) {
            return Err(ModelError::Batch("a text is empty".to_owned()));
        }
        let states = self.encoder.states((segments, text), pass)?; // (N, D), N tokens
        Ok(self.head.logits(&states, pass)?) // (N, 2)
    }

    /// Computes two logits for each token, in f32: as the first and as the last token of the
    /// answer. `segments` has 0 for tokens of the question, and 1 for tokens of the context.
    ///
    /// # Shapes
    /// N tokens → `(N, 2)`.
    ///
    /// # Errors
    /// If an id is not in the vocabulary, if a segment is neither 0 nor 1, if the number of
    /// segments is not the number of tokens, or if a text is empty or longer than the learned
    /// positions.
    pub fn logits(&self, segments: &Sequences, text: &Sequences) -> Result<Tensor> {
        self.logits_of((segments, text), &Pass::evaluate())
    }
}

/// Reads the segments and the text. Each text has two answers, both at its first token: the
/// indices, from 0 in the text, of the first and of the last token of its span.
impl Model for SpanExtractor {
    fn core(&self) -> &ModelCore {
        &self.core
    }

    /// Computes `Σ (CE(start) + CE(end))` over the texts. BERT's loss of a text is half of
    /// CE(start) + CE(end); since a text has two answers here, the mean over answers equals BERT's
    /// mean over texts.
    fn loss_of_pass(&self, batch: &Batch, spec: LossSpec<'_>) -> Result<LossOutput> {
        let [segments, text] = batch.read(["segments", "text"])?;
        let twice =
            first_rows(&text.lengths).iter().flat_map(|&row| [row; ENDS]).collect::<Vec<_>>();
        if batch.asked.as_ref() != Some(&twice) {
            return Err(ModelError::Batch(
                "a span is asked for at the first token of each text, twice: for its start and \
                 its end"
                    .to_owned(),
            ));
        }
        let ends = text.lengths.iter().flat_map(|&length| [length; ENDS]);
        if let Some((place, tokens)) =
            batch.answers.iter().zip(ends).find(|&(&place, tokens)| place as usize >= tokens)
        {
            return Err(ModelError::Batch(format!(
                "an answer starts or ends at token {place} of a text of {tokens}, counted from 0"
            )));
        }
        let logits = self.logits_of((segments, text), spec.pass)?;
        Ok(loss_of_places(&logits, &text.lengths, &batch.answers, spec)?)
    }
}
