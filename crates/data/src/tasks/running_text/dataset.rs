//! Tokenised running text, and its blocks of a fixed number of tokens.

use std::path::Path;
use std::sync::Arc;

use crate::draws::Draws;
use crate::text::cache::{Cache, HEADER_BYTES, ID_BYTES, Key, ids};
use crate::{
    Batch, BatchingConfig, BatchingReport, Dataset, END, Epoch, EpochPlan, Report, Result,
    RunningTextConfig, Stream, TextReport,
};

/// Purpose number of the random draws that place blocks in the text (see [`Epoch::draws`]).
const PURPOSE: u64 = 5;

/// Storage of ids.
#[derive(Debug)]
enum Ids {
    OnDisk(Cache),
    InMemory(Vec<u32>),
}

/// Running text as one sequence of ids. The ids stay on disk until they are used, so a text may be
/// larger than the memory.
#[derive(Debug)]
pub struct TextDataset {
    ids: Ids,
    tokens: u64,
    block_length: usize,
    /// Token that begins a document, if a row must not contain text of several documents.
    barrier: Option<u32>,
    report: TextReport,
}

impl TextDataset {
    /// Opens the cache at `path`; `None` if the cache is incomplete or has another key. `config`
    /// determines the blocks. `end` is the token between documents.
    pub(crate) fn open(
        path: &Path,
        key: &Key,
        config: &RunningTextConfig,
        end: u32,
        batching: &BatchingConfig,
    ) -> Result<Option<Self>> {
        let opened = Cache::open(path, key, |items| {
            items.skip(items.count.saturating_mul(ID_BYTES as u64))?;
            Ok(items.count)
        })?;
        let block_length = config.block_length;
        let barrier = config.barrier.then_some(end);
        Ok(opened.map(|(cache, tokens, mut report): (_, _, TextReport)| {
            let rows = batching.rows_of(block_length);
            let batches = Blocks::number(tokens, block_length, rows, batching.shuffle);
            report.batching = BatchingReport::of_rows(batches, rows, block_length);
            Self { ids: Ids::OnDisk(cache), tokens, block_length, barrier, report }
        }))
    }

    /// Makes a data set of ids in memory. `config` determines the blocks.
    pub(crate) fn in_memory(ids: Vec<u32>, config: &RunningTextConfig, report: TextReport) -> Self {
        let (tokens, block_length) = (ids.len() as u64, config.block_length);
        Self { ids: Ids::InMemory(ids), tokens, block_length, barrier: None, report }
    }

    /// Number of tokens of a block.
    pub(crate) fn block_length(&self) -> usize {
        self.block_length
    }

    /// The number of tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Report on the text.
    pub fn report(&self) -> &TextReport {
        &self.report
    }

    /// Reads `count` ids, from the index `from` on.
    ///
    /// # Errors
    ///
    /// If the file can no longer be read, or ends too early.
    pub fn read(&self, from: u64, count: usize) -> Result<Vec<u32>> {
        match &self.ids {
            Ids::OnDisk(cache) => {
                let at = HEADER_BYTES as u64 + from * ID_BYTES as u64;
                Ok(ids(&cache.read(at, count * ID_BYTES)?).collect())
            }
            Ids::InMemory(ids) => Ok(ids[from as usize..][..count].to_vec()),
        }
    }
}

impl Dataset for TextDataset {
    fn plan(self: Arc<Self>, batching: &BatchingConfig, epoch: Epoch) -> Box<dyn EpochPlan> {
        let rows = batching.rows_of(self.block_length);
        Box::new(Blocks::new(self, rows, batching.shuffle.then_some(epoch)))
    }

    fn report(&self) -> Report<'_> {
        Report::Text(&self.report)
    }

    fn longest_row(&self) -> usize {
        self.block_length
    }

    fn largest_batch(&self, tokens: usize) -> Batch {
        let mut text = Stream::default();
        for _ in 0..(tokens / self.block_length).max(1) {
            text.push(std::iter::repeat_n(END, self.block_length));
        }
        let (answers, indices) = (text.ids.clone(), vec![0; text.lengths.len()]);
        Batch { streams: vec![text], asked: None, answers, indices, ..Batch::default() }
    }
}

