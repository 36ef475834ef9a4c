//! Rows of text in which some tokens are hidden.

use std::sync::Arc;

use crate::draws::Draws;
use crate::tasks::masked::hiding::Words;
use crate::tasks::running_text::dataset::Blocks;
use crate::text::tokenizer::special::Marks;
use crate::{
    Batch, BatchingConfig, BatchingReport, Dataset, Epoch, EpochPlan, Error, MaskedConfig, Report,
    Result, Stream, TextDataset, TextReport,
};

/// Purpose number of the random draws that hide tokens (see [`Epoch::draws`]).
const HIDING: u64 = 6;
/// Purpose number of the random draws that pair texts.
const PAIRING: u64 = 7;

/// If a batch has no rows, later blocks are tried: at most all blocks of an epoch or, if an epoch
/// has fewer blocks, this many. If they have no rows either, this is an error.
const LEAST_TRIES: u64 = 100;

/// Running text from which rows with hidden tokens are made.
///
/// A row is made from a part of a block, which is a sequence of successive tokens of the text. A
/// row never crosses the end of a document. It has the form `<cls> text <sep>`, or `<cls> first
/// <sep> second <sep>` if it has two texts. The choice of hidden tokens depends only on the seed,
/// the epoch, the index of the block, and the index of the part in the block.
#[derive(Debug)]
pub struct MaskedDataset {
    text: Arc<TextDataset>,
    words: Words,
    config: MaskedConfig,
    /// Largest number of tokens of a row, including the marks `<cls>` and `<sep>`.
    row_length: usize,
    /// Id of the token between documents.
    end: u32,
    report: TextReport,
}

impl MaskedDataset {
    /// Number of marks in a row: `<cls>`, and a `<sep>` after each text.
    pub(crate) fn marks(config: &MaskedConfig) -> usize {
        if config.next_sentence { 3 } else { 2 }
    }

    pub(crate) fn new(
        text: Arc<TextDataset>,
        words: Words,
        config: &MaskedConfig,
        (row_length, end): (usize, u32),
        batching: &BatchingConfig,
    ) -> Self {
        let rows = batching.rows_of(row_length);
        let batches = Blocks::number(text.tokens(), text.block_length(), rows, batching.shuffle);
        let mut report = text.report().clone();
        report.batching = BatchingReport::of_rows(batches, rows, row_length);
        Self { text, words, config: config.clone(), row_length, end, report }
    }

    /// The text from which rows are made.
    pub fn text(&self) -> &TextDataset {
        &self.text
    }

    /// Divides a piece, which is a part of a block within one document, into two texts. Returns the
    /// length of the first text, the ids of the second text, and 1 if the second text was taken
    /// from elsewhere, otherwise 0. Returns `None` if the piece is too short for two texts.
    fn pair(&self, piece: &[u32], draws: Draws) -> Result<Option<(usize, Vec<u32>, u32)>> {
        if piece.len() < 2 {
            return Ok(None);
        }
        let below = |index: u64, count: u64| {
            ((u128::from(draws.bits(index)) * u128::from(count)) >> 64) as u64
        };
        let first = 1 + below(0, piece.len() as u64 - 1) as usize;
        let second = piece[first..].to_vec();
        if draws.unit(1) < 0.5 {
            let count = second.len().min(self.text.tokens() as usize);
            let from = below(2, self.text.tokens() - count as u64 + 1);
            let other = self.text.read(from, count)?;
            // The second text of a row must not cross the end of a document either.
            let mut parts = other.split(|&id| id == self.end);
            if let Some(part) = parts.find(|part| !part.is_empty()) {
                return Ok(Some((first, part.to_vec(), 1)));
            }
        }
        Ok(Some((first, second, 0)))
    }
}

impl MaskedDataset {
    /// Upper estimate of the number of predicted tokens in a batch of `tokens` tokens. In each row,
    /// at least one token is predicted, so if documents are very short, the number of rows counts.
    /// Rows are assumed to have the mean length of the text's documents.
    fn most_asked(&self, tokens: usize) -> usize {
        let TextReport { documents, tokens: of_text, .. } = *self.text.report();
        let marks = Self::marks(&self.config);
        // Each document ends with a token that is in no row. A row has one or two texts.
        let mean = (of_text / documents.max(1)).saturating_sub(1) as usize;
        let length = mean.min(self.row_length.saturating_sub(marks)).max(marks - 1);
        let of_row = ((self.config.rate * length as f64).round() as usize).max(1);
        let of_long_rows = (self.config.rate * tokens as f64).ceil() as usize;
        (tokens / (length + marks) * of_row).max(of_long_rows).max(1)
    }
}

impl Dataset for MaskedDataset {
    fn plan(self: Arc<Self>, batching: &BatchingConfig, epoch: Epoch) -> Box<dyn EpochPlan> {
        let rows = batching.rows_of(self.row_length);
        let blocks = Blocks::new(self.text.clone(), rows, batching.shuffle.then_some(epoch));
        let [hiding, pairing] = [HIDING, PAIRING].map(|purpose| epoch.draws(purpose));
        let shuffles = batching.shuffle;
        Box::new(MaskedBlocks { data: self, blocks, rows, shuffles, hiding, pairing })
    }

