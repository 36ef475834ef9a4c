//! Positions of dual chunk attention (An et al. 2024, "Training-Free Long-Context Scaling of Large
//! Language Models", section 3). With these positions, no distance between a query and a key is
//! larger than in training.

use std::ops::Range;

/// Chunks of dual chunk attention: rotary positions of keys and queries in texts longer than in
/// training.
///
/// The text is divided into chunks of `s` tokens. The position of the key of token `j` is counted
/// from the beginning of its chunk: it is `j mod s`. The query of token `i` is rotated three times,
/// once for each kind of chunk that it sees ([`queries`](Self::queries)). Its distance from a key
/// is always below `c`, the length of the longest sequence in training:
///
/// | chunk of the key | distance |
/// |---|---|
/// | the query's chunk | `i − j` |
/// | the chunk before it, for the first `w` queries of a chunk | `s + i mod s − j mod s = i − j` |
/// | the chunk before it, for later queries | `c − 1 − j mod s` |
/// | an earlier chunk | `c − 1 − j mod s` |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DualChunk {
    /// Number of tokens in a chunk, `s`: at least 1 and at most `trained`.
    pub chunk: usize,
    /// Number of queries at the start of each chunk, `w`, whose distances from the keys of the
    /// previous chunk are the true distances. It is at most `trained − chunk`.
    pub window: usize,
    /// Length of the longest sequence in training, `c`.
    pub trained: usize,
}

impl DualChunk {
    /// Number of times that each query is rotated.
    pub const ROTATIONS: usize = 3;

    /// Returns the reason why these numbers are impossible; `None` if they are possible.
    #[must_use]
    pub fn fault(self) -> Option<&'static str> {
        if self.chunk == 0 {
            return Some("a chunk must have at least one token");
        }
        (self.chunk.saturating_add(self.window) > self.trained).then_some(
            "chunk and window together must be at most as long as the sequences of training",
        )
    }

    /// Returns the position by which the key of token `token` is rotated (section 3.1).
    #[must_use]
    pub fn key(self, token: usize) -> usize {
        token % self.chunk
    }

    /// Returns the three positions by which the query of token `token` is rotated. They are for
    /// keys of the same chunk (section 3.1), of the chunk before it (section 3.3), and of earlier
    /// chunks (section 3.2).
    #[must_use]
    pub fn queries(self, token: usize) -> [usize; Self::ROTATIONS] {
        let (within, farthest) = (token % self.chunk, self.trained - 1);
        let successive = if within < self.window { self.chunk + within } else { farthest };
        [within, successive, farthest]
    }

    /// Returns the index of the query's rotation that applies to a key. `query` and `key` are token
    /// indices, and the key is not after the query.
    #[must_use]
    pub fn rotation(self, query: usize, key: usize) -> usize {
        let chunks = (query / self.chunk).saturating_sub(key / self.chunk);
        chunks.min(Self::ROTATIONS - 1)
    }

    /// Returns the range of queries whose rotation with index `rotation` applies to this key.
    pub(crate) fn queries_of(self, key: usize, rotation: usize) -> Range<usize> {
        let start = (key / self.chunk).saturating_add(rotation).saturating_mul(self.chunk);
        match rotation {
            2.. => start..usize::MAX,
            _ => start..start.saturating_add(self.chunk),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with figure 2 of the paper: 12 tokens, `s = 6`, `w = 4`, `c = 10`, copied by hand.
    #[test]
    fn distances_are_those_of_the_figure_of_the_paper() {
        let chunks = DualChunk { chunk: 6, window: 4, trained: 10 };
        assert_eq!(chunks.fault(), None);
        let expected: [&[usize]; 12] = [
            &[0],
            &[1, 0],
            &[2, 1, 0],
            &[3, 2, 1, 0],
            &[4, 3, 2, 1, 0],
            &[5, 4, 3, 2, 1, 0],
            &[6, 5, 4, 3, 2, 1, 0],
            &[7, 6, 5, 4, 3, 2, 1, 0],
            &[8, 7, 6, 5, 4, 3, 2, 1, 0],
            &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
            &[9, 8, 7, 6, 5, 4, 4, 3, 2, 1, 0],
            &[9, 8, 7, 6, 5, 4, 5, 4, 3, 2, 1, 0],
        ];
        for (query, row) in expected.iter().enumerate() {
            for (key, &distance) in row.iter().enumerate() {
                let at = chunks.queries(query)[chunks.rotation(query, key)];
                assert_eq!(at - chunks.key(key), distance, "query {query}, key {key}");
            }
        }
        for (query, key) in (0..30).flat_map(|query| (0..=query).map(move |key| (query, key))) {
            for rotation in 0..DualChunk::ROTATIONS {
                let has = chunks.queries_of(key, rotation).contains(&query);
                assert_eq!(has, chunks.rotation(query, key) == rotation, "{query} {key}");
            }
        }
        // Queries of the third chunk see the first chunk from the farthest position in training.
        assert_eq!([12, 13, 17].map(|query| chunks.rotation(query, 5)), [2; 3]);
        assert_eq!(chunks.queries(13), [1, 7, 9]);
    }

    #[test]
    fn impossible_chunks_have_a_fault() {
        let chunks = DualChunk { chunk: 3, window: 1, trained: 4 };
        assert_eq!(chunks.fault(), None);
        assert!(DualChunk { chunk: 0, ..chunks }.fault().is_some());
        assert!(DualChunk { window: 2, ..chunks }.fault().is_some());
        assert!(DualChunk { chunk: usize::MAX, ..chunks }.fault().is_some());
    }
}
