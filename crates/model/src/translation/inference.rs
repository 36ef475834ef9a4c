//! Decoding one token at a time. Keys and values are cached, and weights are packed: arranged in
//! the order in which matrix kernels read them.

use super::TranslationModel;
use crate::layers::attention::DecodedRows;
use crate::layers::head::Head;
use crate::{Model, ModelError, Pass, Result, Sequences};
use candle_core::Tensor;
use std::sync::Arc;
use taper_ops::PackedWeights;

/// Approximate upper bound on the number of logits in a block on the CPU. Logits are computed in
/// blocks of rows. A block of this size takes 4 MiB in f32, so that it stays in the cache of the
/// processor until it is read.
const LOGITS: usize = 1 << 20;
/// This number times the width of the hidden states is a second upper bound on the number of logits
/// in a block on the CPU. It makes the blocks of narrow models smaller, so that the hidden states
/// of a block stay in the cache of one core. With smaller blocks, the output weights are read more
/// often, but a narrow model has few of them.
const LOGITS_PER_COLUMN: usize = 1 << 11;
/// Largest number of logits in a block on a GPU: 64 MiB in f32. Each block is copied to main memory
/// separately, so few large blocks are better than many small ones.
const DEVICE_LOGITS: usize = 1 << 24;
/// The number of rows in a block is a multiple of this number, which suits the matrix kernels.
const ROWS: usize = 32;

/// A translation model prepared for decoding.
///
/// It shares the model's weights, and packs each on first use; after further training, the model
/// must be prepared again.
#[derive(Debug)]
pub struct Inference {
    model: TranslationModel,
    packs: Arc<PackedWeights>,
}

/// State of the decoder. Each row is a hypothesis; several rows can have the same source.
#[derive(Debug, Clone)]
pub struct DecodeState {
    /// Tensors that are computed once from the sources, such as keys and values.
    pub(super) of_sources: Vec<Tensor>,
    /// Cached past of each hypothesis. The range of a hypothesis says which rows of the tensors
    /// `of_sources` belong to its source.
    pub(super) rows: DecodedRows,
    /// Output projection to the tokens of a shortlist (the only tokens that can be predicted);
    /// `None` if logits are computed for all tokens, by the model's own output projection.
    output: Option<Arc<ShortlistedOutput>>,
}

/// Output projection to a few tokens, with their packed weights.
#[derive(Debug)]
struct ShortlistedOutput {
    head: Head,
    tokens: usize,
    packs: Arc<PackedWeights>,
}

impl DecodeState {
    /// Number of hypotheses.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows.count()
    }

    /// Number of target tokens decoded so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.rows.history.len()
    }

    /// Keeps, repeats and drops rows: row `i` becomes a copy of the former row `rows[i]`.
    ///
    /// # Errors
    /// If a row does not exist.
    pub fn select(&mut self, rows: &[usize]) -> Result<()> {
        self.rows.select(rows)
    }
}

/// Returns an iterator over blocks of logits; a block is computed when the iterator reaches it.
/// `hidden` has the states of `rows` rows, `vocabulary` is the number of logits of a row, and
/// `logits` projects the states of a block.
pub(crate) fn in_blocks(
    hidden: Tensor,
    rows: usize,
    vocabulary: usize,
    logits: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync,
) -> impl Iterator<Item = Result<Tensor>> {
    let width = hidden.elem_count() / rows.max(1);
    let most = match hidden.device().is_cpu() {
        true => LOGITS.min(width * LOGITS_PER_COLUMN),
        false => DEVICE_LOGITS,
    };
    let block = (most / vocabulary).max(1).next_multiple_of(ROWS);
    (0..rows).step_by(block).map(move |first| {
        let hidden = hidden.narrow(0, first, block.min(rows - first))?;
        taper_ops::threads::in_pool(hidden.device(), || logits(&hidden))
    })
}

impl TranslationModel {
    /// Prepares the model for decoding.
    #[must_use]
    pub fn inference(&self) -> Inference {
        Inference { model: self.clone(), packs: self.core.packs(self.is_int8) }
    }

