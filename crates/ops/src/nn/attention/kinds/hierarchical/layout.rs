//! Positions of sequences and of their summaries in memory, and the keys that the tokens of a chunk
//! see. [`HierarchicalSpec`] explains chunks, levels and summaries.

use crate::float::Float;
use crate::nn::attention::kinds::heads::PackedLayout;
use crate::spec::attention::kinds::{HierarchicalSpec, Hierarchy};
use std::ops::Range;

/// Number of queries that are processed at a time.
pub(super) const QUERIES: usize = 64;

/// Position of a sequence in the packed rows (one for each real token), and of its summaries among
/// all summaries.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) number: usize,
    pub(super) first: usize,
    pub(super) length: usize,
    /// Number of chunks at each level, from level 1 on.
    pub(super) counts: Vec<usize>,
    /// For each level, the index of its first summary among all summaries of the sequence.
    pub(super) levels: Vec<usize>,
    /// Index of the sequence's first summary among the summaries of all sequences.
    pub(super) summary: usize,
}

/// Layout of the data of hierarchical attention on the host.
pub(super) struct Layout {
    pub(super) spec: HierarchicalSpec,
    pub(super) hierarchy: Hierarchy,
    pub(super) tokens: usize,
    /// Width of a head.
    pub(super) head: usize,
    pub(super) sequences: Vec<Sequence>,
}

/// Keys that the tokens of a level-1 chunk see: first summaries, then the tokens of the chunk. They
/// are the same for all heads.
pub(super) struct ChunkKeys<T> {
    /// Ranges of the summaries' indices, among the summaries of the sequence.
    pub(super) summaries: Vec<Range<usize>>,
    /// Number of summaries.
    pub(super) count: usize,
    /// Packed rows of the tokens in the chunk.
    pub(super) tokens: Range<usize>,
    /// For each key, a number that is added to the scores of queries with this key. For a summary,
    /// it is the logarithm of the number of its tokens; for a token, it is 0.
    pub(super) added: Vec<T>,
    /// Index of each key among the places that a query has in the dropout mask.
    pub(super) places: Vec<u32>,
}

impl Sequence {
    /// Returns the number of the sequence's summaries at all levels.
    pub(super) fn summaries(&self) -> usize {
        self.counts.iter().sum()
    }
}

impl<T> ChunkKeys<T> {
    pub(super) fn all(&self) -> usize {
        self.count + self.tokens.len()
    }

    /// Divides the queries of the chunk into blocks. Returns, for each block, the index within the
    /// chunk of its first query, and the packed rows of its queries.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (usize, Range<usize>)> + use<T> {
        let tokens = self.tokens.clone();
        tokens
            .clone()
            .step_by(QUERIES)
            .map(move |first| (first - tokens.start, first..tokens.end.min(first + QUERIES)))
    }
}

impl PackedLayout for Layout {
    type Sequence = Sequence;

    fn heads(&self) -> (usize, usize) {
        (self.spec.heads, self.head)
    }

    fn sequences(&self) -> &[Sequence] {
        &self.sequences
    }

    fn length(sequence: &Sequence) -> usize {
        sequence.length
    }
}

impl Layout {
    pub(super) fn new(spec: &HierarchicalSpec, width: usize) -> Self {
        let hierarchy = spec.hierarchy();
        let (mut first, mut summary) = (0, 0);
        let sequence = |(number, &length): (usize, &usize)| {
            let counts = hierarchy.counts(length);
            let starts = counts.iter().scan(0, |next, count| {
                *next += count;
                Some(*next - count)
            });
            let levels = starts.collect();
            let all: usize = counts.iter().sum();
            (first, summary) = (first + length, summary + all);
            Sequence {
                number,
                first: first - length,
                length,
                counts,
                levels,
                summary: summary - all,
            }
        };
        let sequences = spec.lengths.iter().enumerate().map(sequence).collect();
        let tokens = spec.lengths.iter().sum();
        Self { spec: spec.clone(), hierarchy, tokens, head: width / spec.heads, sequences }
    }

    /// Returns the number of summaries of all sequences.
    pub(super) fn summaries(&self) -> usize {
        self.sequences.last().map_or(0, |last| last.summary + last.summaries())
    }

    /// Returns the index of the first element of a sequence's summaries in one head: of the mean
    /// keys (`part` 1) or the mean values (2).
    pub(super) fn summaries_at(&self, sequence: &Sequence, head: usize, part: usize) -> usize {
        let of_head = 2 * head + part - 1;
        (sequence.summary * 2 * self.spec.heads + of_head * sequence.summaries()) * self.head
    }

    /// Returns the keys that the tokens of a chunk see.
    pub(super) fn seen<T: Float>(&self, sequence: &Sequence, chunk: usize) -> ChunkKeys<T> {
        let (size, length) = (self.hierarchy.chunk, sequence.length);
        let first = chunk * size;
        let tokens = sequence.first + first..sequence.first + length.min(first + size);
        let (mut summaries, mut added, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (level, among, place) in self.hierarchy.seen(chunk, &sequence.counts) {
            let tokens = |index| self.hierarchy.tokens(level, index, length) as f64;
            added.extend(among.clone().map(|index| T::cast(tokens(index).ln())));
            places.extend((place..place + among.len()).map(|place| place as u32));
            let start = sequence.levels[level - 1];
            summaries.push(start + among.start..start + among.end);
        }
        let count = added.len();
        added.resize(count + tokens.len(), T::default());
        places.extend(0..tokens.len() as u32);
        ChunkKeys { summaries, count, tokens, added, places }
    }

    /// Returns the index that a query's first weight has in the dropout mask. The query is given by
    /// its chunk, and its index in the chunk.
    pub(super) fn mask_start(
        &self,
        sequence: &Sequence,
        head: usize,
        (chunk, query): (usize, usize),
    ) -> u32 {
        let longest = self.spec.lengths.iter().copied().max().unwrap_or(0);
        let (size, chunks) = (self.hierarchy.chunk, longest.div_ceil(self.hierarchy.chunk));
        let row = (sequence.number * self.spec.heads + head) * chunks + chunk;
        ((row * size + query) * self.hierarchy.places()) as u32
    }
}
