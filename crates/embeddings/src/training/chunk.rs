//! Chunks: parts of the text as word ids, and the context windows in them.

use std::path::PathBuf;

use taper_data::Draws;

use super::corpus::{Place, Sentences};
use super::negatives::Negatives;
use super::vocabulary::Vocabulary;
use super::{Architecture, TrainingSettings};
use crate::Result;

/// Number of pieces into which a chunk is divided. The context windows of different pieces are
/// found in parallel. The number is fixed, so that no result depends on the number of threads.
pub(super) const PIECES: usize = super::blocks::BLOCKS;

/// Part of the key of the random draws that keep or drop the words of the text. The draws of window
/// sizes and negatives have [`WINDOWS`] in their key instead, so that the two kinds of draws are
/// independent.
const KEEPING: u64 = 1;
const WINDOWS: u64 = 2;

/// Chunk of the text: complete sentences, without words that are too rare, and without words that
/// were dropped at random.
#[derive(Debug, Clone, Default)]
pub(super) struct Chunk {
    words: Vec<u32>,
    /// End of each sentence in `words`.
    ends: Vec<usize>,
    /// Number of words of the text that were read, including those that are not in `words`.
    pub(super) read: u64,
    /// Place where the next chunk begins.
    pub(super) next: Place,
}

/// Reader of chunks.
pub(super) struct Chunks<'a> {
    sentences: Sentences<'a>,
    vocabulary: &'a Vocabulary,
    /// For each word, the share of its occurrences that is kept, times 2³².
    kept: &'a [u64],
    draws: Draws,
    /// Number of words of this epoch read so far.
    words: u64,
    /// Number of words of a full chunk. The chunk ends with the sentence that reaches this number.
    size: u64,
}

impl Architecture {
    /// Number of words of a chunk. With a larger chunk, threads have more work between two waits
    /// for each other. But CBOW computes all means from the vectors as they were before the chunk,
    /// so a chunk must not be too large.
    pub(super) fn chunk(self) -> u64 {
        match self {
            Self::SkipGram => 1 << 14,
            Self::Cbow => 1 << 13,
        }
    }
}

impl<'a> Chunks<'a> {
    /// Opens the chunks of an epoch from `place` on. `words`: number of words of the epoch before
    /// `place`.
    ///
    /// # Errors
    /// When a file cannot be opened.
    pub(super) fn open(
        files: &'a [PathBuf],
        vocabulary: &'a Vocabulary,
        kept: &'a [u64],
        settings: &TrainingSettings,
        epoch: u64,
        (place, words): (Place, u64),
    ) -> Result<Self> {
        let sentences = Sentences::open(files, settings.lowercase, place)?;
        let draws = Draws::new(settings.seed, epoch, KEEPING);
        let size = settings.architecture.chunk();
        Ok(Self { sentences, vocabulary, kept, draws, words, size })
    }

    /// Reads the next chunk into `chunk`; returns `false` if there is none.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn read(&mut self, chunk: &mut Chunk) -> Result<bool> {
        chunk.words.clear();
        chunk.ends.clear();
        let (vocabulary, kept, draws, first) = (self.vocabulary, self.kept, self.draws, self.words);
        while self.words - first < self.size {
            let (words, list) = (&mut self.words, &mut chunk.words);
            let more = self.sentences.next(|word| {
                *words += 1;
                if let Some(id) = vocabulary.id(word)
                    && draws.bits(*words) >> 32 < kept[id as usize]
                {
                    list.push(id);
                }
            })?;
            if !more {
                break;
            }
            if chunk.ends.last().copied().unwrap_or(0) < chunk.words.len() {
                chunk.ends.push(chunk.words.len());
            }
        }
        chunk.read = self.words - first;
        chunk.next = self.sentences.place();
        Ok(chunk.read > 0)
    }
}

/// Random numbers for the windows and negatives of a chunk.
pub(super) struct Sampling<'a> {
    negatives: &'a Negatives,
    window: usize,
    count: usize,
    draws: Draws,
    chunk: u64,
}

/// Random numbers for the negatives of one piece.
pub(super) struct NegativeDraws<'a> {
    table: &'a Negatives,
    draws: Draws,
    drawn: u64,
    count: usize,
}

impl NegativeDraws<'_> {
    /// Draws negatives for `target`, and passes them to `take`. If `target` itself is drawn, it is
    /// dropped.
    #[inline(always)]
    pub(super) fn draw(&mut self, target: u32, mut take: impl FnMut(u32)) {
        for _ in 0..self.count {
            let word = self.table.draw(self.draws.bits(self.drawn));
            self.drawn += 1;
            if word != target {
                take(word);
            }
        }
    }
}

impl<'a> Sampling<'a> {
    /// Makes the random numbers for the chunk with the index `chunk` in an epoch.
    pub(super) fn new(
        negatives: &'a Negatives,
        settings: &TrainingSettings,
        epoch: u64,
        chunk: u64,
    ) -> Self {
        let draws = Draws::new(settings.seed, epoch, WINDOWS);
        Self { negatives, window: settings.window, count: settings.negatives, draws, chunk }
    }

    /// Passes each word of a piece to `take`, together with the context words before it, the
    /// context words after it, and a source of negatives. Context words are in the same sentence.
    /// Their number on each side is drawn at random from 1 to the size of the window, and is
    /// smaller at the ends of a sentence.
    #[inline(always)]
    pub(super) fn windows(
        &self,
        chunk: &Chunk,
        piece: usize,
        mut take: impl FnMut(u32, [&[u32]; 2], &mut NegativeDraws<'_>),
    ) {
        let words = &chunk.words;
        let (first, last) = (words.len() * piece / PIECES, words.len() * (piece + 1) / PIECES);
        let draws = self.draws.within(self.chunk, 2 * piece as u64);
        let mut negatives = NegativeDraws {
            table: self.negatives,
            draws: self.draws.within(self.chunk, 2 * piece as u64 + 1),
            drawn: 0,
            count: self.count,
        };
        let mut sentence = chunk.ends.partition_point(|&end| end <= first);
        for middle in first..last {
            if chunk.ends[sentence] <= middle {
                sentence += 1;
            }
            let start = sentence.checked_sub(1).map_or(0, |before| chunk.ends[before]);
            let reach =
                1 + (((draws.bits(middle as u64) >> 32) * self.window as u64) >> 32) as usize;
            let before = &words[start.max(middle.saturating_sub(reach))..middle];
            let behind = &words[middle + 1..chunk.ends[sentence].min(middle + 1 + reach)];
            take(words[middle], [before, behind], &mut negatives);
        }
    }
}
