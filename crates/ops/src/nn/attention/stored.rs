//! Attention for short sequences, whose weights fit in the cache and are kept for the backward
//! pass.

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

/// Smallest number of pairs of a query and a key for which rounding the operands to bf16 makes
/// attention faster. It was measured on a processor with AMX, with heads of widths 32 and 64.
const ROUNDED: usize = 48 * 48;

/// Largest number of sequences in one task.
const SOME: usize = 4;

impl Layout {
    /// Computes `softmax(scale · Q Kᵀ + biases) V` for each short sequence and head, and writes it
    /// to `out`. Also writes the weights before dropout to `weights`: `(H, queries, keys)` for one
    /// sequence after the other.
    ///
    /// # Safety
    /// No other thread reads or writes the results and weights of the short sequences at the same
    /// time; afterwards these are initialised.
    pub(super) unsafe fn forward<T: Float>(
        &self,
        operands: &Operands<'_, T>,
        out: Shared<T>,
        weights: Shared<T>,
    ) {
        let sizes = || self.spans.chunks(SOME).map(|some| some.iter().map(pairs).sum());
        region(longest_of(sizes), || {
            let spans = self.spans.par_iter().with_max_len(SOME);
            spans.for_each_init(Vec::new, |dropped, span| {
                if !span.is_long() {
                    // SAFETY: each sequence has its own rows and weights.
                    unsafe { self.forward_of(operands, span, (out, weights), dropped) };
                }
            });
        });
    }

    /// Computes the result and the weights of one sequence.
    ///
    /// # Safety
    /// As for [`Self::forward`], for this sequence.
    unsafe fn forward_of<T: Float>(
        &self,
        operands: &Operands<'_, T>,
        span: &Span,
        (out, weights): (Shared<T>, Shared<T>),
        dropped: &mut Vec<T>,
    ) {
        let (width, dh) = (self.width(), self.shape().head_width);
        let (tq, tk) = (span.queries, span.keys);
        let out_at = Columns { stride: width, column: 0 };
        if tq == 0 || tk == 0 {
            return out_at.clear(out, span.query, tq, width);
        }
        for head in 0..self.shape().heads {
            // SAFETY: as the caller promises.
            let weights = unsafe { self.weights_of(operands, span, head, &weights) };
            let used: &[T] = if self.spec.dropout.is_active() {
                let used = self.mask(dropped, span, head);
                multiply(used, weights);
                used
            } else {
                weights
            };
            let at = operands.at[VALUE].head(span.key, self.shape().key_value_head(head), dh);
            let (used, value) = ((used, Matrix::rows(tk)), (operands.values[VALUE], at));
            let to = (out, out_at.head(span.query, head, dh));
            let (shape, how) = ((tq, tk, dh), self.how(span));
            // SAFETY: as the caller promises.
            unsafe { raw_product(shape, used, value, to, Write::Replace, how, None) };
        }
    }