    /// Prepares a model that is only used for decoding, in int8 if `is_int8` is true. This must be
    /// called before the parameters are loaded. When the weight of a linear layer is loaded, it is
    /// packed for decoding, and its own values are freed, so that it is in memory only once. Then
    /// only [`TranslationModel::inference`] computes with the model; other passes return an error.
    pub fn only_decode(&mut self, is_int8: bool) {
        self.is_int8 = is_int8;
        self.core.only_decode(is_int8);
    }

    /// Rounds the weights to int8. From then on, [`TranslationModel::inference`] multiplies in
    /// int8; other passes compute as before, with the rounded weights.
    ///
    /// # Errors
    /// If a weight is not finite.
    pub fn round_to_int8(&mut self) -> Result<()> {
        self.is_int8 = true;
        Ok(self.parameters().round_to_int8()?)
    }
}

impl Inference {
    /// The model itself.
    #[must_use]
    pub fn model(&self) -> &TranslationModel {
        &self.model
    }

    /// Encodes the sources, and makes a state with one row for each.
    ///
    /// # Errors
    /// The errors of [`TranslationModel::encode`].
    pub fn start(&self, source: &Sequences) -> Result<DecodeState> {
        self.start_with(source, None)
    }

    /// Starts like [`Inference::start`], but only the given `tokens`, a shortlist, can be
    /// predicted. The logits of a step then have a column for each of these tokens, in their order.
    ///
    /// # Errors
    /// The errors of [`Inference::start`], and an error if there are no tokens, or if a token is
    /// not in the vocabulary.
    pub fn start_shortlisted(&self, source: &Sequences, tokens: &[u32]) -> Result<DecodeState> {
        if tokens.is_empty() {
            return Err(ModelError::Batch("a shortlist has no tokens".to_owned()));
        }
        let output = taper_ops::threads::in_pool(self.model.device(), || {
            let head = self.model.output.of_classes(tokens, &self.packs)?;
            let (tokens, is_int8) = (tokens.len(), self.model.is_int8);
            let packs = if is_int8 { PackedWeights::int8() } else { PackedWeights::default() };
            let packs = Arc::new(packs);
            Ok::<_, candle_core::Error>(ShortlistedOutput { head, tokens, packs })
        })?;
        self.start_with(source, Some(Arc::new(output)))
    }

    fn start_with(
        &self,
        source: &Sequences,
        output: Option<Arc<ShortlistedOutput>>,
    ) -> Result<DecodeState> {
        taper_ops::threads::in_pool(self.model.device(), || {
            let pass = Pass::infer(&self.packs);
            let encoded = self.model.encode(source, &pass)?;
            let (of_sources, layers) = self.model.layers.start(&encoded, &pass)?;
            let rows = DecodedRows { layers, history: Vec::new(), ranges: encoded.ranges() };
            Ok(DecodeState { of_sources, rows, output })
        })
    }

    /// Feeds the newest token of each row, and returns the logits of the row's next token, in f32.
    /// They come in blocks of rows, each `(rows of the block, V)`, and a block is computed when the
    /// iterator reaches it. V is the number of tokens of the shortlist, or of the vocabulary
    /// without a shortlist.
    ///
    /// # Errors
    /// If there is not one token for each row, or a token is not in the vocabulary.
    pub fn step(
        &self,
        state: &mut DecodeState,
        tokens: &[u32],
    ) -> Result<impl Iterator<Item = Result<Tensor>>> {
        let rows = state.rows();
        state.rows.check(tokens)?;
        let hidden =
            taper_ops::threads::in_pool(self.model.device(), || self.hidden(state, tokens))?;
        let output = state.output.clone();
        let columns = output.as_ref().map_or(self.model.vocab_target(), |output| output.tokens);
        Ok(in_blocks(hidden, rows, columns, move |hidden| match &output {
            Some(output) => Ok(output.head.logits(hidden, &Pass::infer(&output.packs))?),
            None => self.model.logits(hidden, &Pass::infer(&self.packs)),
        }))
    }

    fn hidden(&self, state: &mut DecodeState, tokens: &[u32]) -> Result<Tensor> {
        let pass = Pass::infer(&self.packs);
        let at: Arc<[u32]> = vec![state.position() as u32; tokens.len()].into();
        let x = self.model.target_embedding.step(tokens, &at, &pass)?; // (R, D), R rows
        state.rows.advance();
        Ok(self.model.layers.step(x, state, &at, &pass)?)
    }
}
