//! What a layer remembers of the tokens so far, while a model decodes.

use candle_core::{Device, Result, Tensor};
use std::ops::Range;
use taper_ops::Cache;

/// What a layer remembers. A kind of attention uses what it needs of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayerPast {
    /// Keys and values `2·D` of the texts that were read as a whole, and of the rows that there were
    /// at each step: [`PastRows`] tells which of them a row has for its past.
    pub(crate) cache: Cache,
    /// What is kept of each row in constant memory, `(R, …)`; none before the first token.
    pub(crate) running: Option<Tensor>,
}

/// Which keys and values are a row's past: the same for all layers.
pub(crate) struct PastRows<'a> {
    /// For each row, its range of what was read; empty where nothing ever is.
    pub(crate) read: &'a [Range<usize>],
    /// For each step and row, the row of its block.
    pub(crate) history: &'a [Vec<u32>],
}

/// Texts that are read as a whole, packed.
pub(crate) struct Texts<'a> {
    /// Tokens of each.
    pub(crate) lengths: &'a [usize],
    /// For each token the range of the tokens up to itself in its text.
    pub(crate) seen: &'a [Range<usize>],
    /// The row of each text.
    pub(crate) rows: &'a [usize],
    /// Rows that there are.
    pub(crate) count: usize,
}

impl LayerPast {
    /// Row `i` becomes what row `rows[i]` was, of what is kept a row.
    pub(crate) fn select(&mut self, rows: &[usize]) -> Result<()> {
        if let Some(running) = &mut self.running {
            let rows = rows.iter().map(|&row| row as u32).collect();
            *running = chosen(running, rows)?;
        }
        Ok(())
    }

    /// Puts what is kept of some texts, `(texts, …)`, in their rows; other rows that had nothing get
    /// zeros.
    pub(crate) fn put_running(&mut self, of_texts: Tensor, texts: &Texts<'_>) -> Result<()> {
        let width = of_texts.dim(1)?;
        let before = match &self.running {
            Some(running) => running.clone(),
            None => Tensor::zeros((texts.count, width), of_texts.dtype(), of_texts.device())?,
        };
        let mut from: Vec<u32> = (0..texts.count as u32).collect();
        for (text, &row) in texts.rows.iter().enumerate() {
            from[row] = (texts.count + text) as u32;
        }
        self.running = Some(chosen(&Tensor::cat(&[before, of_texts], 0)?, from)?);
        Ok(())
    }

    /// Forgets what is kept of some rows.
    pub(crate) fn forget(&mut self, rows: &[usize]) -> Result<()> {
        let Some(running) = &self.running else { return Ok(()) };
        let (count, width) = running.dims2()?;
        let nothing = Tensor::zeros((rows.len(), width), running.dtype(), running.device())?;
        self.put_running(nothing, &Texts { lengths: &[], seen: &[], rows, count })
    }
}

fn chosen(x: &Tensor, rows: Vec<u32>) -> Result<Tensor> {
    let (count, device): (_, &Device) = (rows.len(), x.device());
    x.index_select(&Tensor::from_vec(rows, count, device)?, 0)
}
