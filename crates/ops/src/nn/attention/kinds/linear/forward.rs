//! Forward pass of linear attention.

use super::features::Features;
use super::layout::{CHUNK, GROUP, Layout, Sequence};
use super::state::{State, add_products, clear_future};
use super::{KEY, QUERY, VALUE};
use crate::float::Float;
use crate::nn::attention::kinds::heads::{PackedLayout, WeighedRows};
use crate::nn::attention::tiled::products::{Rows, TileProducts, stride};
use crate::products::Matrix;
use crate::shared::{Shared, Write};
use crate::spec::attention::kinds::LinearAttentionSpec;
use std::ops::Range;

/// Destinations of the results of the forward pass.
#[derive(Clone, Copy)]
pub(super) struct Outputs<T> {
    /// Result, `(N, H·Dh)`.
    pub(super) out: Shared<T>,
    /// Numbers for the backward pass; `None` if no gradients are needed.
    pub(super) kept: Option<SavedSums<T>>,
    /// Sums after the last token of each sequence, followed by the exponents c if the sums have
    /// been divided by `exp(c)`. This memory must be initialised. `None` if the sums are not
    /// wanted.
    pub(super) last: Option<Shared<T>>,
}

impl<T: Float> Outputs<T> {
    /// Returns the same destinations as f32; `None` if they are of another type.
    pub(super) fn as_f32(&self) -> Option<Outputs<f32>> {
        let kept = match self.kept {
            Some(SavedSums { denominators, states, exponents }) => Some(SavedSums {
                denominators: T::shared_f32(denominators)?,
                states: T::shared_f32(states)?,
                exponents: T::shared_f32(exponents)?,
            }),
            None => None,
        };
        let last = match self.last {
            Some(last) => Some(T::shared_f32(last)?),
            None => None,
        };
        Some(Outputs { out: T::shared_f32(self.out)?, kept, last })
    }
}

/// Destinations of numbers for the backward pass, in the order that [`Layout`] determines.
#[derive(Clone, Copy)]
pub(super) struct SavedSums<T> {
    /// Denominators, `(N, H)`.
    pub(super) denominators: Shared<T>,
    pub(super) states: Shared<T>,
    pub(super) exponents: Shared<T>,
}

/// Working memory of a thread.
struct Worker<P: TileProducts> {
    products: P::Worker,
    query: Vec<P::Value>,
    key: Vec<P::Value>,
    scores: Vec<P::Value>,
    /// Weighted sums of values, before they are divided by the denominators.
    out: Vec<P::Value>,
    denominators: Vec<P::Value>,
}

struct Pass<'a, 'b, P: TileProducts> {
    products: &'a P,
    layout: &'a Layout,
    features: &'a Features<'b, P>,
    qkv: &'a [P::Value],
    to: Outputs<P::Value>,
}

/// Computes the results of all sequences.
///
/// # Safety
/// No other thread reads or writes the destinations at the same time. Afterwards they are
/// initialised.
pub(super) unsafe fn run<P: TileProducts>(
    products: &P,
    layout: &Layout,
    features: &Features<'_, P>,
    qkv: &[P::Value],
    to: Outputs<P::Value>,
) {
    let (head, count) = (stride(layout.shape.head), stride(features.count));
    let rows = layout.longest_chunk();
    let worker = || {
        let room = |width: usize| vec![P::Value::default(); rows * width];
        Worker::<P> {
            products: products.worker(),
            query: room(count),
            key: room(count),
            scores: room(rows),
            out: room(head),
            denominators: room(1),
        }
    };
    let pass = Pass { products, layout, features, qkv, to };
    layout.for_heads(worker, |worker, sequence, heads| {
        // SAFETY: each task has its own heads of a sequence.
        unsafe { pass.sequence(worker, sequence, heads) };
    });
}

impl<P: TileProducts> Pass<'_, '_, P> {
    /// Computes the results of some heads of a sequence.
    ///
    /// # Safety
    /// No other thread reads or writes the results of these heads at the same time.
    unsafe fn sequence(&self, worker: &mut Worker<P>, sequence: &Sequence, heads: &Range<usize>) {
        let shape = self.layout.shape;
        let state = State::new(shape.features, shape.head, self.layout.is_random);
        let mut states = vec![state; heads.len()];
        if !self.layout.spec.causal {
            for (_, rows) in sequence.chunks() {
                for (state, head) in states.iter_mut().zip(heads.clone()) {
                    let value = self.value(head, &rows);
                    self.keys(worker, state, head, &rows);
                    self.add(worker, state, &value, rows.len());
                }
            }
        }
        for (chunk, rows) in sequence.chunks() {
            for (state, head) in states.iter_mut().zip(heads.clone()) {
                // SAFETY: as the caller promises.
                unsafe {
                    if self.layout.spec.causal {
                        self.causal_chunk(worker, state, (sequence, head), (chunk, &rows));
                    } else {
                        self.queries(worker, head, &rows);
                        worker.denominators[..rows.len()].fill(P::Value::default());
                        self.read(worker, state, rows.len(), Write::Replace);
                    }
                    self.finish(worker, head, &rows);
                }
            }
        }
        for (state, head) in states.iter().zip(heads.clone()) {
            // SAFETY: as the caller promises.
            unsafe { self.keep_last(state, sequence, head) };
        }
    }

