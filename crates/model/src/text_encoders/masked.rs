//! The masked language model (Devlin et al. 2019, section 3.1): it predicts masked tokens from the
//! tokens on both sides and, optionally, whether one text follows another.

use crate::config::{ModelConfig, Tied};
use crate::cost::PartCost;
use crate::layers::encoders::text::{Pooler, TextEncoder, first_rows};
use crate::layers::head::{Head, asked_rows};
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::{
    Batch, Builder, LossOutput, LossSpec, Model, ModelCore, ModelError, Pass, Result, Sequences,
};
use candle_core::Tensor;
use taper_ops::{Activation, Dropout, composed};

/// Share of tokens that are masked and predicted, for the calculation of costs alone. The actual
/// share is that of the batch.
const ASKED: f64 = 0.15;

/// A masked language model with its parameters.
///
/// It is the encoder of a [`ModelConfig`]. Depending on `tied`, its embedding is also the output
/// projection.
#[derive(Debug, Clone)]
pub struct MaskedLanguageModel {
    core: ModelCore,
    vocabulary: usize,
    encoder: TextEncoder,
    transform: Linear,
    activation: Activation,
    norm: Norm,
    output: Head,
    next_sentence: Option<(Pooler, Head)>,
}

impl MaskedLanguageModel {
    /// Makes a model. If `next_sentence` is true, it has a head that predicts whether the second of
    /// two texts follows the first in the original.
    ///
    /// # Errors
    /// If the configuration is impossible, or the device has no memory left.
    pub fn new(
        config: &ModelConfig,
        vocabulary: usize,
        next_sentence: bool,
        builder: Builder,
    ) -> Result<Self> {
        let mut builder = builder.of_transformer(config)?;
        let build = &mut builder;
        let width = config.d_model;
        let table = build.token_table("embedding.weight", vocabulary, width)?;
        let output = match config.tied {
            Tied::None | Tied::Embeddings => {
                build.token_table("output.weight", vocabulary, width)?
            }
            Tied::Decoder | Tied::All => table.clone(),
        };
        let encoder = TextEncoder::new(build, table, config)?;
        let at_predicted = |part: PartCost| part.times_a_token(ASKED);
        let transform = build.counted_as(at_predicted, |build| {
            build.count(PartCost::kept(width));
            Linear::new(build, "transform", width, width, 1)
        })?;
        let norm = Norm::new(build, "transform_norm", width, config)?;
        let output = build.counted_as(at_predicted, |build| {
            Head::of_vocabulary(build, (output, vocabulary), config, true)
        })?;
        let next_sentence = if next_sentence {
            let pooler = Pooler::new(build, width)?;
            let weight = build.matrix("next_sentence.weight", 2, width, 1)?;
            Some((pooler, Head::new(build, "next_sentence", (weight, 2), true)?))
        } else {
            None
        };
        Ok(Self {
            core: builder.finish(config, &["text"]),
            vocabulary,
            encoder,
            transform,
            activation: config.activation.into(),
            norm,
            output,
            next_sentence,
        })
    }

    /// Number of parameters in embeddings, encoder and pooler. Published parameter counts of BERT
    /// cover the same parts, and omit the heads for pretraining.
    #[must_use]
    pub fn body_parameters(config: &ModelConfig, vocabulary: usize) -> u64 {
        let body = |build: &mut Builder| {
            TextEncoder::with_embedding(build, config, vocabulary)?;
            Pooler::new(build, config.d_model)
        };
        Builder::part_cost(config.biases, body).parameters
    }

    /// Number of tokens in the vocabulary.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Encodes whole texts. `segments` has 0 or 1 for each token: whether the token belongs to the
    /// first or to the second sentence of a pair.
    ///
    /// # Shapes
    /// N tokens → `(N, D)`, one row for each token, one text after the other; D is the width of the
    /// model.
    ///
    /// # Errors
    /// If an id is not in the vocabulary, if a segment is neither 0 nor 1, or if a text is longer
    /// than the learned positions.
    pub fn hidden(&self, text: &Sequences, segments: &[u32], pass: &Pass) -> Result<Tensor> {
        text.check()?;
        Ok(self.encoder.forward(text, segments.into(), pass)?)
    }

