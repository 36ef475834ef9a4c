//! State of a layer while a model decodes.

use crate::ModelError;
use crate::layers::positions::PreparedPositions;
use candle_core::{Device, Result, Tensor};
use std::ops::Range;
use taper_ops::Cache;

/// Past tokens of a layer. Each kind of attention uses the field that it needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayerPast {
    /// Keys and values, side by side, of the texts that were read as a whole and of the tokens of
    /// each step. [`PastRows`] says which of them are the past of a row.
    pub(crate) cache: Cache,
    /// One state of constant size for each of the R rows that are decoded, `(R, …)`; `None` before
    /// the first token.
    pub(crate) running: Option<Tensor>,
}

/// State of the rows that a decoder writes; a row is one text.
///
/// Keys and values are written once and never move. Two fields say which keys belong to each row:
/// `ranges` for the keys of texts that were read as a whole (sources or prompts), and `history` for
/// the keys that were added token by token. Linear attention keeps sums for each row instead of
/// keys, and recurrent layers keep states.
#[derive(Debug, Clone)]
pub(crate) struct DecodedRows {
    /// State of each layer.
    pub(crate) layers: Vec<LayerPast>,
    /// For each step and row, the index of the row's token in the block of keys that the step
    /// added.
    pub(crate) history: Vec<Vec<u32>>,
    /// For each row, the range of the keys of its source, or of the beginning of its text, among
    /// all keys of texts that were read as a whole.
    pub(crate) ranges: Vec<Range<usize>>,
}

impl DecodedRows {
    /// Number of rows.
    pub(crate) fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Refuses `tokens` unless there is one token for each row.
    pub(crate) fn check(&self, tokens: &[u32]) -> std::result::Result<(), ModelError> {
        match (tokens.len(), self.count()) {
            (tokens, rows) if tokens != rows => Err(ModelError::Tokens { tokens, rows }),
            _ => Ok(()),
        }
    }

    /// Adds the tokens of a step to the histories of the rows.
    pub(crate) fn advance(&mut self) {
        self.history.push((0..self.count() as u32).collect());
    }

    /// Keeps, repeats and drops rows: row `i` becomes a copy of the former row `rows[i]`.
    ///
    /// # Errors
    /// If a row does not exist.
    pub(crate) fn select(&mut self, rows: &[usize]) -> std::result::Result<(), ModelError> {
        if let Some(&row) = rows.iter().find(|&&row| row >= self.count()) {
            return Err(ModelError::Row { row, rows: self.count() });
        }
        for layer in &mut self.layers {
            layer.select(rows)?;
        }
        for block_rows in &mut self.history {
            *block_rows = rows.iter().map(|&row| block_rows[row]).collect();
        }
        self.ranges = rows.iter().map(|&row| self.ranges[row].clone()).collect();
        Ok(())
    }
}

/// Says which cached keys and values are the past of each row (text that is decoded), in every
/// layer.
pub(crate) struct PastRows<'a> {
    /// For each row, the range of its keys among those of the texts that were read as a whole. The
    /// range is empty if nothing of the row was read as a whole. There are no ranges at all if no
    /// row has such a text.
    pub(crate) read: &'a [Range<usize>],
    /// For each step and row, the index of the row's token in the block of keys that the step
    /// added.
    pub(crate) history: &'a [Vec<u32>],
    /// Positions of the new tokens, one per row.
    pub(crate) positions: &'a PreparedPositions,
}

/// Texts that are read as a whole; their tokens are packed.
#[cfg_attr(not(feature = "kinds"), expect(dead_code, reason = "a softmax needs two of them"))]
pub(crate) struct Texts<'a> {
    /// Number of tokens of each text.
    pub(crate) lengths: &'a [usize],
    /// For each token, the range of the tokens that it sees: those of its text up to itself.
    pub(crate) seen: &'a [Range<usize>],
    /// For each text, the row to which it belongs.
    pub(crate) rows: &'a [usize],
    /// Number of all rows.
    pub(crate) count: usize,
    pub(crate) positions: &'a PreparedPositions,
}

impl LayerPast {
    /// Reorders the states of rows: row `i` becomes a copy of the former row `rows[i]`.
    pub(crate) fn select(&mut self, rows: &[usize]) -> Result<()> {
        if let Some(running) = &mut self.running {
            let rows = rows.iter().map(|&row| row as u32).collect();
            *running = chosen(running, rows)?;
        }
        Ok(())
    }

    /// Writes the states of texts, `(texts, …)`, to their `rows`. `count` is the number of all
    /// rows; a row that has had no state, and gets none, is set to zeros.
    pub(crate) fn put_running(
        &mut self,
        of_texts: Tensor,
        rows: &[usize],
        count: usize,
    ) -> Result<()> {
        let width = of_texts.dim(1)?;
        let before = match &self.running {
            Some(running) => running.clone(),
            None => Tensor::zeros((count, width), of_texts.dtype(), of_texts.device())?,
        };
        let mut from: Vec<u32> = (0..count as u32).collect();
        for (text, &row) in rows.iter().enumerate() {
            from[row] = (count + text) as u32;
        }
        self.running = Some(chosen(&Tensor::cat(&[before, of_texts], 0)?, from)?);
        Ok(())
    }

    /// Sets the state of `rows` to zeros.
    pub(crate) fn forget(&mut self, rows: &[usize]) -> Result<()> {
        let Some(running) = &self.running else { return Ok(()) };
        let (count, width) = running.dims2()?;
        let nothing = Tensor::zeros((rows.len(), width), running.dtype(), running.device())?;
        self.put_running(nothing, rows, count)
    }
}

pub(super) fn chosen(x: &Tensor, rows: Vec<u32>) -> Result<Tensor> {
    let (count, device): (_, &Device) = (rows.len(), x.device());
    x.index_select(&Tensor::from_vec(rows, count, device)?, 0)
}
