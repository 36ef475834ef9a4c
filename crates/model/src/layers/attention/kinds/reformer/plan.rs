//! Plan of which tokens meet (see each other): tokens are sorted by bucket and cut into chunks.

use super::cost::chunks_of_bucket;
use super::rotations::Rotations;
use super::{HIDDEN, ITSELF};

/// Tokens of a chunk, each as a pair: the index of the round, and the index of the token in its
/// sequence.
type Chunk = Vec<(usize, usize)>;

/// Rule by which sorted tokens are cut into chunks. Most chunks look back on the chunk before: the
/// tokens of such a chunk see the tokens of both chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Chunks {
    /// All sorted tokens are cut into chunks of this size. Each chunk looks back on the chunk
    /// before it, even if that chunk belongs to the previous round. The very first chunk looks back
    /// on the very last one.
    Sorted(usize),
    /// Each bucket is cut separately into chunks of this size. The first chunk of a bucket looks
    /// back on no chunk.
    OfBuckets(usize),
}

impl Chunks {
    pub(super) fn new(causal: bool, size: usize) -> Self {
        if causal { Self::OfBuckets(size) } else { Self::Sorted(size) }
    }

    /// Expected number of chunks in one round of one head. `shares` are the probabilities of the
    /// buckets; the number of tokens in a bucket is binomially distributed.
    pub(super) fn expected(self, length: usize, shares: &[f64]) -> f64 {
        match self {
            Self::OfBuckets(size) => {
                shares.iter().map(|&share| chunks_of_bucket(length, share, size)).sum()
            }
            Self::Sorted(size) => length.div_ceil(size) as f64,
        }
    }

    /// Cuts the tokens of a sequence into chunks, in all rounds. `bucket` returns the bucket of a
    /// token in a round. Returns the chunks and, for each of them, the index of the chunk on which
    /// it looks back, or `None` if there is no such chunk.
    fn cut(
        self,
        length: usize,
        rounds: usize,
        bucket: impl Fn(usize, usize) -> u32,
    ) -> (Vec<Chunk>, Vec<Option<usize>>) {
        let (size, mut cut, mut before) = (self.size(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let mut order: Vec<usize> = (0..length).collect();
            order.sort_by_key(|&token| (bucket(token, round), token));
            let of_round = |part: &[usize]| part.iter().map(|&t| (round, t)).collect::<Vec<_>>();
            match self {
                Self::Sorted(_) => cut.extend(order.chunks(size).map(of_round)),
                Self::OfBuckets(_) => {
                    for same in order.chunk_by(|&a, &b| bucket(a, round) == bucket(b, round)) {
                        for (number, part) in same.chunks(size).enumerate() {
                            before.push((number > 0).then(|| cut.len() - 1));
                            cut.push(of_round(part));
                        }
                    }
                }
            }
        }
        if let Self::Sorted(_) = self {
            let count = cut.len();
            // A single chunk does not look back on itself.
            let previous = |number: usize| (count > 1).then(|| (number + count - 1) % count);
            before.extend((0..count).map(previous));
        }
        (cut, before)
    }

    pub(super) fn size(self) -> usize {
        match self {
            Self::Sorted(size) | Self::OfBuckets(size) => size,
        }
    }
}

/// Which tokens meet, for all heads of all sequences. In the shapes, K is the number of chunks, C
/// the number of places in a chunk, N the number of tokens, and H the number of heads.
pub(super) struct Plan {
    /// For each place in each chunk, the index of its row, which is one head of one token; an empty
    /// place has the index `N·H`, which is after the last row. Shape: `(K, C)`.
    pub(super) queries: Vec<u32>,
    /// For each chunk, the rows of the chunk on which it looks back, and then its own rows:
    /// `(K, 2·C)`.
    pub(super) keys: Vec<u32>,
    /// Numbers that are added to scores: `(K, C, 2·C)`.
    pub(super) mask: Vec<f32>,
    /// For each round and row, the row's place in the chunks: `(rounds, N·H)`.
    pub(super) places: Vec<u32>,
    pub(super) size: usize,
}

impl Plan {
    /// Makes the plan for sequences of these lengths, given the `buckets (N, H, rounds)` of their
    /// tokens.
    pub(super) fn new(
        buckets: &[Vec<u32>],
        lengths: &[usize],
        rotations: &Rotations,
        (chunks, causal): (Chunks, bool),
    ) -> Self {
        let (heads, rounds, size) = (rotations.heads, rotations.rounds, chunks.size());
        let rows = buckets.len() * heads;
        let mut plan = Self {
            queries: Vec::new(),
            keys: Vec::new(),
            mask: Vec::new(),
            places: vec![0; rounds * rows],
            size,
        };
        let mut first = 0;
        for &length in lengths {
            for head in 0..heads {
                let row = |token: usize| ((first + token) * heads + head) as u32;
                let bucket =
                    |token: usize, round: usize| buckets[first + token][head * rounds + round];
                let (cut, before) = chunks.cut(length, rounds, bucket);
                for (chunk, before) in cut.iter().zip(before) {
                    let earlier = before.map_or(&[][..], |number| &cut[number][..]);
                    plan.add(chunk, earlier, rows, &row, causal);
                }
            }
            first += length;
        }
        // A vector that has grown can have up to twice the capacity that it needs, and these
        // vectors live until the backward pass.
        plan.mask.shrink_to_fit();
        plan.queries.shrink_to_fit();
        plan.keys.shrink_to_fit();
        plan
    }

    /// Adds `chunk`; `before` is the chunk on which it looks back. `rows` is the number of all rows
    /// (heads of tokens), and `row` returns the index of the row that belongs to a token.
    fn add(
        &mut self,
        chunk: &[(usize, usize)],
        before: &[(usize, usize)],
        rows: usize,
        row: &dyn Fn(usize) -> u32,
        causal: bool,
    ) {
        let size = self.size;
        let at = |part: &[(usize, usize)], place: usize| part.get(place).map(|&(_, token)| token);
        let met: Vec<Option<usize>> =
            (0..size).map(|p| at(before, p)).chain((0..size).map(|p| at(chunk, p))).collect();
        for place in 0..size {
            let query = at(chunk, place);
            if let Some(&(round, token)) = chunk.get(place) {
                self.places[round * rows + row(token) as usize] = self.queries.len() as u32;
            }
            self.queries.push(query.map_or(rows as u32, row));
            for key in &met {
                self.mask.push(match (query, key) {
                    (Some(query), Some(key)) if query == *key => ITSELF,
                    (Some(query), Some(key)) if causal && *key > query => HIDDEN,
                    (Some(_), Some(_)) => 0.0,
                    _ => HIDDEN,
                });
            }
        }
        self.keys.extend(met.iter().map(|key| key.map_or(rows as u32, row)));
    }
}