    /// Computes and returns the weights of one head of a sequence, before dropout.
    ///
    /// # Safety
    /// As for [`Self::forward`], for these weights.
    #[expect(
        clippy::mut_from_ref,
        reason = "shared memory hands out disjoint parts, as the requirements say"
    )]
    unsafe fn weights_of<'a, T: Float>(
        &self,
        operands: &Operands<'_, T>,
        span: &Span,
        head: usize,
        to: &'a Shared<T>,
    ) -> &'a mut [T] {
        let Operands { values, at, bias } = *operands;
        let (tq, tk, dh) = (span.queries, span.keys, self.shape().head_width);
        let shared = self.shape().key_value_head(head);
        let first = span.weights + head * tq * tk;
        let query = (values[QUERY], at[QUERY].head(span.query, head, dh));
        let key = (values[KEY], at[KEY].head(span.key, shared, dh).transposed());
        let (place, how) = ((*to, Matrix::rows(tk).at(first)), self.how(span));
        // SAFETY: as the caller promises; the product writes the weights of this head.
        let weights = unsafe {
            raw_product((tq, dh, tk), query, key, place, Write::Replace, how, None);
            to.range(first..first + tq * tk)
        };
        let slope = T::cast(self.spec.slopes.as_ref().map_or(0.0, |slopes| slopes[head]));
        let bias = bias.map(|(bias, size, row)| (&bias[head * size..(head + 1) * size], row));
        let start = self.spec.query_start;
        scale_and_bias(weights, tk, self.scale(), start, slope, bias);
        if let Some(sight) = Sight::new(&self.spec, head, tk) {
            hide(weights, tk, &sight, start);
        }
        softmax_rows(weights, tk, self.spec.causal.then_some(start));
        weights
    }

    /// Returns how the products of a sequence are computed: the type to which operands are rounded,
    /// and a single thread.
    fn how(&self, span: &Span) -> (Products, Threads) {
        let products =
            if span.queries * span.keys < ROUNDED { Products::F32 } else { self.spec.products };
        (products, Threads::One)
    }

    /// Returns the dropout mask of the weights of one head.
    fn mask<'a, T: Float>(&self, scratch: &'a mut Vec<T>, span: &Span, head: usize) -> &'a mut [T] {
        let mask = room(scratch, span.queries * span.keys);
        let number = |query| mask_index(query, self.shape().heads, head, self.longest_key, 0);
        mask_rows(mask, span.keys, number(span.query), number(1) - number(0), self.spec.dropout);
        mask
    }

    /// Writes the adjoints (gradients of the loss) of query, key and value of the short sequences,
    /// in the layout of the inputs. Returns the contribution of these sequences to the adjoint of
    /// the bias.
    ///
    /// # Safety
    /// No other thread reads or writes the adjoints at the same time. If adjoints are added, the
    /// memory is initialised.
    pub(super) unsafe fn backward<T: Float>(
        &self,
        operands: &Operands<'_, T>,
        saved: &[T],
        grad: &[T],
        gradients: &Gradients<T>,
    ) -> Option<Vec<T>> {
        let bias_size = operands.bias.map(|(bias, ..)| bias.len());
        // Each group of sequences sums its own contribution to the adjoint of the bias.
        let group = self.spans.len().div_ceil(if bias_size.is_some() { 16 } else { 64 }).max(1);
        let of_group = |spans: &[Span]| {
            let mut bias_sum = vec![T::default(); bias_size.unwrap_or(0)];
            let mut scratch = Scratch { mask: Vec::new(), used: Vec::new(), scores: Vec::new() };
            for span in spans.iter().filter(|span| !span.is_long()) {
                let pass = Backward { layout: self, operands, saved, grad, gradients, span };
                // SAFETY: sequences have disjoint rows, and each is processed in a single task.
                unsafe { pass.sequence(&mut scratch, &mut bias_sum) };
            }
            bias_sum
        };
        let sizes = || self.spans.chunks(group).map(|some| some.iter().map(pairs).sum());
        let partial: Vec<Vec<T>> = region(longest_of(sizes), || {
            self.spans.par_chunks(group).with_max_len(1).map(of_group).collect()
        });
        bias_size.map(|count| combined(partial, count))
    }
}

/// Working memory of a task of the backward pass.
struct Scratch<T> {
    mask: Vec<T>,
    /// Attention weights after dropout.
    used: Vec<T>,
    scores: Vec<T>,
}

/// Backward pass of one sequence.
struct Backward<'a, T> {
    layout: &'a Layout,
    operands: &'a Operands<'a, T>,
    saved: &'a [T],
    grad: &'a [T],
    gradients: &'a Gradients<T>,
    span: &'a Span,
}

