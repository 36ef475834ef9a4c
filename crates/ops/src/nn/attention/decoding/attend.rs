//! Attention of one query to the cached keys and values that it sees.

use super::LANES;
use super::chosen::Chosen;
use super::rows::Row;
use crate::float::{Float, vectorised};
use crate::spec::AttentionShape;
use crate::sums::{blocked_max, blocked_sum};

/// Bias that is added to the scores, with its shape `(H, queries, keys)`.
type Bias<'a, T> = (&'a [T], (usize, usize, usize));

/// Number of keys that are prefetched ahead. This pays because the keys that a query sees are
/// scattered in memory.
const AHEAD: usize = 2;

vectorised! {
    /// Attends from one query. With dual chunk attention, `query` has several copies of it, each
    /// rotated by another position. `pairs` has the key and value of each token that is read.
    /// `weights` is scratch memory filled with −∞. Exponentials are computed in groups of
    /// [`LANES`], so it has a multiple of [`LANES`] values for each head. `out` must be zero.
    fn attend<T, P: Row<T>>(
        query: &[T],
        shape: AttentionShape,
        pairs: &[P],
        weights: &mut [T],
        bias: Option<Bias<'_, T>>,
        slopes: Option<&[T]>,
        chosen: &Chosen,
        out: &mut [T],
    ) {
        let keys = pairs.len();
        if keys == 0 {
            return;
        }
        let row = keys.next_multiple_of(LANES);
        scores(query, shape, pairs, weights, chosen);
        for (head, weights) in weights.chunks_exact_mut(row).enumerate() {
            add_biases((weights, keys), head, bias, slopes, chosen);
            let largest = blocked_max(weights);
            for weight in weights.iter_mut() {
                *weight = (*weight - largest).exp();
            }
            let total = T::cast(1.0) / blocked_sum([&*weights], |[weight]| weight);
            for weight in weights.iter_mut() {
                *weight *= total;
            }
        }
        let of_heads = weights.chunks_exact(row).zip(out.chunks_exact_mut(shape.head_width));
        for (head, (weights, out)) in of_heads.enumerate() {
            let first = shape.key_value_width() + head / shape.group() * shape.head_width;
            sum_values(weights, pairs, first, out);
        }
    }
}

/// Computes the scores of all heads. The scores of each head are in a row of `weights`.
#[inline(always)]
fn scores<T: Float>(
    query: &[T],
    shape: AttentionShape,
    pairs: &[impl Row<T>],
    weights: &mut [T],
    chosen: &Chosen,
) {
    let (head_width, group, width) = (shape.head_width, shape.group(), shape.query_width());
    let (row, scale) = (pairs.len().next_multiple_of(LANES), T::cast(shape.scale));
    pairs.iter().take(AHEAD).for_each(|pair| pair.fetch());
    for (j, pair) in pairs.iter().enumerate() {
        if let Some(next) = pairs.get(j + AHEAD) {
            next.fetch();
        }
        let query = &query[chosen.rotation(j) * width..][..width];
        for (number, queries) in query.chunks_exact(group * head_width).enumerate() {
            for (member, query) in queries.chunks_exact(head_width).enumerate() {
                weights[(number * group + member) * row + j] =
                    scale * pair.product(number * head_width, query);
            }
        }
    }
}

/// Adds ALiBi's terms and the relative bias to the scores of a head. Sets the scores of keys that
/// the head does not see to −∞.
#[inline(always)]
fn add_biases<T: Float>(
    (weights, keys): (&mut [T], usize),
    head: usize,
    bias: Option<Bias<'_, T>>,
    slopes: Option<&[T]>,
    chosen: &Chosen,
) {
    if let Some(slopes) = slopes {
        for (j, weight) in weights[..keys].iter_mut().enumerate() {
            let distance = chosen.keys - 1 - chosen.position(j);
            *weight -= slopes[head] * T::cast(distance as f64);
        }
    }
    if let Some((bias, (_, queries, columns))) = bias {
        let first = head * queries * columns + columns - chosen.keys;
        if chosen.positions.is_empty() {
            for (weight, bias) in weights[..keys].iter_mut().zip(&bias[first..]) {
                *weight += *bias;
            }
        } else {
            for (weight, position) in weights.iter_mut().zip(&chosen.positions) {
                *weight += bias[first + position];
            }
        }
    }
    if let Some(hidden) = chosen.hidden.get(head * keys..(head + 1) * keys) {
        for (weight, is_hidden) in weights.iter_mut().zip(hidden) {
            if *is_hidden {
                *weight = T::NEGATIVE_INFINITY;
            }
        }
    }
}

/// Computes the weighted sum of the values of a head; `first` is the column of the head's first
/// value in `pairs`.
#[inline(always)]
fn sum_values<T: Float>(weights: &[T], pairs: &[impl Row<T>], first: usize, out: &mut [T]) {
    let (blocks, rest) = out.as_chunks_mut::<LANES>();
    for (block, out) in blocks.iter_mut().enumerate() {
        let column = first + block * LANES;
        // The sums for these columns stay in registers.
        let mut sums = [T::default(); LANES];
        for (weight, pair) in weights.iter().zip(pairs) {
            let weight = pair.weighted(*weight, first);
            for (sum, value) in sums.iter_mut().zip(pair.lanes(column)) {
                *sum += weight * value;
            }
        }
        *out = sums;
    }
    let column = first + blocks.len() * LANES;
    for (weight, pair) in weights.iter().zip(pairs) {
        let weight = pair.weighted(*weight, first);
        for (i, out) in rest.iter_mut().enumerate() {
            *out += weight * pair.number(column + i);
        }
    }
}
