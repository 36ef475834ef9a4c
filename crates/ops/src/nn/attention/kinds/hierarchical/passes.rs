//! Operations of hierarchical attention between its two matrix products: softmax and dropout of the
//! scores of some queries, and their gradients.

use crate::float::vectorised;
use crate::spec::Dropout;
use crate::sums::{blocked_max, blocked_sum};

/// Settings for computing scores and weights from the products of some queries with all keys that
/// the queries' chunk sees.
pub(super) struct Terms<'a, T> {
    pub(super) scale: T,
    /// For each key, the number that is added to the scores with it.
    pub(super) added: &'a [T],
    /// The first query sees the first `visible` keys. Each further query sees `growth` more keys
    /// than the query before it.
    pub(super) visible: usize,
    pub(super) growth: usize,
    pub(super) dropout: Dropout,
    /// The dropout mask has a row of elements (places) for each query. `places` has the index of
    /// each key in such a row. `mask` has the index at which the first query's row begins in the
    /// mask, and the length of a row.
    pub(super) places: &'a [u32],
    pub(super) mask: (u32, u32),
}

vectorised! {
    /// Replaces the products of each query with the keys, a row of `scores`, by the weights: the
    /// softmax of the query's scores. Also computes the logarithm of the softmax denominator.
    fn softmax<T>(scores: &mut [T], stride: usize, terms: &Terms<'_, T>, log_sums: &mut [T]) {
        let mut visible = terms.visible;
        for (row, log_sum) in scores.chunks_exact_mut(stride).zip(log_sums) {
            let (seen, hidden) = row[..terms.added.len()].split_at_mut(visible);
            for (score, &added) in seen.iter_mut().zip(terms.added) {
                *score = *score * terms.scale + added;
            }
            let largest = blocked_max(seen);
            for score in &mut *seen {
                *score = (*score - largest).exp();
            }
            let total = blocked_sum([&*seen], |[weight]| weight);
            let share = T::cast(1.0) / total;
            for weight in &mut *seen {
                *weight *= share;
            }
            hidden.fill(T::default());
            *log_sum = largest + total.ln();
            visible += terms.growth;
        }
    }
}

vectorised! {
    /// Applies dropout to the weights of `rows` queries.
    fn drop<T>(weights: &mut [T], stride: usize, rows: usize, terms: &Terms<'_, T>) {
        let factor = terms.dropout.kernel::<T>();
        let mut first = terms.mask.0;
        for row in weights.chunks_exact_mut(stride).take(rows) {
            for (weight, &place) in row.iter_mut().zip(terms.places) {
                *weight *= factor(first.wrapping_add(place));
            }
            first = first.wrapping_add(terms.mask.1);
        }
    }
}

vectorised! {
    /// Replaces `scores`, the products of queries and keys, by the weights after dropout. Replaces
    /// `adjoints`, the gradients of the loss with respect to these weights, by the gradients with
    /// respect to the products of queries and keys. `products[i]` is the inner product `dO_i·O_i`,
    /// where `O_i` is the result for query i, and `dO_i` the gradient with respect to it.
    fn go_back<T>(
        scores: &mut [T],
        adjoints: &mut [T],
        stride: usize,
        terms: &Terms<'_, T>,
        log_sums: &[T],
        products: &[T],
    ) {
        let factor = terms.dropout.kernel::<T>();
        let (drops, mut first, mut visible) =
            (terms.dropout.is_active(), terms.mask.0, terms.visible);
        let rows = scores.chunks_exact_mut(stride).zip(adjoints.chunks_exact_mut(stride));
        for ((row, adjoint), (&log_sum, &product)) in rows.zip(log_sums.iter().zip(products)) {
            let (seen, hidden) = row[..terms.added.len()].split_at_mut(visible);
            let (of_seen, of_hidden) = adjoint[..terms.added.len()].split_at_mut(visible);
            for (score, &added) in seen.iter_mut().zip(terms.added) {
                *score = (*score * terms.scale + added - log_sum).exp();
            }
            if drops {
                for ((weight, adjoint), &place) in
                    seen.iter_mut().zip(&mut *of_seen).zip(terms.places)
                {
                    let kept = factor(first.wrapping_add(place));
                    *adjoint = (*adjoint * kept - product) * *weight * terms.scale;
                    *weight *= kept;
                }
            } else {
                for (weight, adjoint) in seen.iter().zip(&mut *of_seen) {
                    *adjoint = (*adjoint - product) * *weight * terms.scale;
                }
            }
            hidden.fill(T::default());
            of_hidden.fill(T::default());
            first = first.wrapping_add(terms.mask.1);
            visible += terms.growth;
        }
    }
}
