//! Attention that keeps its weights for the backward pass: for sequences whose weights fit in
//! cache.

use super::layout::{Columns, KEY, Layout, QUERY, Span, VALUE};
use super::operands::{Gradients, Operands};
use super::scores::{scale_and_bias, softmax_backward, softmax_rows};
use crate::float::Float;
use crate::nn::dropout::mask_rows;
use crate::parallel::{combined, multiply};
use crate::products::{Matrix, Products, Threads, product, raw_product};
use crate::profile::{longest_of, region};
use crate::shared::{Shared, Write};
use crate::spec::{Sight, mask_index};
use rayon::prelude::*;

/// Number of pairs of a query and a key from which rounding to bf16 pays: measured on AMX, with
/// heads of 32 and of 64.
const ROUNDED: usize = 48 * 48;

/// Largest number of sequences in one task.
const SOME: usize = 4;

impl Layout {
    /// Computes `softmax(scale · Q Kᵀ + biases) V` for each sequence and head, and the weights
    /// before dropout: `(H, queries, keys)` for each sequence in turn.
    ///
    /// # Safety
    /// Nobody else reads or writes the results of the short sequences meanwhile; afterwards they
    /// are initialised.
    pub(super) unsafe fn forward<T: Float>(
        &self,
        operands: &Operands<'_, T>,
        out: Shared<T>,
        weights: Shared<T>,
    ) {
        let Operands { values, at, bias } = *operands;
        let (width, dh) = (self.width(), self.shape().head_width);
        let one_sequence = |dropped: &mut Vec<T>,
                            span: &Span,
                            to_out: Shared<T>,
                            to_weights: Shared<T>| {
            let (tq, tk) = (span.queries, span.keys);
            let out_at = Columns { stride: width, column: 0 };
            if tq == 0 || tk == 0 {
                return out_at.clear(to_out, span.query, tq, width);
            }
            let (square, how) = (Matrix::rows(tk), self.how(span));
            for head in 0..self.shape().heads {
                let shared = self.shape().key_value_head(head);
                let first = span.weights + head * tq * tk;
                let query = (values[QUERY], at[QUERY].head(span.query, head, dh));
                let key = (values[KEY], at[KEY].head(span.key, shared, dh).transposed());
                // SAFETY: each sequence has its own weights, and the product writes those of this
                // head.
                let weights = unsafe {
                    raw_product(
                        (tq, dh, tk),
                        query,
                        key,
                        (to_weights, square.at(first)),
                        Write::Replace,
                        how,
                        None,
                    );
                    to_weights.range(first..first + tq * tk)
                };
                let slope = self.spec.slopes.as_ref().map_or(0.0, |slopes| slopes[head]);
                let bias =
                    bias.map(|(bias, size, row)| (&bias[head * size..(head + 1) * size], row));
                scale_and_bias(
                    weights,
                    tk,
                    self.scale(),
                    self.spec.query_start,
                    T::of(slope),
                    bias,
                );
                if let Some(sight) = Sight::new(&self.spec, head, tk) {
                    hide(weights, tk, &sight, self.spec.query_start);
                }
                softmax_rows(
                    weights,
                    tk,
                    if self.spec.causal { Some(self.spec.query_start) } else { None },
                );
                let used: &[T] = if self.spec.dropout.is_active() {
                    let used = self.mask(dropped, span, head);
                    multiply(used, weights);
                    used
                } else {
                    weights
                };
                let value = (values[VALUE], at[VALUE].head(span.key, shared, dh));
                let to = (to_out, out_at.head(span.query, head, dh));
                // SAFETY: each sequence has its own rows.
                unsafe {
                    raw_product((tq, tk, dh), (used, square), value, to, Write::Replace, how, None)
                };
            }
        };
        let sizes = || self.spans.chunks(SOME).map(|some| some.iter().map(pairs).sum());
        region(longest_of(sizes), || {
            let spans = self.spans.par_iter().with_max_len(SOME);
            spans.for_each_init(Vec::new, |dropped, span| {
                if !span.is_long() {
                    one_sequence(dropped, span, out, weights);
                }
            });
        });
    }

    /// Products and threads for a sequence.
    fn how(&self, span: &Span) -> (Products, Threads) {
        let products =
            if span.queries * span.keys < ROUNDED { Products::F32 } else { self.spec.products };
        (products, Threads::One)
    }

