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

    /// All that is kept, and the rows there of the tokens that each of `count` rows has, in order.
    pub(crate) fn tokens(
        &self,
        rows: &PastRows<'_>,
        count: usize,
    ) -> Result<(Tensor, Vec<Vec<u32>>)> {
        let Some(kept) = self.cache.kept() else { candle_core::bail!("a step has no token") };
        let all = kept.in_one()?;
        let of_row = |row| all.of_query(row, rows.read, rows.history).collect();
        let of_rows = (0..count).map(of_row).collect();
        Ok((all.rows, of_rows))
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

/// Rows `of_rows` of `all`, `longest` for each, zero behind the last, or with `at_the_end` before the
/// first: `(M, W)` → `(R, T, W)`.
pub(crate) fn padded_rows(
    all: &Tensor,
    of_rows: &[Vec<u32>],
    longest: usize,
    at_the_end: bool,
) -> Result<Tensor> {
    let (nothing, width) = all.dims2()?;
    let zero = Tensor::zeros((1, width), all.dtype(), all.device())?;
    let with_zero = Tensor::cat(&[&all.contiguous()?, &zero], 0)?;
    let mut index = Vec::with_capacity(of_rows.len() * longest);
    for rows in of_rows {
        let padding = std::iter::repeat_n(nothing as u32, longest - rows.len());
        let (before, behind) =
            if at_the_end { (Some(padding), None) } else { (None, Some(padding)) };
        index.extend(before.into_iter().flatten());
        index.extend(rows);
        index.extend(behind.into_iter().flatten());
    }
    chosen(&with_zero, index)?.reshape((of_rows.len(), longest, width))
}

fn chosen(x: &Tensor, rows: Vec<u32>) -> Result<Tensor> {
    let (count, device): (_, &Device) = (rows.len(), x.device());
    x.index_select(&Tensor::from_vec(rows, count, device)?, 0)
}
