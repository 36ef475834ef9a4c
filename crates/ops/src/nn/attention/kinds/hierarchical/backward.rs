//! Backward pass of hierarchical attention, which recomputes the weights. The adjoint of a summary
//! (the gradient of the loss with respect to it) is passed on to the tokens of the summary. This
//! happens once all chunks that see the summary have been processed. Chunks are processed from the
//! last to the first. Under a causal mask, only later chunks see the summaries of a chunk. So the
//! adjoints of these summaries are passed on when the chunk itself is processed. Without a mask,
//! they are passed on at the end.

use super::forward::{Inputs, across, gathered, terms};
use super::layout::{ChunkKeys, Layout, QUERIES, Sequence};
use super::passes::go_back;
use super::{KEY, QUERY, VALUE, summaries};
use crate::float::Float;
use crate::nn::attention::kinds::heads::{PackedLayout, WeighedRows};
use crate::nn::attention::tiled::products::{Rows, TileProducts, stride};
use crate::parallel::add;
use crate::products::Matrix;
use crate::shared::{Shared, Write};
use crate::sums::blocked_sum;
use std::ops::Range;

/// Values that the backward pass reads in addition to the inputs of the forward pass.
#[derive(Clone, Copy)]
pub(super) struct Known<'a, T> {
    /// Adjoint of the result: the gradient of the loss with respect to it.
    pub(super) adjoint: &'a [T],
    /// Result of the forward pass.
    pub(super) out: &'a [T],
    pub(super) log_sums: &'a [T],
}

impl<'a, T: Float> Known<'a, T> {
    pub(super) fn as_f32(&self) -> Option<Known<'a, f32>> {
        Some(Known {
            adjoint: T::as_f32(self.adjoint)?,
            out: T::as_f32(self.out)?,
            log_sums: T::as_f32(self.log_sums)?,
        })
    }
}

/// Working memory of a thread.
struct Worker<P: TileProducts> {
    products: P::Worker,
    key: Vec<P::Value>,
    value: Vec<P::Value>,
    scores: Vec<P::Value>,
    of_scores: Vec<P::Value>,
    of_query: Vec<P::Value>,
    /// Adjoints of all keys that a chunk sees. `of_value` has the adjoints of their values.
    of_key: Vec<P::Value>,
    of_value: Vec<P::Value>,
    /// Two numbers for each of some queries: the inner product `dO·O` of the result and its
    /// adjoint, and the logarithm of the softmax denominator.
    numbers: [Vec<P::Value>; 2],
}

struct Pass<'a, P: TileProducts> {
    products: &'a P,
    layout: &'a Layout,
    inputs: Inputs<'a, P::Value>,
    known: Known<'a, P::Value>,
    to: (Shared<P::Value>, Write),
}

/// Computes the gradients with respect to the inputs of all sequences.
///
/// # Safety
/// No other thread reads or writes the gradients at the same time. If gradients are added, the
/// memory must be initialised. Afterwards it is initialised in both cases.
pub(super) unsafe fn run<P: TileProducts>(
    products: &P,
    layout: &Layout,
    inputs: Inputs<'_, P::Value>,
    known: Known<'_, P::Value>,
    to: (Shared<P::Value>, Write),
) {
    let (places, width) = (layout.hierarchy.places(), stride(layout.head));
    let worker = || {
        let room = |rows: usize, width: usize| vec![P::Value::default(); rows * width];
        Worker::<P> {
            products: products.worker(),
            key: room(places, layout.head),
            value: room(places, layout.head),
            scores: room(QUERIES, stride(places)),
            of_scores: room(QUERIES, stride(places)),
            of_query: room(QUERIES, width),
            of_key: room(stride(places), width),
            of_value: room(stride(places), width),
            numbers: [room(QUERIES, 1), room(QUERIES, 1)],
        }
    };
    let pass = Pass { products, layout, inputs, known, to };
    layout.for_heads(worker, |worker, sequence, heads| {
        // SAFETY: each task has its own heads of a sequence.
        unsafe { pass.sequence(worker, sequence, heads) };
    });
}

