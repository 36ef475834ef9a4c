//! Continuous bag of words: the mean of the context words predicts the word in the middle (Mikolov
//! et al. 2013, "Efficient estimation of word representations in vector space").

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::blocks::{BLOCKS, Blocks, Pair, RowSums, descend, place};
use super::chunk::{Chunk, PIECES, Sampling};
use crate::lanes::{Lanes, add, scale};

/// Working space for a chunk of the text: the means of the context vectors around each word, and
/// the pairs of these means with output rows. A chunk is divided into pieces, which are processed
/// in parallel.
pub(super) struct Cbow {
    pieces: Vec<Piece>,
    /// Means, in one block for each piece. Gradient steps change them as if they were input rows.
    means: Vec<Vec<Lanes>>,
}

#[derive(Default, Clone)]
struct Piece {
    /// Means before the gradient steps; after the steps, the changes of the means.
    moved: Vec<Lanes>,
    /// For each block of output vectors, the pairs of a mean and an output row of this block.
    pairs: Vec<Vec<Pair>>,
    /// For each block of input vectors, pairs of rows: the row of a mean, and the row of a context
    /// vector from which this mean is computed.
    context: Vec<Vec<(u32, u32)>>,
}

impl Cbow {
    /// Makes the working space, without means.
    pub(super) fn new() -> Self {
        let piece = Piece {
            moved: Vec::new(),
            pairs: vec![Vec::new(); BLOCKS],
            context: vec![Vec::new(); BLOCKS],
        };
        Self { pieces: vec![piece; PIECES], means: vec![Vec::new(); PIECES] }
    }

    /// Makes gradient steps on a chunk. Returns the sum of the losses of every sixteenth pair, and
    /// the number of these pairs.
    ///
    /// All means are computed from the vectors as they were before the chunk. Then each context
    /// vector moves by the full change of its mean, as in word2vec and gensim. By the exact
    /// gradient, it would move by this change divided by the number of context words (İrsoy et al.
    /// 2021, "Corrected CBOW performs as well as skip-gram").
    pub(super) fn learn(
        &mut self,
        chunk: &Chunk,
        sampling: &Sampling<'_>,
        inputs: &mut Blocks,
        outputs: &mut Blocks,
        rate: f32,
    ) -> (f64, u64) {
        let groups = inputs.groups;
        let work = self.pieces.par_iter_mut().zip(self.means.par_iter_mut()).enumerate();
        work.with_max_len(1).for_each(|(index, (piece, means))| {
            Arch::new().dispatch(Means { chunk, sampling, inputs, index, piece, means });
        });
        let pieces = &self.pieces;
        let pairs = |i: usize, j: usize| std::iter::once(pieces[i].pairs[j].as_slice());
        let loss = descend(&mut self.means, outputs, pairs, rate);
        let work = self.pieces.par_iter_mut().zip(self.means.par_iter());
        work.with_max_len(1).for_each(|(piece, means)| {
            for (moved, mean) in piece.moved.iter_mut().zip(means) {
                for (moved, mean) in moved.0.iter_mut().zip(mean.0) {
                    *moved = mean - *moved;
                }
            }
        });
        let pieces = &self.pieces;
        inputs.blocks.par_iter_mut().enumerate().with_max_len(1).for_each(|(block, to)| {
            for piece in pieces {
                let (from, rows) = (piece.moved.as_slice(), piece.context[block].as_slice());
                Arch::new().dispatch(RowSums { to, from, rows, groups });
            }
        });
        loss
    }
}

/// Task that computes the means of one piece, and the pairs of these means.
struct Means<'a> {
    chunk: &'a Chunk,
    sampling: &'a Sampling<'a>,
    inputs: &'a Blocks,
    index: usize,
    piece: &'a mut Piece,
    means: &'a mut Vec<Lanes>,
}

impl WithSimd for Means<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { chunk, sampling, inputs, index, piece, means } = self;
        let groups = inputs.groups;
        let Piece { moved, pairs, context: rows } = piece;
        means.clear();
        pairs.iter_mut().for_each(Vec::clear);
        rows.iter_mut().for_each(Vec::clear);
        let mut row = 0;
        sampling.windows(chunk, index, |middle, context, negatives| {
            let words = context.iter().map(|part| part.len()).sum::<usize>();
            if words == 0 {
                return;
            }
            means.resize(means.len() + groups, Lanes::default());
            let start = means.len() - groups;
            let mean = &mut means[start..];
            for &word in context.iter().flat_map(|part| part.iter()) {
                add(simd, mean, inputs.row(word));
                let (block, vector) = place(word);
                rows[block].push((row, vector));
            }
            scale(simd, mean, 1.0 / words as f32);
            let mut put = |target: u32, together: bool| {
                let (block, output) = place(target);
                pairs[block].push(Pair::new(row, output, together));
            };
            put(middle, true);
            negatives.draw(middle, |target| put(target, false));
            row += 1;
        });
        moved.clone_from(means);
    }
}
