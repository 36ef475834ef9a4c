//! Summaries of chunks, and their adjoints (gradients of the loss with respect to them). A summary
//! is the mean of the chunk's keys and the mean of its values.

use super::layout::{Layout, Sequence};
use crate::float::{Float, vectorised};
use crate::nn::attention::kinds::heads::PackedLayout;
use crate::profile::{even, region};
use crate::shared::Shared;
use rayon::prelude::*;

/// Computes the summaries of all sequences: `(H, 2, M, Dh)` for each sequence, where M is its
/// number of summaries. Each head has first its mean keys, then its mean values, level by level.
pub(super) fn summarise<T: Float>(layout: &Layout, qkv: &[T]) -> Vec<T> {
    let (width, head_width, size) = (layout.width(), layout.head, layout.hierarchy.chunk);
    let mut all = vec![T::default(); layout.summaries() * 2 * width];
    let to = Shared::new(&mut all);
    let chunks: Vec<(&Sequence, usize)> = layout
        .sequences
        .iter()
        .flat_map(|sequence| (0..sequence.counts[0]).map(move |chunk| (sequence, chunk)))
        .collect();
    let of_tokens = |mean: &mut Vec<T>, &(sequence, chunk): &(&Sequence, usize)| {
        mean.fill(T::default());
        let count = layout.hierarchy.tokens(1, chunk, sequence.length);
        let share = T::cast(1.0 / count as f64);
        for row in sequence.first + chunk * size..sequence.first + chunk * size + count {
            add_scaled(mean, &qkv[(3 * row + 1) * width..3 * (row + 1) * width], share);
        }
        for (number, mean) in mean.chunks_exact(head_width).enumerate() {
            let (part, head) = (1 + number / layout.spec.heads, number % layout.spec.heads);
            let first = layout.summaries_at(sequence, head, part) + chunk * head_width;
            // SAFETY: each chunk has its own rows.
            unsafe { to.write(first, mean) };
        }
    };
    let room = || vec![T::default(); 2 * width];
    region(even(chunks.len()), || {
        chunks.par_iter().with_min_len(4).for_each_init(room, of_tokens);
    });
    for sequence in layout.sequences.iter().filter(|sequence| sequence.length > 0) {
        let count = sequence.summaries() * head_width;
        let first = sequence.summary * 2 * width;
        for of_head in all[first..].chunks_exact_mut(count).take(2 * layout.spec.heads) {
            average_levels(layout, sequence, of_head);
        }
    }
    all
}

/// Computes, for one head of a sequence, the mean keys or mean values at level 2 and above, from
/// those at level 1.
fn average_levels<T: Float>(layout: &Layout, sequence: &Sequence, rows: &mut [T]) {
    let (hierarchy, width) = (layout.hierarchy, layout.head);
    let tokens = |level, index| hierarchy.tokens(level, index, sequence.length) as f64;
    for level in 1..hierarchy.levels {
        let (below, above) = rows.split_at_mut(sequence.levels[level] * width);
        let below = &below[sequence.levels[level - 1] * width..];
        for (index, below) in below.chunks_exact(width).enumerate() {
            let parent = index / hierarchy.chunk;
            let share = T::cast(tokens(level, index) / tokens(level + 1, parent));
            add_scaled(&mut above[parent * width..(parent + 1) * width], below, share);
        }
    }
}

/// Computes the adjoint that each token of a level-1 chunk gets from all summaries that contain it.
/// `adjoints (M, Dh)` are the adjoints of the keys, or of the values, of all M summaries of the
/// sequence.
pub(super) fn token_adjoint<T: Float>(
    layout: &Layout,
    (sequence, chunk): (&Sequence, usize),
    adjoints: &[T],
) -> Vec<T> {
    let (hierarchy, width) = (layout.hierarchy, layout.head);
    let (mut sum, mut index) = (vec![T::default(); width], chunk);
    for level in 1..=hierarchy.levels {
        let row = (sequence.levels[level - 1] + index) * width;
        let share = 1.0 / hierarchy.tokens(level, index, sequence.length) as f64;
        add_scaled(&mut sum, &adjoints[row..row + width], T::cast(share));
        index /= hierarchy.chunk;
    }
    sum
}

vectorised! {
    /// Computes `total += factor · values`.
    fn add_scaled<T>(total: &mut [T], values: &[T], factor: T) {
        for (total, &value) in total.iter_mut().zip(values) {
            *total += value * factor;
        }
    }
}
