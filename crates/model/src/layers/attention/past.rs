//! State of a layer while a model decodes.

use crate::ModelError;
use crate::layers::positions::PreparedPositions;
use candle_core::{Device, Result, Tensor};
use std::ops::Range;
use taper_ops::Cache;

/// Past tokens of a layer. Each attention kind uses the fields that it needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayerPast {
    /// Keys and values `2·D` of the texts that were read as a whole, and of the rows of each step:
    /// [`PastRows`] says which of them are the past of a row.
    pub(crate) cache: Cache,
    /// State of constant size for each row, `(R, …)`; `None` before the first token.
    pub(crate) running: Option<Tensor>,
}

/// State of the rows that a decoder writes.
///
/// Keys and values are written once and never move: `ranges` says which of the keys that were read
/// as a whole belong to a row, and `history` which of the keys that were added token by token.
/// Linear attention keeps sums for each row instead, and recurrent layers keep states.
#[derive(Debug, Clone)]
pub(crate) struct DecodedRows {
    /// State of each layer.
    pub(crate) layers: Vec<LayerPast>,
    /// Row in its block for each step and row.
    pub(crate) history: Vec<Vec<u32>>,
    /// Range of each row in what was read as a whole: its source, or the beginning of its text.
    pub(crate) ranges: Vec<Range<usize>>,
}

impl DecodedRows {
    /// Number of rows.
    pub(crate) fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Refuses any other number of tokens than one for each row.
    pub(crate) fn check(&self, tokens: &[u32]) -> std::result::Result<(), ModelError> {
        match (tokens.len(), self.count()) {
            (tokens, rows) if tokens != rows => Err(ModelError::Tokens { tokens, rows }),
            _ => Ok(()),
        }
    }

    /// Adds a token to the history of each row.
    pub(crate) fn advance(&mut self) {
        self.history.push((0..self.count() as u32).collect());
    }

    /// Keeps, repeats and drops rows: row `i` becomes what row `rows[i]` was.
    ///
    /// # Errors
    /// When a row does not exist.
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

/// Keys and values that are the past of each row: the same for all layers.
pub(crate) struct PastRows<'a> {
    /// Range of the text that each row has read; empty if none was read.
    pub(crate) read: &'a [Range<usize>],
    /// Row of each row's token in the block of each step.
    pub(crate) history: &'a [Vec<u32>],
    /// Positions of the new tokens.
    pub(crate) positions: &'a PreparedPositions,
}

/// Texts that are read as a whole, packed.
#[cfg_attr(not(feature = "kinds"), expect(dead_code, reason = "a softmax needs two of them"))]
pub(crate) struct Texts<'a> {
    /// Number of tokens of each text.
    pub(crate) lengths: &'a [usize],
    /// Range of the tokens that each token sees: the tokens of its text up to itself.
    pub(crate) seen: &'a [Range<usize>],
    /// Row of each text.
    pub(crate) rows: &'a [usize],
    /// Number of rows.
    pub(crate) count: usize,
    pub(crate) positions: &'a PreparedPositions,
}

impl LayerPast {
    /// Moves the state of each row: row `i` becomes what row `rows[i]` was.
    pub(crate) fn select(&mut self, rows: &[usize]) -> Result<()> {
        if let Some(running) = &mut self.running {
            let rows = rows.iter().map(|&row| row as u32).collect();
            *running = chosen(running, rows)?;
        }
        Ok(())
    }

    /// Writes the states of texts, `(texts, …)`, to their `rows` of `count`; other rows that had no
    /// state get zeros.
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

    /// Clears the state of some rows.
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
