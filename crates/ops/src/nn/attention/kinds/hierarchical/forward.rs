//! Forward pass of hierarchical attention.

use super::layout::{ChunkKeys, Layout, QUERIES, Sequence};
use super::passes::{Terms, drop, softmax};
use super::{KEY, QUERY, VALUE};
use crate::float::Float;
use crate::nn::attention::kinds::heads::PackedLayout;
use crate::nn::attention::tiled::products::{Rows, TileProducts, stride};
use crate::products::Matrix;
use crate::shared::{Shared, Write};
use std::ops::Range;

/// Inputs that the forward and the backward pass read.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a, T> {
    pub(super) qkv: &'a [T],
    /// Summaries, as computed by [`super::summaries::summarise`].
    pub(super) summaries: &'a [T],
}

impl<'a, T: Float> Inputs<'a, T> {
    pub(super) fn as_f32(&self) -> Option<Inputs<'a, f32>> {
        Some(Inputs { qkv: T::as_f32(self.qkv)?, summaries: T::as_f32(self.summaries)? })
    }

    /// Copies the keys (`part` 1) or values (2) that the tokens of a chunk see to `to`: `(S, Dh)`.
    /// S is the number of summaries and tokens that they see, and Dh is the width of a head.
    pub(super) fn gather(
        &self,
        layout: &Layout,
        (sequence, head): (&Sequence, usize),
        (part, seen): (usize, &ChunkKeys<T>),
        to: &mut [T],
    ) {
        let width = layout.head;
        let all = &self.summaries[layout.summaries_at(sequence, head, part)..];
        let (of_summaries, to) = to.split_at_mut(seen.count * width);
        let mut place = 0;
        for rows in &seen.summaries {
            let count = rows.len() * width;
            of_summaries[place..place + count]
                .copy_from_slice(&all[rows.start * width..rows.end * width]);
            place += count;
        }
        let chunk_rows = layout.rows(self.qkv, part, head, &seen.tokens);
        for (row, to) in to.chunks_exact_mut(width).take(chunk_rows.count).enumerate() {
            to.copy_from_slice(chunk_rows.row(row));
        }
    }
}

/// Describes the rows that [`Inputs::gather`] copied as a matrix, `(S, Dh)`.
pub(super) fn gathered<T>(values: &[T], count: usize, width: usize) -> Rows<'_, T> {
    Rows { values, at: Matrix::rows(width), count, width }
}

/// Describes the transpose of gathered rows as a matrix, `(Dh, S)`.
pub(super) fn across<T>(rows: Rows<'_, T>) -> Rows<'_, T> {
    Rows { at: rows.at.transposed(), count: rows.width, width: rows.count, ..rows }
}

/// Returns the settings for computing scores from products, for some queries of a chunk; `first` is
/// the index within the chunk of the first of these queries.
pub(super) fn terms<'a, T: Float>(
    layout: &Layout,
    (sequence, head): (&Sequence, usize),
    chunk_keys: &'a ChunkKeys<T>,
    (chunk, first): (usize, usize),
) -> Terms<'a, T> {
    let causal = layout.spec.causal;
    Terms {
        scale: T::cast((layout.head as f64).powf(-0.5)),
        added: &chunk_keys.added,
        visible: if causal { chunk_keys.count + first + 1 } else { chunk_keys.all() },
        growth: usize::from(causal),
        dropout: layout.spec.dropout,
        places: &chunk_keys.places,
        mask: (layout.mask_start(sequence, head, (chunk, first)), layout.hierarchy.places() as u32),
    }
}

/// Working memory of a thread.
struct Worker<P: TileProducts> {
    products: P::Worker,
    key: Vec<P::Value>,
    value: Vec<P::Value>,
    scores: Vec<P::Value>,
    out: Vec<P::Value>,
    log_sums: Vec<P::Value>,
}

