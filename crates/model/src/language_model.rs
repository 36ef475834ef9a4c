//! Decoder-only Transformer (Liu et al. 2018, section 4.2.3; Radford et al. 2018): it predicts each
//! token of a text from the tokens before it.

use crate::config::{ModelConfig, Tied};
use crate::cost::LayerCost;
use crate::layers::embedding::TokenEmbedding;
use crate::layers::head::Head;
use crate::layers::stack::Stack;
use crate::layers::stack::StackKind;
use crate::layers::stack::block::Block;
use crate::translation::in_blocks;
use crate::{
    Batch, Builder, LossOutput, LossSpec, Model, ModelCore, ModelError, Pass, Result, Sequences,
};
use candle_core::Tensor;

/// A language model with its parameters: embedding, causal layers, projection to the vocabulary.
///
/// It is the decoder of a [`ModelConfig`], without attention to an encoder. Whether its one
/// embedding is also the output projection depends on `tied`.
#[derive(Debug, Clone)]
pub struct LanguageModel {
    pub(crate) core: ModelCore,
    vocabulary: usize,
    pub(crate) embedding: TokenEmbedding,
    pub(crate) decoder: Stack,
    pub(crate) output: Head,
    /// Whether the matrix products of generation are in int8.
    pub(crate) is_int8: bool,
}

impl LanguageModel {
    /// Makes a model from `builder`.
    ///
    /// # Errors
    /// If the configuration is impossible, or the device has no memory left.
    pub fn new(config: &ModelConfig, vocabulary: usize, builder: Builder) -> Result<Self> {
        let mut builder = builder.of_transformer(config)?;
        let build = &mut builder;
        let table = build.token_table("embedding.weight", vocabulary, config.d_model)?;
        let output = match config.tied {
            Tied::None | Tied::Embeddings => {
                build.token_table("output.weight", vocabulary, config.d_model)?
            }
            Tied::Decoder | Tied::All => table.clone(),
        };
        let embedding = TokenEmbedding::new(build, "decoder", table, config)?;
        let layers = config.decoder_layers;
        let decoder = Stack::new(build, "decoder", config, layers, StackKind::DecoderOnly)?;
        let output = Head::of_vocabulary(build, (output, vocabulary), config, config.output_bias)?;
        let (core, is_int8) = (builder.finish(config, &["text"]), false);
        Ok(Self { core, vocabulary, embedding, decoder, output, is_int8 })
    }

    /// Number of tokens in the vocabulary.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Runs the layers on whole texts; each token sees itself and the tokens before it.
    ///
    /// # Shapes
    /// N tokens → `(N, D)`, one row for each token, one text after the other; D is the width of the
    /// model.
    ///
    /// # Errors
    /// If an id is not in the vocabulary, or a text is longer than the learned positions.
    pub fn hidden(&self, text: &Sequences, pass: &Pass) -> Result<Tensor> {
        text.check()?;
        let x = self.embedding.forward(text, pass)?; // (N, D)
        Ok(self.decoder.forward(x, text, None, pass)?) // (N, D)
    }

    /// Applies the output projection, in f32.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, V)`, where V is the size of the vocabulary.
    ///
    /// # Errors
    /// If the width of `hidden` is not the model's.
    pub fn logits(&self, hidden: &Tensor, pass: &Pass) -> Result<Tensor> {
        Ok(self.output.logits(hidden, pass)?)
    }

    /// Returns the natural logarithms of the probabilities of `answers`. There is one answer for
    /// each token of `text`; it is predicted from that token and the tokens before it.
    ///
    /// # Errors
    /// The errors of [`LanguageModel::hidden`], and an error if the number of answers is not the
    /// number of tokens, or an answer is not in the vocabulary.
    pub fn log_probabilities(&self, text: &Sequences, answers: &[u32]) -> Result<Vec<f64>> {
        let rows = text.ids.len();
        if answers.len() != rows || answers.iter().any(|&id| id as usize >= self.vocabulary) {
            return Err(ModelError::Batch(format!(
                "{rows} tokens need {rows} answers below {}, not {}",
                self.vocabulary,
                answers.len()
            )));
        }
        let hidden = || self.hidden(text, &Pass::evaluate());
        let hidden = taper_ops::threads::in_pool(self.core.store.device(), hidden)?;
        let mut log_probabilities = Vec::with_capacity(rows);
        let logits = |rows: &Tensor| self.logits(rows, &Pass::evaluate());
        for block in in_blocks(hidden, rows, self.vocabulary, logits) {
            for row in block?.to_vec2::<f32>()? {
                let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = row.iter().map(|&x| f64::from(x - highest).exp()).sum();
                let answer = answers[log_probabilities.len()] as usize;
                log_probabilities.push(f64::from(row[answer] - highest) - sum.ln());
            }
        }
        Ok(log_probabilities)
    }
}

/// Reads one stream (kind of input of a batch), the text. Each of its tokens predicts the next one.
impl Model for LanguageModel {
    fn core(&self) -> &ModelCore {
        &self.core
    }

    fn layer_cost(config: &ModelConfig, layer: usize) -> LayerCost {
        Block::cost(config, StackKind::DecoderOnly, layer)
    }

    fn answer_classes(&self) -> Option<usize> {
        Some(self.vocabulary)
    }

    fn loss_of_pass(&self, batch: &Batch, spec: LossSpec<'_>) -> Result<LossOutput> {
        let [text] = batch.read(["text"])?;
        let hidden = self.hidden(text, spec.pass)?;
        Ok(self.output.loss(&hidden, batch, spec)?)
    }
}