/// Adds a block to `text` and the indices of its rows to `indices`. The block becomes one row. If
/// `barrier` has the token that begins documents, the block becomes one row for each document in it
/// instead. The index of a row is the position of its first token in the text. `start` is the
/// position of the first token of the block.
pub(crate) fn push_rows(
    block: &[u32],
    start: usize,
    barrier: Option<u32>,
    text: &mut Stream,
    indices: &mut Vec<usize>,
) {
    let begins = |at: usize| at > 0 && barrier == Some(block[at]);
    let mut first = 0;
    for end in (1..=block.len()).filter(|&at| at == block.len() || begins(at)) {
        text.push(block[first..end].iter().copied());
        indices.push(start + first);
        first = end;
    }
}

/// Blocks of one epoch. At each token of a block, the model predicts the next token of the text.
///
/// If batches are shuffled, the place of each block is random and depends only on the seed, the
/// epoch and the index of the block. An epoch has as many blocks as fit into the text. nanoGPT
/// draws blocks in the same way, but without epochs. If batches are not shuffled, blocks follow
/// each other, and every token except the first is predicted once.
pub(crate) struct Blocks {
    text: Arc<TextDataset>,
    rows: usize,
    drawn: Option<Draws>,
}

impl Blocks {
    /// Makes batches of `rows` blocks. If `drawn` is an epoch, the blocks are at random places; if
    /// it is `None`, they follow each other.
    pub(crate) fn new(text: Arc<TextDataset>, rows: usize, drawn: Option<Epoch>) -> Self {
        Self { text, rows, drawn: drawn.map(|epoch| epoch.draws(PURPOSE)) }
    }

    /// Number of batches into which a text of `tokens` tokens is divided, each of `rows` blocks.
    /// `drawn` is true if the blocks are at random places.
    pub(crate) fn number(tokens: u64, block_length: usize, rows: usize, drawn: bool) -> usize {
        let length = block_length as u64;
        let batches = if drawn {
            (tokens / (length * rows as u64)).max(1)
        } else {
            tokens.saturating_sub(1).div_ceil(length).div_ceil(rows as u64)
        };
        batches as usize
    }

    /// Index in the text of the first token of a block, and the number of tokens of the block.
    pub(crate) fn place(&self, block: u64) -> (u64, usize) {
        let (tokens, length) = (self.text.tokens, self.text.block_length as u64);
        match self.drawn {
            Some(draws) => {
                // The high half of the product is a random place, uniform with a bias of at most
                // 2^-32 for texts of up to 2^32 tokens. At each possible place, the block is
                // followed by at least one more token, which the last token of the block predicts.
                let wide =
                    u128::from(draws.bits(block)) * u128::from(tokens.saturating_sub(length));
                ((wide >> 64) as u64, length.min(tokens.saturating_sub(1)) as usize)
            }
            None => {
                let start = block * length;
                (start, length.min(tokens.saturating_sub(start + 1)) as usize)
            }
        }
    }
}

impl EpochPlan for Blocks {
    fn batches(&self) -> usize {
        Self::number(self.text.tokens, self.text.block_length, self.rows, self.drawn.is_some())
    }

    fn batch(&self, batch: usize) -> Result<Batch> {
        let mut text = Stream::default();
        let (mut answers, mut indices) = (Vec::new(), Vec::with_capacity(self.rows));
        for row in 0..self.rows {
            let (start, length) = self.place((batch * self.rows + row) as u64);
            if length == 0 {
                break;
            }
            let ids = self.text.read(start, length + 1)?;
            answers.extend_from_slice(&ids[1..]);
            push_rows(&ids[..length], start as usize, self.text.barrier, &mut text, &mut indices);
        }
        Ok(Batch { streams: vec![text], asked: None, answers, indices, ..Batch::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_short_text_end_with_the_text() {
        let config = RunningTextConfig { block_length: 4, ..RunningTextConfig::default() };
        for tokens in 2..6 {
            let ids = (10..10 + tokens).collect();
            let text = Arc::new(TextDataset::in_memory(ids, &config, TextReport::default()));
            for epoch in [None, Some(Epoch::new(1, 0))] {
                let batch = Blocks::new(text.clone(), 1, epoch).batch(0).expect("it fits");
                let (read, _) = batch.stream(0);
                let answers: Vec<u32> = read.iter().map(|id| id + 1).collect();
                assert_eq!((read.len(), batch.answers), (tokens.min(5) as usize - 1, answers));
            }
        }
    }
}
