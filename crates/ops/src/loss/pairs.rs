//! R-Drop (Liang et al. 2021, section 2.2): each token passes through the network twice, with
//! different dropout, which gives two distributions, `p` and `q`. The additional loss
//! `KL(p‖q) + KL(q‖p)` pulls them towards each other.
//!
//! Let `s = ln p - ln q`. The gradient of the additional loss with respect to the logits of `p` is
//! then `p (s - KL(p‖q)) + p - q`. The gradient with respect to the logits of `q` follows by
//! exchanging `p` and `q`. So the two rows of logits of a token are needed at the same time. For
//! this, rows are arranged in blocks that contain both passes of each of their tokens. The rest of
//! the loss processes these blocks in the same way as without R-Drop.

use super::online::{Online, Softmax, online};
use crate::float::{Float, vectorised};
use crate::spec::{CrossEntropySpec, LossSums};

/// Number of rows in a block, whose logits exist at the same time.
pub(super) const BLOCK_ROWS: usize = 128;

/// Arranges rows of `width` elements in blocks. Row `i + N/2` is the partner of row `i`. A block
/// has [`BLOCK_ROWS`] `/ 2` rows of the first half, followed by their partners. The last block can
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

/// Restores the order of rows that [`arranged`] changed.
pub(super) fn restored<T: Copy>(rows: &[T], width: usize) -> Vec<T> {
    let blocks = || rows.chunks(BLOCK_ROWS * width);
    let first = blocks().map(|block| &block[..block.len() / 2]);
    first.chain(blocks().map(|block| &block[block.len() / 2..])).collect::<Vec<_>>().concat()
}

/// Returns the index, within a block of `rows` rows, of the partner of the row `row`.
pub(super) fn partner(row: usize, rows: usize) -> usize {
    (row + rows / 2) % rows
}

/// Computes the loss sums of a pair of rows of logits. If `differentiate` is set, also replaces the
/// logits with the gradient of the loss with respect to the logits.
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
    /// Replaces the logits of a pair of rows with the gradient of the loss with respect to the
    /// logits. This gradient is `scale` times the gradient of the cross entropies plus `weight`
    /// times the gradient of the divergences. For label smoothing, `share` is subtracted for each
    /// class. The caller then subtracts the rest of the target distribution from the true classes.
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
            // The gradient of a class with probability 0 is 0. The product would be NaN if its
            // logit is −∞.
            let zero = T::default();
            let of_p = if p == zero { zero } else { p * (own_first + apart) };
            let of_q = if q == zero { zero } else { q * (own_second - apart) };
            *first = of_p - weight * q - share;
            *second = of_q - weight * p - share;
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