    /// Transforms the states at which tokens are predicted to inputs of the output projection:
    /// `(A, D)` → `(A, D)` for A predicted tokens.
    fn transformed(&self, rows: &Tensor, pass: &Pass) -> Result<Tensor> {
        let x = self.transform.activated(rows, self.activation, Dropout::none(), pass)?;
        Ok(self.norm.forward(&x, pass)?)
    }

    /// Computes the logits of tokens, in f32, from the given rows of hidden states.
    ///
    /// # Shapes
    /// `(A, D)` → `(A, V)` for A rows, where V is the size of the vocabulary.
    ///
    /// # Errors
    /// If the width of `rows` is not the model's.
    pub fn logits(&self, rows: &Tensor, pass: &Pass) -> Result<Tensor> {
        Ok(self.output.logits(&self.transformed(rows, pass)?, pass)?)
    }

    /// Computes two logits for each text, in f32: those of "follows" and "does not follow".
    /// `hidden` has the states of texts with these lengths. Returns `None` if the model has no such
    /// head.
    ///
    /// # Shapes
    /// `(N, D)`, lengths of B texts → `(B, 2)`.
    ///
    /// # Errors
    /// If the width differs from the model's, or the lengths do not fit.
    pub fn next_sentence_logits(
        &self,
        hidden: &Tensor,
        lengths: &[usize],
        pass: &Pass,
    ) -> Result<Option<Tensor>> {
        let Some((pooler, head)) = &self.next_sentence else { return Ok(None) };
        let pooled = pooler.forward(hidden, first_rows(lengths), pass)?;
        Ok(Some(head.logits(&pooled, pass)?))
    }

    /// Computes the loss of the masked tokens. If there is a head for next sentences, it adds the
    /// mean of the head's loss over pairs of texts, multiplied by the number of masked tokens. So
    /// in the mean over masked tokens, both losses have the same weight, as in the paper.
    fn loss_of(
        &self,
        (text, segments, follows): (&Sequences, &Sequences, Option<&Sequences>),
        batch: &Batch,
        spec: LossSpec<'_>,
    ) -> Result<LossOutput> {
        let pass = spec.pass;
        let hidden = self.encoder.states((segments, text), pass)?;
        let rows = self.transformed(&asked_rows(&hidden, batch, pass)?, pass)?;
        let tokens = self.output.loss_of_rows(&rows, &batch.answers, spec)?;
        let (Some((pooler, head)), Some(follows)) = (&self.next_sentence, follows) else {
            return Ok(tokens);
        };
        if follows.lengths.iter().any(|&length| length != 1) {
            return Err(ModelError::Batch("each pair of texts needs one answer".to_owned()));
        }
        let pooled = pooler.forward(&hidden, first_rows(&text.lengths), pass)?;
        let weight = batch.tokens() as f64 / follows.ids.len().max(1) as f64;
        let of_pairs = LossSpec { scale: spec.scale * weight, ..spec };
        let pairs = head.loss_of_rows(&pooled, &follows.ids, of_pairs)?;
        let losses = [&tokens.loss, &pairs.loss];
        let loss = composed::on_tape(pass.tape(), "sum of losses", &losses, |losses| {
            &losses[0] + &losses[1]
        })?;
        let objective_sum = tokens.objective_sum + weight * pairs.objective_sum;
        Ok(LossOutput { loss, objective_sum, ..tokens })
    }
}

/// Reads two streams (kinds of input of a batch), the segments and the text, and predicts the
/// masked tokens. If there is a head for next sentences, the batch has another stream before these
/// two. That stream has one answer for each pair of texts: 0 if the second text follows the first,
/// otherwise 1.
impl Model for MaskedLanguageModel {
    fn core(&self) -> &ModelCore {
        &self.core
    }

    fn answer_classes(&self) -> Option<usize> {
        Some(self.vocabulary)
    }

    fn loss_of_pass(&self, batch: &Batch, spec: LossSpec<'_>) -> Result<LossOutput> {
        if self.next_sentence.is_some() {
            let [follows, segments, text] = batch.read(["follows", "segments", "text"])?;
            self.loss_of((text, segments, Some(follows)), batch, spec)
        } else {
            let [segments, text] = batch.read(["segments", "text"])?;
            self.loss_of((text, segments, None), batch, spec)
        }
    }
}
