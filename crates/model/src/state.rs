//! Decoding one token at a time, with keys and values cached.

use crate::block::Attended;
use crate::positions::{PreparedPositions, Relative, bias};
use crate::{ModelError, Pass, Sequences, Transformer};
use candle_core::Tensor;
use std::sync::Arc;

/// What the decoder remembers of the tokens so far.
///
/// Rows are hypotheses; several may share a source. Rows of one source stay together and in the order of the sources,
/// so that they attend to its keys as one group and those are never copied.
#[derive(Debug, Clone)]
pub struct DecodeState {
    /// Keys and values of the sources, a tensor `(M, 2·D)` for each layer.
    memory: Vec<Tensor>,
    key_lengths: Arc<[usize]>,
    /// Keys and values of the target so far, `(R, t, 2·D)` for each layer.
    cache: Vec<Option<Tensor>>,
    /// The source of each row, ascending.
    sources: Vec<usize>,
    position: usize,
}

impl DecodeState {
    /// Number of hypotheses.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.sources.len()
    }

    /// Target tokens decoded so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Keeps, repeats and drops rows: row `i` becomes what row `rows[i]` was.
    ///
    /// # Errors
    /// When a row does not exist, or sources would come out of order.
    pub fn select(&mut self, rows: &[usize]) -> Result<(), ModelError> {
        if let Some(&row) = rows.iter().find(|&&row| row >= self.rows()) {
            return Err(ModelError::Row { row, rows: self.rows() });
        }
        let sources: Vec<usize> = rows.iter().map(|&row| self.sources[row]).collect();
        if !sources.is_sorted() {
            return Err(ModelError::RowOrder);
        }
        if !rows.iter().copied().eq(0..self.rows()) {
            let index: Vec<u32> = rows.iter().map(|&row| row as u32).collect();
            for tensor in self.cache.iter_mut().flatten() {
                *tensor = tensor.index_select(&Tensor::from_slice(&index, index.len(), tensor.device())?, 0)?;
            }
        }
        self.sources = sources;
        Ok(())
    }

    /// Rows of each source; 0 where all were dropped.
    fn query_lengths(&self) -> Arc<[usize]> {
        let mut counts = vec![0; self.key_lengths.len()];
        for &source in &self.sources {
            counts[source] += 1;
        }
        counts.into()
    }
}

impl Transformer {
    /// Encodes the sources and makes a state with one row for each.
    ///
    /// # Errors
    /// As [`Transformer::encode`].
    pub fn start(&self, source: &Sequences) -> Result<DecodeState, ModelError> {
        taper_ops::threads::in_pool(|| self.start_here(source))
    }

    fn start_here(&self, source: &Sequences) -> Result<DecodeState, ModelError> {
        let pass = Pass::evaluate();
        let memory = self.encode(source, &pass)?;
        let mut key_values = Vec::with_capacity(self.decoder.blocks.len());
        for block in &self.decoder.blocks {
            key_values.extend(block.key_value(&memory.hidden, &pass)?);
        }
        Ok(DecodeState {
            memory: key_values,
            key_lengths: memory.lengths,
            cache: vec![None; self.decoder.blocks.len()],
            sources: (0..source.lengths.len()).collect(),
            position: 0,
        })
    }

    /// Feeds the last token of each row and returns the logits of the next: `(R, V)`, f32.
    ///
    /// # Errors
    /// When there is not one token for each row, or a token is not in the vocabulary.
    pub fn step(&self, state: &mut DecodeState, tokens: &[u32]) -> Result<Tensor, ModelError> {
        if tokens.len() != state.rows() {
            return Err(ModelError::Tokens { tokens: tokens.len(), rows: state.rows() });
        }
        taper_ops::threads::in_pool(|| self.step_here(state, tokens))
    }

    fn step_here(&self, state: &mut DecodeState, tokens: &[u32]) -> Result<Tensor, ModelError> {
        let pass = Pass::evaluate();
        let position = state.position;
        let mut x = self.embed_step(tokens, position, &pass)?;
        let positions = match &self.decoder.relative {
            Relative::Nothing => PreparedPositions::default(),
            Relative::Rotary => PreparedPositions { rotary: Some(vec![position as u32; tokens.len()].into()), ..Default::default() },
            Relative::Alibi(slopes) => PreparedPositions { slopes: Some(slopes.clone()), ..Default::default() },
            Relative::Bias { table, causal } => PreparedPositions {
                bias: Some(bias(table.get(&pass), position..position + 1, position + 1, *causal, &pass)?),
                ..Default::default()
            },
        };
        let query_lengths = state.query_lengths();
        for ((block, cache), key_value) in self.decoder.blocks.iter().zip(&mut state.cache).zip(&state.memory) {
            let attended = Attended { key_value, query_lengths: &query_lengths, key_lengths: &state.key_lengths };
            x = block.step(&x, cache, &positions, Some(&attended), &pass)?;
        }
        state.position += 1;
        self.logits(&self.decoder.finish(x, &pass)?, &pass)
    }
}
