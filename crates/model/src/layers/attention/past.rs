//! What a layer remembers of the tokens so far, while a model decodes.

use candle_core::{Device, Result, Tensor};
use std::ops::Range;

/// What a layer remembers. A kind of attention uses what it needs of it.
///
/// Keys and values are written once and never move: [`PastRows`] tells which of them a row has for
/// its past.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayerPast {
    /// Keys and values of the texts that were read as a whole, `(M, 2·D)`.
    pub(crate) read: Option<Tensor>,
    /// Keys and values of the rows that there were at each step, `(R_j, 2·D)`.
    pub(crate) blocks: Vec<Tensor>,
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

    /// Keeps these rows of what was read as a whole, and the steps that are marked.
    pub(crate) fn keep(&mut self, read: &[u32], steps: &[bool]) -> Result<()> {
        if let Some(kept) = &mut self.read {
            *kept = chosen(kept, read.to_vec())?;
        }
        let mut steps = steps.iter();
        self.blocks.retain(|_| steps.next().is_some_and(|&is_kept| is_kept));
        Ok(())
    }

    /// Adds keys and values of texts that were read as a whole.
    pub(crate) fn add_read(&mut self, key_value: Tensor) -> Result<()> {
        self.read = Some(match &self.read {
            Some(read) => Tensor::cat(&[read, &key_value], 0)?,
            None => key_value,
        });
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