    fn rows(&self, part: usize, head: usize, rows: &Range<usize>) -> Rows<'_, P::Value> {
        self.layout.rows(self.qkv, part, head, rows)
    }

    fn value(&self, head: usize, rows: &Range<usize>) -> P::Operand<'_> {
        self.products.summed(self.rows(VALUE, head, rows))
    }

    fn queries(&self, worker: &mut Worker<P>, head: usize, rows: &Range<usize>) {
        let query = self.rows(QUERY, head, rows);
        self.features.queries(self.products, &mut worker.products, query, &mut worker.query);
    }

    /// Computes the features of some keys, and divides them by a common factor `exp(c)`. Scales the
    /// state, so that it has been divided by the same factor.
    fn keys(
        &self,
        worker: &mut Worker<P>,
        state: &mut State<P::Value>,
        head: usize,
        rows: &Range<usize>,
    ) {
        let (key, products) = (self.rows(KEY, head, rows), &mut worker.products);
        let exponent =
            self.features.keys(self.products, products, key, state.left_out, &mut worker.key);
        state.leave_out(exponent);
    }

    /// Adds the products of the keys' features with their values to the state.
    fn add(
        &self,
        worker: &mut Worker<P>,
        state: &mut State<P::Value>,
        value: &P::Operand<'_>,
        count: usize,
    ) {
        let features = (worker.key.as_slice(), count);
        state.add(self.products, &mut worker.products, features, value, None);
    }

    /// Multiplies the queries' features by the state, and writes or adds the results to the
    /// weighted sums and the denominators.
    fn read(&self, worker: &mut Worker<P>, state: &State<P::Value>, count: usize, write: Write) {
        let (products, features) = (self.products, self.features.count);
        let query = (worker.query.as_slice(), Matrix::rows(stride(features)));
        let (scratch, out) = (&mut worker.products, &mut worker.out);
        products.weigh(scratch, query, (count, features), state.rows(), out, write);
        crate::profile::count(2 * count * features);
        let denominators = &mut worker.denominators[..count];
        add_products(&worker.query, stride(features), &state.totals, denominators);
    }

    /// Computes the results of a chunk under a causal mask.
    ///
    /// # Safety
    /// As for [`Self::sequence`].
    unsafe fn causal_chunk(
        &self,
        worker: &mut Worker<P>,
        state: &mut State<P::Value>,
        (sequence, head): (&Sequence, usize),
        (chunk, rows): (usize, &Range<usize>),
    ) {
        let (layout, products, count) = (self.layout, self.products, rows.len());
        if chunk > 0
            && chunk.is_multiple_of(GROUP / CHUNK)
            && let Some(kept) = self.to.kept
        {
            let first = layout.state_at(sequence, chunk / (GROUP / CHUNK), head);
            // SAFETY: as the caller promises.
            state.write(|at, values| unsafe { kept.states.write(first + at, values) });
        }
        self.queries(worker, head, rows);
        self.keys(worker, state, head, rows);
        if layout.is_random
            && let Some(kept) = self.to.kept
        {
            let at = layout.exponent_at(sequence, chunk, head);
            // SAFETY: as the caller promises.
            unsafe { kept.exponents.write(at, &[state.left_out]) };
        }
        let features = self.features.count;
        let at = Matrix::rows(stride(features));
        let key = worker.key.as_slice();
        let across = Rows { values: key, at: at.transposed(), count: features, width: count };
        let query = (worker.query.as_slice(), at);
        let scores = &mut worker.scores;
        let scratch = &mut worker.products;
        products.weigh(scratch, query, (count, features), across, scores, Write::Replace);
        let width = stride(count);
        clear_future(scores, width, &mut worker.denominators[..count]);
        crate::profile::count(2 * count * count);
        let value = self.value(head, rows);
        let past = (worker.scores.as_slice(), Matrix::rows(width));
        let out = &mut worker.out;
        products.add_weighted(scratch, past, (count, count), (&value, 0), out, Write::Replace);
        if chunk > 0 {
            self.read(worker, state, count, Write::Add);
        }
        let is_last = rows.end == sequence.first + sequence.length;
        if !is_last || self.to.last.is_some() {
            self.add(worker, state, &value, count);
        }
    }

    /// Divides the weighted sums by the denominators, and writes the results of some rows.
    ///
    /// # Safety
    /// As for [`Self::sequence`].
    unsafe fn finish(&self, worker: &mut Worker<P>, head: usize, rows: &Range<usize>) {
        let (layout, width) = (self.layout, self.layout.shape.head);
        let epsilon = P::Value::cast(LinearAttentionSpec::epsilon(layout.is_random));
        let out = worker.out.chunks_exact_mut(stride(width));
        for ((out, &denominator), row) in out.zip(&worker.denominators).zip(rows.clone()) {
            let divisor = denominator + epsilon;
            let out = &mut out[..width];
            out.iter_mut().for_each(|out| *out /= divisor);
            // SAFETY: as the caller promises.
            unsafe {
                self.to.out.write(row * layout.width() + head * width, out);
                if let Some(kept) = self.to.kept {
                    kept.denominators.write(row * layout.spec.heads + head, &[divisor]);
                }
            }
        }
    }

    /// Writes the state after the last token to `last` if it was requested. Without a causal mask,
    /// the backward pass reads this state, so it is also written to `kept`.
    ///
    /// # Safety
    /// As for [`Self::sequence`].
    unsafe fn keep_last(&self, state: &State<P::Value>, sequence: &Sequence, head: usize) {
        let layout = self.layout;
        // SAFETY: as the caller promises.
        unsafe {
            if !layout.spec.causal
                && let Some(kept) = self.to.kept
            {
                let first = layout.state_at(sequence, 0, head);
                state.write(|at, values| kept.states.write(first + at, values));
                if layout.is_random {
                    let at = layout.exponent_at(sequence, 0, head);
                    kept.exponents.write(at, &[state.left_out]);
                }
            }
            if let Some(last) = self.to.last {
                let (first, exponent) = layout.last_at(sequence, head);
                state.write(|at, values| last.write(first + at, values));
                if layout.is_random {
                    last.write(exponent, &[state.left_out]);
                }
            }
        }
    }
}