struct Pass<'a, P: TileProducts> {
    products: &'a P,
    layout: &'a Layout,
    inputs: Inputs<'a, P::Value>,
    /// Destinations: the result and, if the backward pass needs them, the numbers `ln Σ exp(score)`
    /// for each query and head.
    to: (Shared<P::Value>, Option<Shared<P::Value>>),
}

/// Computes the results of all sequences.
///
/// # Safety
/// No other thread reads or writes the destinations at the same time. Afterwards they are
/// initialised.
pub(super) unsafe fn run<P: TileProducts>(
    products: &P,
    layout: &Layout,
    inputs: Inputs<'_, P::Value>,
    to: (Shared<P::Value>, Option<Shared<P::Value>>),
) {
    let places = layout.hierarchy.places();
    let worker = || {
        let room = |rows: usize, width: usize| vec![P::Value::default(); rows * width];
        Worker::<P> {
            products: products.worker(),
            key: room(places, layout.head),
            value: room(places, layout.head),
            scores: room(QUERIES, stride(places)),
            out: room(QUERIES, stride(layout.head)),
            log_sums: room(QUERIES, 1),
        }
    };
    let pass = Pass { products, layout, inputs, to };
    layout.for_heads(worker, |worker, sequence, heads| {
        for chunk in 0..sequence.counts[0] {
            let chunk_keys = layout.seen(sequence, chunk);
            for head in heads.clone() {
                // SAFETY: each task has its own heads of a sequence.
                unsafe { pass.chunk(worker, (sequence, head), (chunk, &chunk_keys)) };
            }
        }
    });
}

impl<P: TileProducts> Pass<'_, P> {
    /// Computes the results of a chunk of one head.
    ///
    /// # Safety
    /// No other thread reads or writes the results of this head at the same time.
    unsafe fn chunk(
        &self,
        worker: &mut Worker<P>,
        head: (&Sequence, usize),
        (chunk, seen): (usize, &ChunkKeys<P::Value>),
    ) {
        let (layout, products, inputs) = (self.layout, self.products, self.inputs);
        let (count, width) = (seen.all(), layout.head);
        inputs.gather(layout, head, (KEY, seen), &mut worker.key);
        inputs.gather(layout, head, (VALUE, seen), &mut worker.value);
        let keys = products.summed(across(gathered(&worker.key, count, width)));
        let values = products.summed(gathered(&worker.value, count, width));
        for (first, rows) in seen.blocks() {
            let query = layout.rows(inputs.qkv, QUERY, head.1, &rows);
            let terms = terms(layout, head, seen, (chunk, first));
            let (scratch, scores) = (&mut worker.products, &mut worker.scores);
            let shape = (rows.len(), width);
            let weights = (query.values, query.at);
            products.add_weighted(scratch, weights, shape, (&keys, 0), scores, Write::Replace);
            let step = stride(count);
            softmax(scores, step, &terms, &mut worker.log_sums[..rows.len()]);
            if layout.spec.dropout.is_active() {
                drop(scores, step, rows.len(), &terms);
            }
            let weights = (scores.as_slice(), Matrix::rows(step));
            let (shape, out) = ((rows.len(), count), &mut worker.out);
            products.add_weighted(scratch, weights, shape, (&values, 0), out, Write::Replace);
            // SAFETY: as the caller promises.
            unsafe { self.put(worker, head.1, &rows) };
        }
    }

    /// Writes the results of some rows of a head.
    ///
    /// # Safety
    /// As for [`Self::chunk`].
    unsafe fn put(&self, worker: &Worker<P>, head: usize, rows: &Range<usize>) {
        let (layout, width) = (self.layout, self.layout.head);
        let results = worker.out.chunks_exact(stride(width)).zip(&worker.log_sums);
        for ((out, &log_sum), row) in results.zip(rows.clone()) {
            // SAFETY: as the caller promises.
            unsafe {
                self.to.0.write(row * layout.width() + head * width, &out[..width]);
                if let Some(log_sums) = self.to.1 {
                    log_sums.write(row * layout.spec.heads + head, &[log_sum]);
                }
            }
        }
    }
}
