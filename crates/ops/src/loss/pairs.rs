//! R-Drop (Liang et al. 2021, section 2.2): each token passes twice with different dropout, and the
//! loss `KL(p‖q) + KL(q‖p)` draws its two distributions `p` and `q` together.
//!
//! With `s = ln p - ln q`, the gradient of this loss by the logits of `p` is
//! `p (s - KL(p‖q)) + p - q`, and the gradient by the logits of `q` is the same with the two
//! exchanged. So both rows of logits are needed together: rows are arranged in blocks that hold
//! both passes of a token, and the rest of the loss works on blocks as usual.

use super::online::{Online, Softmax, online};
use crate::float::{Float, vectorised};
use crate::spec::{CrossEntropySpec, LossSums};

/// Number of rows of logits that exist at a time.
pub(super) const BLOCK_ROWS: usize = 128;

/// Arranges rows of `width` elements in blocks. The second half of the rows are the partners of the
/// first; a block holds half its rows from the first half, then their partners. The last block may
/// be shorter.
pub(super) fn arranged<T: Copy>(rows: &[T], width: usize) -> Vec<T> {
    let (first, second) = rows.split_at(rows.len() / 2);
    let half = BLOCK_ROWS / 2 * width;
    first
        .chunks(half)
        .zip(second.chunks(half))
        .flat_map(|(first, second)| [first, second])
        .collect::<Vec<_>>()
        .concat()
}

/// Inverts [`arranged`].
pub(super) fn restored<T: Copy>(rows: &[T], width: usize) -> Vec<T> {
    let blocks = || rows.chunks(BLOCK_ROWS * width);
    let first = blocks().map(|block| &block[..block.len() / 2]);
    first.chain(blocks().map(|block| &block[block.len() / 2..])).collect::<Vec<_>>().concat()
}

/// Number of the partner of a row in a block of `rows` rows.
pub(super) fn partner(row: usize, rows: usize) -> usize {
    (row + rows / 2) % rows
}

/// Computes the sums of a pair of tokens; replaces the logits by their gradients if `differentiate`
/// is set.
pub(super) fn pair<T: Float>(
    first: &mut [T],
    second: &mut [T],
    targets: [u32; 2],
    spec: &CrossEntropySpec,
    differentiate: bool,
) -> LossSums {
    let [target, other_target] = targets.map(|target| target as usize);
    let (mut token, mut other) = (Online::default(), Online::default());
    online(&mut token, first, Some(second), target, 0);
    online(&mut other, second, Some(first), other_target, 0);
    let softmaxes = [token.softmax(Some(&other)), other.softmax(Some(&token))];
    let classes = first.len();
    let mut sums = token.sums(&softmaxes[0], target, classes, spec.smoothing);
    sums.add(&other.sums(&softmaxes[1], other_target, classes, spec.smoothing));
    if differentiate {
        let CrossEntropySpec { scale, smoothing, r_drop, .. } = *spec;
        let share = scale * (smoothing / classes as f64);
        pair_gradients(
            first,
            second,
            softmaxes,
            T::cast(scale),
            T::cast(scale * r_drop),
            T::cast(share),
        );
        for (row, target) in [(first, target), (second, other_target)] {
            row[target] -= T::cast(scale * (1.0 - smoothing));
        }
    }
    sums
}

vectorised! {
    /// Replaces a pair's logits by their gradients, without the part of the true classes: `scale`
    /// times the gradients of the cross entropies, from which label smoothing subtracts `share` for
    /// each class, plus `weight` times the gradients of the divergences.
    fn pair_gradients<T>(
        first: &mut [T],
        second: &mut [T],
        softmaxes: [Softmax<T>; 2],
        scale: T,
        weight: T,
        share: T,
    ) {
        let [of_first, of_second] = softmaxes;
        let own_first = scale + weight * (T::cast(1.0) - of_first.divergence);
        let own_second = scale + weight * (T::cast(1.0) - of_second.divergence);
        for (first, second) in first.iter_mut().zip(second) {
            let (log_p, log_q) = (*first - of_first.log_sum_exp, *second - of_second.log_sum_exp);
            let (p, q, apart) = (log_p.exp(), log_q.exp(), weight * (log_p - log_q));
            *first = p * (own_first + apart) - weight * q - share;
            *second = q * (own_second - apart) - weight * p - share;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arranging_puts_partners_half_a_block_apart_and_can_be_undone() {
        for pairs in [1, 127, 128, 129, 300] {
            let rows: Vec<usize> = (0..2 * pairs).flat_map(|row| [row, 1000 + row]).collect();
            let blocks = arranged(&rows, 2);
            for block in blocks.chunks(2 * BLOCK_ROWS) {
                let count = block.len() / 2;
                for row in 0..count {
                    assert_eq!(
                        block[2 * row].abs_diff(block[2 * partner(row, count)]),
                        pairs,
                        "{pairs} pairs"
                    );
                }
            }
            assert_eq!(restored(&blocks, 2), rows);
        }
    }
}
