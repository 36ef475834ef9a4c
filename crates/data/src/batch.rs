//! Batches of host-side ids, the same for every task, and where they stand in a run.

use serde::{Deserialize, Serialize};

/// What one step reads and should answer, packed: the rows of a stream one after another, without
/// padding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// What the model is given, in its order of streams: of translation the source and the target
    /// shifted right, of a language model its text, of a classifier of images their values, of
    /// functions the bits of numbers. Each stream has one row for each example.
    pub streams: Vec<Stream>,
    /// The rows of ids of the last stream that are asked, ascending; none where each is.
    pub asked: Option<Vec<u32>>,
    /// The true id of each that is asked; of functions the bits of a number.
    pub answers: Vec<u32>,
    /// Where each example stands in the corpus: the line of a pair or the number of an image or
    /// function, counted from 1, or the first token of a block, counted from 0.
    pub indices: Vec<usize>,
    /// Of pairs with word links, rows of the target with the rows of the source that the answers
    /// there are linked with, ascending; elsewhere none.
    pub links: Vec<(u32, u32)>,
}

/// Rows of ids, one after another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    /// The ids of all rows.
    pub ids: Vec<u32>,
    /// The number of ids of each row.
    pub lengths: Vec<usize>,
}

impl Stream {
    /// Adds a row.
    pub(crate) fn push(&mut self, row: impl IntoIterator<Item = u32>) {
        let before = self.ids.len();
        self.ids.extend(row);
        self.lengths.push(self.ids.len() - before);
    }

    /// Takes the last row away.
    pub(crate) fn pop(&mut self) {
        let length = self.lengths.pop().unwrap_or(0);
        self.ids.truncate(self.ids.len() - length);
    }
}

impl Batch {
    /// The number of examples: sentence pairs, or blocks.
    pub fn examples(&self) -> usize {
        self.indices.len()
    }

    /// The ids of a stream, and their number in each row.
    ///
    /// # Panics
    ///
    /// If the batch has no such stream.
    pub fn stream(&self, stream: usize) -> (&[u32], &[usize]) {
        let stream = &self.streams[stream];
        (&stream.ids, &stream.lengths)
    }
}

/// Names a batch of a run.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Position {
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// The batch within it, counted from 0.
    pub batch: usize,
}
