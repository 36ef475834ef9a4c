//! Skip-gram: a word predicts each of its context words (Mikolov et al. 2013).

use rayon::prelude::*;

use super::blocks::{BLOCKS, Blocks, Pair, descend, place};
use super::chunk::{Chunk, PIECES, Sampling};

/// Working space for a chunk of the text. Each piece (a sixteenth of the chunk) has one list of
/// pairs for every combination of an input block and an output block. The list of input block i and
/// output block j has the index `i * BLOCKS + j`.
pub(super) struct SkipGram {
    pieces: Vec<Vec<Vec<Pair>>>,
}

impl SkipGram {
    /// Makes the working space, without pairs.
    pub(super) fn new() -> Self {
        Self { pieces: vec![vec![Vec::new(); BLOCKS * BLOCKS]; PIECES] }
    }

    /// Makes gradient steps on a chunk. Returns the sum of the losses of every sixteenth pair, and
    /// the number of these pairs.
    ///
    /// As in word2vec, the input is the vector of a context word, which predicts the word in the
    /// middle of the window. Over a whole text, this gives about the same pairs as if each word
    /// predicted its context words.
    pub(super) fn learn(
        &mut self,
        chunk: &Chunk,
        sampling: &Sampling<'_>,
        inputs: &mut Blocks,
        outputs: &mut Blocks,
        rate: f32,
    ) -> (f64, u64) {
        self.pieces.par_iter_mut().enumerate().with_max_len(1).for_each(|(piece, lists)| {
            lists.iter_mut().for_each(Vec::clear);
            sampling.windows(chunk, piece, |middle, context, negatives| {
                for &word in context.iter().flat_map(|part| part.iter()) {
                    let (block, input) = place(word);
                    let mut put = |target: u32, together: bool| {
                        let (other, output) = place(target);
                        lists[block * BLOCKS + other].push(Pair::new(input, output, together));
                    };
                    put(middle, true);
                    negatives.draw(middle, |target| put(target, false));
                }
            });
        });
        let pieces = &self.pieces;
        let pairs =
            |i: usize, j: usize| pieces.iter().map(move |lists| lists[i * BLOCKS + j].as_slice());
        descend(&mut inputs.blocks, outputs, pairs, rate)
    }
}
