//! Operations between the two matrix products of attention (QKᵀ and weights · V), for one head of
//! one sequence at a time.

use crate::float::vectorised;
use crate::sums::{blocked_max, blocked_sum};

vectorised! {
    /// Scales the scores of one head, and adds ALiBi's terms and the bias, if any.
    fn scale_and_bias<T>(
        scores: &mut [T],
        keys: usize,
        scale: T,
        query_start: usize,
        slope: T,
        bias: Option<(&[T], usize)>,
    ) {
        for score in scores.iter_mut() {
            *score *= scale;
        }
        if slope != T::default() {
            for (i, row) in scores.chunks_exact_mut(keys).enumerate() {
                for (j, score) in row.iter_mut().enumerate() {
                    *score -= slope * T::cast((query_start + i).abs_diff(j) as f64);
                }
            }
        }
        if let Some((bias, length)) = bias {
            for (i, row) in scores.chunks_exact_mut(keys).enumerate() {
                for (score, bias) in row.iter_mut().zip(&bias[i * length..i * length + keys]) {
                    *score += *bias;
                }
            }
        }
    }
}

vectorised! {
    /// Computes the softmax of each row. Under a causal mask, row `i` has only
    /// `causal_start + i + 1` visible scores; the other weights become zero.
    fn softmax_rows<T>(scores: &mut [T], keys: usize, causal_start: Option<usize>) {
        for (i, row) in scores.chunks_exact_mut(keys).enumerate() {
            let visible = causal_start.map_or(keys, |start| (start + i + 1).min(keys));
            let (row, hidden) = row.split_at_mut(visible);
            hidden.fill(T::default());
            let largest = blocked_max(row);
            for score in row.iter_mut() {
                *score = (*score - largest).exp();
            }
            let total = T::cast(1.0) / blocked_sum([&*row], |[x]| x);
            for score in row.iter_mut() {
                *score *= total;
            }
        }
    }
}

vectorised! {
    /// Replaces `grad`, the gradient with respect to the weights, with the gradient with respect to
    /// the scores before scaling: `grad ← scale · weights ⊙ (grad - Σ grad ⊙ weights)`, row by row.
    fn softmax_backward<T>(weights: &[T], grad: &mut [T], keys: usize, scale: T) {
        for (weights, grad) in weights.chunks_exact(keys).zip(grad.chunks_exact_mut(keys)) {
            let sum = blocked_sum([weights, &*grad], |[weight, grad]| weight * grad);
            for (grad, weight) in grad.iter_mut().zip(weights) {
                *grad = scale * *weight * (*grad - sum);
            }
        }
    }
}
