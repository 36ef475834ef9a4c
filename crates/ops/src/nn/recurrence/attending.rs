//! Additive attention from a single state (Bahdanau et al. 2015, appendix A.1.2), forward and
//! backward.
//!
//! The backward pass recomputes the hyperbolic tangents, one for each key and column.

use crate::float::vectorised;
use crate::sums::{blocked_max, blocked_sum};

vectorised! {
    /// Attends from `query (A,)` to `keys (n, A)` and `values (n, V)`. The score of a key is
    /// `energy · tanh(query + key)`, with the vector `energy (A,)`. Writes the attention weights to
    /// `weights (n,)`, and the weighted sum of the values to `context (V,)`.
    fn attend<T>(
        query: &[T],
        energy: &[T],
        keys: &[T],
        values: &[T],
        weights: &mut [T],
        context: &mut [T],
    ) {
        let (across, width) = (query.len(), context.len());
        for (weight, key) in weights.iter_mut().zip(keys.chunks_exact(across)) {
            *weight = blocked_sum([energy, query, key], |[energy, query, key]| {
                energy * (query + key).tanh()
            });
        }
        let largest = blocked_max(weights);
        let mut total = T::default();
        for weight in weights.iter_mut() {
            *weight = (*weight - largest).exp();
            total += *weight;
        }
        let share = T::cast(1.0) / total;
        for weight in weights.iter_mut() {
            *weight *= share;
        }
        context.fill(T::default());
        for (weight, value) in weights.iter().zip(values.chunks_exact(width)) {
            for (sum, value) in context.iter_mut().zip(value) {
                *sum += *weight * *value;
            }
        }
    }
}

vectorised! {
    /// Computes gradients, given `by_context`, the gradient with respect to the context. The
    /// gradient with respect to the query replaces `by_query`. Those with respect to energy, keys
    /// and values are added to `by_energy`, `by_keys` and `by_values`. `by_scores (n,)` is scratch
    /// memory.
    fn attend_backward<T>(
        query: &[T],
        energy: &[T],
        keys: &[T],
        values: &[T],
        weights: &[T],
        by_context: &[T],
        by_scores: &mut [T],
        by_query: &mut [T],
        by_energy: &mut [T],
        by_keys: &mut [T],
        by_values: &mut [T],
    ) {
        let (across, width, one) = (query.len(), by_context.len(), T::cast(1.0));
        let mut mean = T::default();
        let pairs = values.chunks_exact(width).zip(by_values.chunks_exact_mut(width));
        for ((score, weight), (value, by_value)) in by_scores.iter_mut().zip(weights).zip(pairs) {
            *score = blocked_sum([by_context, value], |[grad, value]| grad * value);
            mean += *weight * *score;
            for (by_value, grad) in by_value.iter_mut().zip(by_context) {
                *by_value += *weight * *grad;
            }
        }
        by_query.fill(T::default());
        let pairs = keys.chunks_exact(across).zip(by_keys.chunks_exact_mut(across));
        let (by_query, by_energy) = (&mut by_query[..across], &mut by_energy[..across]);
        let energy = &energy[..across];
        for ((score, weight), (key, by_key)) in by_scores.iter().zip(weights).zip(pairs) {
            let by_score = *weight * (*score - mean);
            for i in 0..across {
                let tanh = (query[i] + key[i]).tanh();
                by_energy[i] += by_score * tanh;
                let through = by_score * energy[i] * (one - tanh * tanh);
                by_query[i] += through;
                by_key[i] += through;
            }
        }
    }
}