    /// Dropout factors for the weights of one head.
    fn mask<'a, T: Float>(&self, scratch: &'a mut Vec<T>, span: &Span, head: usize) -> &'a mut [T] {
        let mask = room(scratch, span.queries * span.keys);
        let number = |query| mask_index(query, self.shape().heads, head, self.longest_key, 0);
        mask_rows(mask, span.keys, number(span.query), number(1) - number(0), self.spec.dropout);
        mask
    }

    /// Writes the adjoints of query, key and value of the short sequences, in the columns of the
    /// projections, and returns their contribution to the adjoint of the bias.
    ///
    /// # Safety
    /// Nobody else reads or writes them meanwhile; if they are replaced, they need not be
    /// initialised.
    pub(super) unsafe fn backward<T: Float>(
        &self,
        operands: &Operands<'_, T>,
        saved: &[T],
        grad: &[T],
        gradients: &Gradients<T>,
    ) -> Option<Vec<T>> {
        let (shape, width, dh) = (self.shape(), self.width(), self.shape().head_width);
        let Operands { values, at, bias } = *operands;
        let Gradients { values: to, write, .. } = *gradients;
        let bias_shape = bias.map(|(bias, size, row)| (bias.len(), size, row));
        // Each group has its own sum for the bias.
        let group = self.spans.len().div_ceil(if bias.is_some() { 16 } else { 64 }).max(1);
        let of_group = |spans: &[Span]| {
            let mut bias_sum = vec![T::default(); bias_shape.map_or(0, |(count, ..)| count)];
            let (mut mask, mut probs, mut scores) = (Vec::new(), Vec::new(), Vec::new());
            for span in spans.iter().filter(|span| !span.is_long()) {
                let (tq, tk) = (span.queries, span.keys);
                if tq == 0 || tk == 0 {
                    if write == Write::Replace {
                        at[QUERY].clear(to[QUERY], span.query, tq, width);
                        for part in [KEY, VALUE] {
                            at[part].clear(to[part], span.key, tk, shape.key_value_width());
                        }
                    }
                    continue;
                }
                let (square, how) = (Matrix::rows(tk), self.how(span));
                for head in 0..shape.heads {
                    let head_at = |part: usize| {
                        let row = if part == QUERY { span.query } else { span.key };
                        at[part].head(row, self.head_of(part, head), dh)
                    };
                    // The first head of a group writes the gradients that the group shares.
                    let is_first = head.is_multiple_of(shape.group());
                    let shared_write = if is_first { write } else { Write::Add };
                    let operand = |part: usize| (values[part], head_at(part));
                    let to = |part: usize| (to[part], head_at(part));
                    let weights =
                        &saved[span.weights + head * tq * tk..span.weights + (head + 1) * tq * tk];
                    let grad_at = Matrix::rows(width).at(span.query * width + head * dh);
                    let mask =
                        self.spec.dropout.is_active().then(|| &*self.mask(&mut mask, span, head));
                    let used: &[T] = match mask {
                        Some(mask) => {
                            let used = room(&mut probs, tq * tk);
                            used.copy_from_slice(mask);
                            multiply(used, weights);
                            used
                        }
                        None => weights,
                    };
                    // SAFETY: here and below: sequences have disjoint rows, and each is processed
                    // by one task.
                    unsafe {
                        raw_product(
                            (tk, tq, dh),
                            (used, square.transposed()),
                            (grad, grad_at),
                            to(VALUE),
                            shared_write,
                            how,
                            None,
                        )
                    };
                    let scores = room(&mut scores, tq * tk);
                    let (value, value_at) = operand(VALUE);
                    product(
                        (tq, dh, tk),
                        (grad, grad_at),
                        (value, value_at.transposed()),
                        (scores, square),
                        Write::Replace,
                        how,
                    );
                    if let Some(mask) = mask {
                        multiply(scores, mask);
                    }
                    // The adjoint of the biased scores; the adjoint of the products is `scale`
                    // times it.
                    if let Some((_, size, bias_row)) = bias_shape {
                        softmax_backward(weights, scores, tk, T::of(1.0));
                        for (i, row) in scores.chunks_exact(tk).enumerate() {
                            let start = head * size + i * bias_row;
                            crate::parallel::add(&mut bias_sum[start..start + tk], row);
                        }
                        let scale = self.scale::<T>();
                        scores.iter_mut().for_each(|score| *score *= scale);
                    } else {
                        softmax_backward(weights, scores, tk, self.scale());
                    }
                    // SAFETY: as above.
                    unsafe {
                        raw_product(
                            (tq, tk, dh),
                            (scores, square),
                            operand(KEY),
                            to(QUERY),
                            write,
                            how,
                            None,
                        );
                        raw_product(
                            (tk, tq, dh),
                            (scores, square.transposed()),
                            operand(QUERY),
                            to(KEY),
                            shared_write,
                            how,
                            None,
                        );
                    }
                }
            }
            bias_sum
        };
        let sizes = || self.spans.chunks(group).map(|some| some.iter().map(pairs).sum());
        let partial: Vec<Vec<T>> = region(longest_of(sizes), || {
            self.spans.par_chunks(group).with_max_len(1).map(of_group).collect()
        });
        bias_shape.map(|(count, ..)| combined(partial, count))
    }
}

/// Cost of a sequence, relative to others.
fn pairs(span: &Span) -> usize {
    if span.is_long() { 0 } else { span.queries * span.keys }
}

/// Sets the scores of keys that a query does not see, so that the softmax ignores them.
fn hide<T: Float>(scores: &mut [T], keys: usize, sight: &Sight, query_start: usize) {
    let mut scratch = Vec::new();
    for (row, query) in scores.chunks_exact_mut(keys).zip(query_start..) {
        sight.gaps(query, 0..keys, &mut scratch, |hidden| row[hidden].fill(T::NEGATIVE_INFINITY));
    }
}

/// Lends the first `count` elements of a scratch vector, which never shrinks.
fn room<T: Float>(scratch: &mut Vec<T>, count: usize) -> &mut [T] {
    if scratch.len() < count {
        scratch.resize(count, T::default());
    }
    &mut scratch[..count]
}