    fn report(&self) -> Report<'_> {
        Report::Text(&self.report)
    }

    fn longest_row(&self) -> usize {
        self.row_length
    }

    fn largest_batch(&self, tokens: usize) -> Batch {
        let rows = (tokens / self.row_length).max(1);
        let (mut text, mut segments, mut follows) =
            (Stream::default(), Stream::default(), Stream::default());
        for _ in 0..rows {
            text.push(std::iter::repeat_n(self.end, self.row_length));
            segments.push(std::iter::repeat_n(0, self.row_length));
            follows.push([0]);
        }
        let asked = self.most_asked(rows * self.row_length) as u32;
        let asked: Vec<u32> = (0..asked).collect();
        let answers = vec![self.end; asked.len()];
        let streams = match self.config.next_sentence {
            true => vec![follows, segments, text],
            false => vec![segments, text],
        };
        Batch { streams, asked: Some(asked), answers, indices: vec![0; rows], ..Batch::default() }
    }
}

/// The batches of one epoch.
struct MaskedBlocks {
    data: Arc<MaskedDataset>,
    blocks: Blocks,
    rows: usize,
    /// True if blocks begin at random places of the text, so that any number of blocks can be
    /// requested. Otherwise blocks follow each other up to the end of the text.
    shuffles: bool,
    hiding: Draws,
    pairing: Draws,
}

impl EpochPlan for MaskedBlocks {
    fn batches(&self) -> usize {
        self.blocks.batches()
    }

    fn batch(&self, batch: usize) -> Result<Batch> {
        let first = (batch * self.rows) as u64;
        let mut rows = Rows::default();
        for number in (0..self.rows as u64).map(|row| first + row) {
            if !self.add_block(number, &mut rows)? {
                break;
            }
        }
        // Blocks may give no row: for rows with two texts, a document must have at least two
        // tokens. Then the first later block that gives a row is used.
        let blocks = ((self.batches() * self.rows) as u64).max(1);
        for number in first..first + blocks.max(LEAST_TRIES) {
            if !rows.indices.is_empty() {
                break;
            }
            self.add_block(if self.shuffles { number } else { number % blocks }, &mut rows)?;
        }
        if rows.indices.is_empty() {
            let (key, message) = match self.data.config.next_sentence {
                true => (
                    "data.masked.next_sentence",
                    "rows have two texts, but no document has two tokens: set it to false",
                ),
                false => ("data.train", "its documents have no tokens: name files with text"),
            };
            return Err(Error::Config { key, message: message.to_owned() });
        }
        let Rows { text, segments, follows, asked, answers, indices } = rows;
        let streams = match self.data.config.next_sentence {
            true => vec![follows, segments, text],
            false => vec![segments, text],
        };
        Ok(Batch { streams, asked: Some(asked), answers, indices, ..Batch::default() })
    }
}

/// Rows of a batch.
#[derive(Default)]
struct Rows {
    text: Stream,
    segments: Stream,
    /// For each row with two texts, 0 if the second text follows the first, otherwise 1.
    follows: Stream,
    asked: Vec<u32>,
    answers: Vec<u32>,
    indices: Vec<usize>,
}

impl MaskedBlocks {
    /// Adds the rows of the block with the number `number` to `rows`. Returns `false` if the text
    /// has no such block.
    fn add_block(&self, number: u64, rows: &mut Rows) -> Result<bool> {
        let data = &self.data;
        let Marks { class, separator, .. } = data.words.marks;
        let (start, length) = self.blocks.place(number);
        if length == 0 {
            return Ok(false);
        }
        let block = data.text.read(start, length)?;
        let pieces = block.split(|&id| id == data.end).enumerate();
        for (piece, ids) in pieces.filter(|(_, ids)| !ids.is_empty()) {
            let mut row = vec![class];
            let mut first = ids.len();
            if data.config.next_sentence {
                let draws = self.pairing.within(number, piece as u64);
                let Some((at, second, is_other)) = data.pair(ids, draws)? else { continue };
                first = at;
                row.extend_from_slice(&ids[..at]);
                row.push(separator);
                row.extend(second);
                rows.follows.push([is_other]);
            } else {
                row.extend_from_slice(ids);
            }
            row.push(separator);
            if rows.text.ids.len() + row.len() > self.rows * data.row_length {
                // Many short documents need many marks, so their rows may exceed the limit of the
                // batch. Then the rest of the block is left out.
                if data.config.next_sentence {
                    rows.follows.pop();
                }
                break;
            }
            let draws = self.hiding.within(number, piece as u64);
            let found = data.words.hide(&mut row, &data.config, draws);
            let before = rows.text.ids.len();
            for (at, id) in found {
                rows.asked.push((before + at) as u32);
                rows.answers.push(id);
            }
            // In a row with two texts, the segment of the first text also contains `<cls>` and the
            // first `<sep>`.
            let of_first = if data.config.next_sentence { first + 2 } else { row.len() };
            rows.segments.push((0..row.len()).map(|at| u32::from(at >= of_first)));
            rows.text.push(row);
            rows.indices.push(start as usize);
        }
        Ok(true)
    }
}