impl<T: Float> Backward<'_, T> {
    /// Writes the adjoints of the sequence, and adds its contribution to the adjoint of the bias.
    ///
    /// # Safety
    /// As for [`Layout::backward`], for this sequence.
    unsafe fn sequence(&self, scratch: &mut Scratch<T>, bias_sum: &mut [T]) {
        let Self { layout, span, .. } = *self;
        let Gradients { values: to, write, .. } = *self.gradients;
        let (shape, at) = (layout.shape(), self.operands.at);
        if span.queries == 0 || span.keys == 0 {
            if write == Write::Replace {
                at[QUERY].clear(to[QUERY], span.query, span.queries, layout.width());
                for part in [KEY, VALUE] {
                    at[part].clear(to[part], span.key, span.keys, shape.key_value_width());
                }
            }
            return;
        }
        for head in 0..shape.heads {
            // SAFETY: as the caller promises.
            unsafe { self.head(head, scratch, bias_sum) };
        }
    }

    /// Adds the contributions of one head to the adjoints.
    ///
    /// # Safety
    /// As for [`Self::sequence`].
    unsafe fn head(&self, head: usize, scratch: &mut Scratch<T>, bias_sum: &mut [T]) {
        let Self { layout, span, grad, .. } = *self;
        let Gradients { values: to, write, .. } = *self.gradients;
        let (tq, tk, dh) = (span.queries, span.keys, layout.shape().head_width);
        let (square, how) = (Matrix::rows(tk), layout.how(span));
        let head_at = |part: usize| {
            let row = if part == QUERY { span.query } else { span.key };
            self.operands.at[part].head(row, layout.head_of(part, head), dh)
        };
        // Query heads of a group share a key and value head. The first query head writes the
        // adjoints of this key and value head; the others add to them.
        let is_first = head.is_multiple_of(layout.shape().group());
        let shared_write = if is_first { write } else { Write::Add };
        let operand = |part: usize| (self.operands.values[part], head_at(part));
        let to = |part: usize| (to[part], head_at(part));
        let first = span.weights + head * tq * tk;
        let weights = &self.saved[first..first + tq * tk];
        let width = layout.width();
        let grad = (grad, Matrix::rows(width).at(span.query * width + head * dh));
        let Scratch { mask, used, scores } = scratch;
        let mask = layout.spec.dropout.is_active().then(|| &*layout.mask(mask, span, head));
        let used: &[T] = match mask {
            Some(mask) => {
                let used = room(used, tq * tk);
                used.copy_from_slice(mask);
                multiply(used, weights);
                used
            }
            None => weights,
        };
        let (shape, used) = ((tk, tq, dh), (used, square.transposed()));
        // SAFETY: as the caller promises.
        unsafe { raw_product(shape, used, grad, to(VALUE), shared_write, how, None) };
        let scores = room(scores, tq * tk);
        let (value, at) = operand(VALUE);
        let (shape, value) = ((tq, dh, tk), (value, at.transposed()));
        product(shape, grad, value, (&mut *scores, square), Write::Replace, how);
        if let Some(mask) = mask {
            multiply(scores, mask);
        }
        self.adjoint_of_products(head, weights, scores, bias_sum);
        let (shape, left) = ((tq, tk, dh), (&*scores, square));
        // SAFETY: as the caller promises.
        unsafe { raw_product(shape, left, operand(KEY), to(QUERY), write, how, None) };
        let (shape, left) = ((tk, tq, dh), (&*scores, square.transposed()));
        // SAFETY: as the caller promises.
        unsafe { raw_product(shape, left, operand(QUERY), to(KEY), shared_write, how, None) };
    }

    /// Replaces the adjoint of a head's weights, in `scores`, by the adjoint of the products
    /// `Q Kᵀ`. The bias is added to the scores after the products are multiplied by `scale`. So the
    /// adjoint of the scores, before it is multiplied by `scale`, is added to the adjoint of the
    /// bias.
    fn adjoint_of_products(
        &self,
        head: usize,
        weights: &[T],
        scores: &mut [T],
        bias_sum: &mut [T],
    ) {
        let (tk, scale) = (self.span.keys, self.layout.scale::<T>());
        let Some((_, size, bias_row)) = self.operands.bias else {
            return softmax_backward(weights, scores, tk, scale);
        };
        softmax_backward(weights, scores, tk, T::cast(1.0));
        for (i, row) in scores.chunks_exact(tk).enumerate() {
            let start = head * size + i * bias_row;
            crate::parallel::add(&mut bias_sum[start..start + tk], row);
        }
        scores.iter_mut().for_each(|score| *score *= scale);
    }
}

/// Returns the number of pairs of a query and a key in a sequence. The time for the sequence is
/// proportional to it. Returns 0 for a long sequence, because it is computed in tiles (small blocks
/// of scores) instead.
fn pairs(span: &Span) -> usize {
    if span.is_long() { 0 } else { span.queries * span.keys }
}

/// Sets the scores of keys that a query does not see to −∞, so that the softmax ignores them.
fn hide<T: Float>(scores: &mut [T], keys: usize, sight: &Sight, query_start: usize) {
    let mut scratch = Vec::new();
    for (row, query) in scores.chunks_exact_mut(keys).zip(query_start..) {
        sight.gaps(query, 0..keys, &mut scratch, |hidden| row[hidden].fill(T::NEGATIVE_INFINITY));
    }
}

/// Returns the first `count` elements of a scratch vector, which grows if necessary and never
/// shrinks.
fn room<T: Float>(scratch: &mut Vec<T>, count: usize) -> &mut [T] {
    if scratch.len() < count {
        scratch.resize(count, T::default());
    }
    &mut scratch[..count]
}
