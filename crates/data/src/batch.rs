//! Batches of ids (such as token ids) in host memory, in one form for all tasks, and the position
//! of a batch in a training.

use serde::{Deserialize, Serialize};

/// Inputs and correct answers of one training step. The inputs are packed: in each [`Stream`], the
/// rows (such as token sequences) follow each other, without padding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// One stream for each input of the model, in the model's order. For translation, the streams
    /// are the source, and the target shifted by one token; for a language model, the text; for a
    /// classifier of images, pixel values; for regression, the bit patterns of numbers. Each stream
    /// has one row for each example.
    pub streams: Vec<Stream>,
    /// Indices, in ascending order, of the ids in the last stream at which the model makes a
    /// prediction. `None` if it makes a prediction at every id.
    pub asked: Option<Vec<u32>>,
    /// Correct id for each prediction; for regression, the bit pattern of the correct number.
    pub answers: Vec<u32>,
    /// Place of each example in its corpus. For a sentence pair, it is the line, counted from 1.
    /// For an image, or a linear function of a regression task, it is the number, counted from 1.
    /// For a block of running text, it is the index of the block's first token, counted from 0.
    pub indices: Vec<usize>,
    /// Word alignment of sentence pairs. Each link is the index of an id in the target stream,
    /// followed by the index of the linked id in the source stream. The links are in ascending
    /// order. Empty if the corpora have no links.
    pub links: Vec<(u32, u32)>,
}

/// Rows of ids, one after another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    /// Ids of all rows.
    pub ids: Vec<u32>,
    /// Number of ids of each row.
    pub lengths: Vec<usize>,
}

impl Stream {
    pub(crate) fn push(&mut self, row: impl IntoIterator<Item = u32>) {
        let before = self.ids.len();
        self.ids.extend(row);
        self.lengths.push(self.ids.len() - before);
    }

    pub(crate) fn pop(&mut self) {
        let length = self.lengths.pop().unwrap_or(0);
        self.ids.truncate(self.ids.len() - length);
    }
}

impl Batch {
    /// Number of examples, such as sentence pairs or blocks of running text.
    pub fn examples(&self) -> usize {
        self.indices.len()
    }

    /// Ids of the stream with the index `stream`, and the number of ids in each of its rows.
    ///
    /// # Panics
    ///
    /// If the batch has no such stream.
    pub fn stream(&self, stream: usize) -> (&[u32], &[usize]) {
        let stream = &self.streams[stream];
        (&stream.ids, &stream.lengths)
    }
}

/// Position of a batch in a run.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Position {
    /// Number of the epoch, counted from 0.
    pub epoch: u64,
    /// Number of the batch within the epoch, counted from 0.
    pub batch: usize,
}