impl<P: TileProducts> Pass<'_, P> {
    /// Computes the gradients with respect to the queries, keys and values of some heads of a
    /// sequence.
    ///
    /// # Safety
    /// No other thread reads or writes these gradients at the same time.
    unsafe fn sequence(&self, worker: &mut Worker<P>, sequence: &Sequence, heads: &Range<usize>) {
        let (layout, causal) = (self.layout, self.layout.spec.causal);
        let room = || vec![P::Value::default(); sequence.summaries() * layout.head];
        // For each head, the adjoints of the keys and of the values of all summaries.
        let mut of_summaries: Vec<_> = heads.clone().map(|_| [room(), room()]).collect();
        let chunks = 0..sequence.counts[0];
        for chunk in chunks.clone().rev() {
            let chunk_keys = layout.seen(sequence, chunk);
            for (of_summaries, head) in of_summaries.iter_mut().zip(heads.clone()) {
                // SAFETY: as the caller promises.
                unsafe { self.chunk(worker, (sequence, head), (chunk, &chunk_keys), of_summaries) };
            }
        }
        for chunk in chunks.filter(|_| !causal) {
            let tokens = layout.hierarchy.tokens(1, chunk, sequence.length);
            let first = sequence.first + chunk * layout.hierarchy.chunk;
            for (of_summaries, head) in of_summaries.iter().zip(heads.clone()) {
                for (part, adjoints) in [KEY, VALUE].into_iter().zip(of_summaries) {
                    let adjoint = summaries::token_adjoint(layout, (sequence, chunk), adjoints);
                    for row in first..first + tokens {
                        // SAFETY: as the caller promises for these heads; the rows have been
                        // written before.
                        unsafe { self.put(part, head, row, &adjoint, Write::Add) };
                    }
                }
            }
        }
    }

    /// Runs the backward pass for the queries in a chunk of one head.
    ///
    /// # Safety
    /// As for [`Self::sequence`].
    unsafe fn chunk(
        &self,
        worker: &mut Worker<P>,
        head: (&Sequence, usize),
        (chunk, seen): (usize, &ChunkKeys<P::Value>),
        of_summaries: &mut [Vec<P::Value>; 2],
    ) {
        let (layout, products, inputs) = (self.layout, self.products, self.inputs);
        let (count, width) = (seen.all(), layout.head);
        inputs.gather(layout, head, (KEY, seen), &mut worker.key);
        inputs.gather(layout, head, (VALUE, seen), &mut worker.value);
        let keys = products.summed(gathered(&worker.key, count, width));
        let keys_across = products.summed(across(gathered(&worker.key, count, width)));
        let values_across = products.summed(across(gathered(&worker.value, count, width)));
        let step = stride(count);
        for (first, rows) in seen.blocks() {
            let query = layout.rows(inputs.qkv, QUERY, head.1, &rows);
            let adjoint = self.result_rows(self.known.adjoint, head.1, &rows);
            self.numbers(&mut worker.numbers, head.1, &rows);
            let (scratch, scores) = (&mut worker.products, &mut worker.scores);
            let shape = (rows.len(), width);
            let weights = (query.values, query.at);
            products.add_weighted(
                scratch,
                weights,
                shape,
                (&keys_across, 0),
                scores,
                Write::Replace,
            );
            let (of_scores, weights) = (&mut worker.of_scores, (adjoint.values, adjoint.at));
            products.add_weighted(
                scratch,
                weights,
                shape,
                (&values_across, 0),
                of_scores,
                Write::Replace,
            );
            let terms = terms(layout, head, seen, (chunk, first));
            let [products_of, log_sums] = &worker.numbers;
            let (log_sums, products_of) = (&log_sums[..rows.len()], &products_of[..rows.len()]);
            go_back(scores, of_scores, step, &terms, log_sums, products_of);

            let weights = (of_scores.as_slice(), Matrix::rows(step));
            let (shape, out) = ((rows.len(), count), &mut worker.of_query);
            products.add_weighted(scratch, weights, shape, (&keys, 0), out, Write::Replace);
            let write = if first == 0 { Write::Replace } else { Write::Add };
            let shape = (count, rows.len());
            let weights = (of_scores.as_slice(), Matrix::rows(step).transposed());
            products.weigh(scratch, weights, shape, query, &mut worker.of_key, write);
            let weights = (scores.as_slice(), Matrix::rows(step).transposed());
            products.weigh(scratch, weights, shape, adjoint, &mut worker.of_value, write);
            for (row, gradient) in rows.zip(worker.of_query.chunks_exact(stride(width))) {
                // SAFETY: as the caller promises.
                unsafe { self.put(QUERY, head.1, row, &gradient[..width], self.to.1) };
            }
        }
        let Worker { of_key, of_value, .. } = worker;
        let parts = [(KEY, of_key), (VALUE, of_value)];
        for ((part, gradients), of_summaries) in parts.into_iter().zip(of_summaries) {
            // Under a causal mask, no earlier chunk sees a summary of this chunk, so the adjoints
            // of its summaries are complete.
            let of_token = layout
                .spec
                .causal
                .then(|| summaries::token_adjoint(layout, (head.0, chunk), of_summaries));
            let mut gradients = gradients.chunks_exact_mut(stride(width));
            for (row, gradient) in seen.summaries.iter().cloned().flatten().zip(&mut gradients) {
                add(&mut of_summaries[row * width..(row + 1) * width], &gradient[..width]);
            }
            for (row, gradient) in seen.tokens.clone().zip(gradients) {
                let gradient = &mut gradient[..width];
                if let Some(of_token) = &of_token {
                    add(gradient, of_token);
                }
                // SAFETY: as the caller promises.
                unsafe { self.put(part, head.1, row, gradient, self.to.1) };
            }
        }
    }

    /// Computes two numbers for each query: the inner product `dO·O`, and the logarithm of the
    /// softmax denominator.
    fn numbers(&self, to: &mut [Vec<P::Value>; 2], head: usize, rows: &Range<usize>) {
        let (adjoint, out) = (
            self.result_rows(self.known.adjoint, head, rows),
            self.result_rows(self.known.out, head, rows),
        );
        let [products, log_sums] = to;
        for (i, row) in rows.clone().enumerate() {
            products[i] = blocked_sum([adjoint.row(i), out.row(i)], |[a, b]| a * b);
            log_sums[i] = self.known.log_sums[row * self.layout.spec.heads + head];
        }
    }

    /// Returns some rows of a head in the result, or in its adjoint.
    fn result_rows<'a>(
        &self,
        values: &'a [P::Value],
        head: usize,
        rows: &Range<usize>,
    ) -> Rows<'a, P::Value> {
        let (all, width) = (self.layout.width(), self.layout.head);
        let at = Matrix::rows(all).at(rows.start * all + head * width);
        Rows { values, at, count: rows.len(), width }
    }

    /// Writes or adds the gradient with respect to the query, key or value (`part`) of one head in
    /// one row.
    ///
    /// # Safety
    /// As for [`Self::sequence`]. If the gradient is added, the memory is initialised.
    unsafe fn put(
        &self,
        part: usize,
        head: usize,
        row: usize,
        gradient: &[P::Value],
        write: Write,
    ) {
        let columns = self.layout.columns(part);
        let first = row * columns.stride + columns.column + head * gradient.len();
        // SAFETY: as the caller promises.
        unsafe {
            match write {
                Write::Replace => self.to.0.write(first, gradient),
                Write::Add => add(self.to.0.range(first..first + gradient.len()), gradient),
            }
        }
    }
}
