//! Backward pass of linear attention.
//!
//! The adjoint of a tensor is the gradient of the loss with respect to it. Let O be the result, dO
//! its adjoint, and Z the denominators. The adjoints of the numerator and of the denominator of
//! query i are `P_i = dO_i / Z_i` and `p_i = −dO_i·O_i / Z_i`. Then
//!
//! ```text
//! dφ(q_i) = Σ_j (P_i·v_j + p_i) φ(k_j),   dφ(k_j) = Σ_i (P_i·v_j + p_i) φ(q_i),
//! dv_j    = Σ_i (φ(q_i)·φ(k_j)) P_i
//! ```
//!
//! where j runs over the tokens that i sees, and i over the tokens that see j. Under a causal mask,
//! pairs within a chunk are computed directly. All other pairs are computed from two states. The
//! first is `Σ φ(k) (v, 1)ᵀ`, summed over the tokens before the chunk. The second is
//! `Σ φ(q) (P, p)ᵀ`, summed over the tokens after the chunk. Chunks are processed from the last to
//! the first, in groups of consecutive chunks. The states before the chunks of a group are
//! recomputed from the state that was kept before the group. Without a mask, both states are sums
//! over all tokens of the sequence.

mod both_ways;
mod causal;

use super::features::Features;
use super::layout::{CHUNK, GROUP, Layout, Sequence};
use super::state::{State, add_outer};
use super::{KEY, QUERY, VALUE};
use crate::float::{Float, vectorised};
use crate::nn::attention::kinds::heads::{PackedLayout, WeighedRows};
use crate::nn::attention::tiled::products::{Rows, TileProducts, stride};
use crate::parallel::add;
use crate::products::Matrix;
use crate::shared::{Shared, Write};
use crate::sums::blocked_sum;
use std::ops::Range;

/// Values that the backward pass reads in addition to queries, keys and values.
#[derive(Clone, Copy)]
pub(super) struct Known<'a, T> {
    /// Adjoint of the result.
    pub(super) adjoint: &'a [T],
    /// Result of the forward pass.
    pub(super) out: &'a [T],
    /// Denominators, states and exponents that the forward pass kept, in the order that [`Layout`]
    /// determines.
    pub(super) denominators: &'a [T],
    pub(super) states: &'a [T],
    pub(super) exponents: &'a [T],
}

impl<'a, T: Float> Known<'a, T> {
    pub(super) fn as_f32(&self) -> Option<Known<'a, f32>> {
        Some(Known {
            adjoint: T::as_f32(self.adjoint)?,
            out: T::as_f32(self.out)?,
            denominators: T::as_f32(self.denominators)?,
            states: T::as_f32(self.states)?,
            exponents: T::as_f32(self.exponents)?,
        })
    }
}

/// Whether a function works on queries or on keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Query,
    Key,
}

/// Working memory of a thread.
struct Worker<P: TileProducts> {
    products: P::Worker,
    /// Features of the queries of all chunks in a group; `key` has the features of their keys.
    query: Vec<P::Value>,
    key: Vec<P::Value>,
    states: Vec<State<P::Value>>,
    /// Products of the features of queries with the features of keys in one chunk. `of_scores` has
    /// the adjoints of these products.
    scores: Vec<P::Value>,
    of_scores: Vec<P::Value>,
    /// Adjoints of the numerators, P. `of_denominators` has the adjoints of the denominators, p.
    adjoint: Vec<P::Value>,
    of_denominators: Vec<P::Value>,
    of_features: Vec<P::Value>,
    of_rows: Vec<P::Value>,
}

struct Pass<'a, 'b, P: TileProducts> {
    products: &'a P,
    layout: &'a Layout,
    features: &'a Features<'b, P>,
    qkv: &'a [P::Value],
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
    features: &Features<'_, P>,
    (qkv, known): (&[P::Value], Known<'_, P::Value>),
    to: (Shared<P::Value>, Write),
) {
    let (head, count) = (stride(layout.shape.head), stride(features.count));
    let rows = layout.longest_chunk();
    let longest = layout.sequences.iter().map(|it| it.length).max().unwrap_or(0);
    // Number of rows whose features are kept at a time. Under a causal mask, it is the number of
    // rows in a group of chunks; otherwise it is the number of rows in a chunk.
    let in_group = match layout.spec.causal {
        true if longest > CHUNK => longest.next_multiple_of(CHUNK).min(GROUP),
        _ => rows,
    };
    let worker = || {
        let room = |rows: usize, width: usize| vec![P::Value::default(); rows * width];
        let state = State::new(features.count, layout.shape.head, layout.is_random);
        Worker::<P> {
            products: products.worker(),
            query: room(in_group, count),
            key: room(in_group, count),
            states: vec![state; in_group.div_ceil(CHUNK)],
            scores: room(rows, rows),
            of_scores: room(rows, rows),
            adjoint: room(rows, head),
            of_denominators: room(rows, 1),
            of_features: room(rows, count),
            of_rows: room(rows, head),
        }
    };
    let pass = Pass { products, layout, features, qkv, known, to };
    layout.for_heads(worker, |worker, sequence, heads| {
        // SAFETY: each task has its own heads of a sequence.
        unsafe {
            match layout.spec.causal {
                true => pass.causal(worker, sequence, heads),
                false => pass.both_ways(worker, sequence, heads),
            }
        }
    });
}

impl<P: TileProducts> Pass<'_, '_, P> {
    fn empty(&self) -> State<P::Value> {
        let shape = self.layout.shape;
        State::new(shape.features, shape.head, self.layout.is_random)
    }

    fn rows(&self, part: usize, head: usize, rows: &Range<usize>) -> Rows<'_, P::Value> {
        self.layout.rows(self.qkv, part, head, rows)
    }

    /// Returns the number c for a chunk: the forward pass divided its keys' features by `exp(c)`.
    fn exponent(&self, sequence: &Sequence, chunk: usize, head: usize) -> P::Value {
        match self.layout.is_random {
            true => self.known.exponents[self.layout.exponent_at(sequence, chunk, head)],
            false => P::Value::default(),
        }
    }

    /// Computes the adjoints of the numerators and denominators of some queries.
    fn adjoints(&self, worker: &mut Worker<P>, head: usize, rows: &Range<usize>) {
        let (layout, heads) = (self.layout, self.layout.spec.heads);
        let width = layout.shape.head;
        let first = rows.start * layout.width() + head * width;
        let head_rows = |values| Rows {
            values,
            at: Matrix::rows(layout.width()).at(first),
            count: rows.len(),
            width,
        };
        let (adjoint, out) = (head_rows(self.known.adjoint), head_rows(self.known.out));
        let denominators = &self.known.denominators[rows.start * heads + head..];
        divide(
            adjoint,
            out,
            (denominators, heads),
            &mut worker.adjoint,
            &mut worker.of_denominators,
        );
    }

    fn adjoint_rows<'a>(&self, adjoint: &'a [P::Value], count: usize) -> Rows<'a, P::Value> {
        let width = self.layout.shape.head;
        Rows { values: adjoint, at: Matrix::rows(stride(width)), count, width }
    }

    /// Writes or adds the part of the adjoints of query or key features that comes through a state.
    /// For queries, this is the state before the chunk, which sums the products of key features
    /// with values and with 1. For keys, it is the state after the chunk, which sums the products
    /// of query features with the adjoints of numerators and denominators.
    fn through_state(
        &self,
        worker: &mut Worker<P>,
        state: &State<P::Value>,
        side: Side,
        head: usize,
        rows: &Range<usize>,
        write: Write,
    ) {
        let (products, features) = (self.products, self.features.count);
        let left = match side {
            Side::Query => self.adjoint_rows(&worker.adjoint, rows.len()),
            Side::Key => self.rows(VALUE, head, rows),
        };
        let (weights, shape) = ((left.values, left.at), (left.count, left.width));
        let (scratch, out) = (&mut worker.products, &mut worker.of_features);
        products.weigh(scratch, weights, shape, state.columns(), out, write);
        let numbers = (side == Side::Query).then_some(&*worker.of_denominators);
        add_outer(out, (stride(features), rows.len()), numbers, &state.totals);
    }

    /// Computes the gradient with respect to queries or keys from the gradient with respect to
    /// their features, and writes it. The features begin at index `at` of the list of features in
    /// `worker`.
    ///
    /// # Safety
    /// As for [`Self::causal`].
    unsafe fn features_back(
        &self,
        worker: &mut Worker<P>,
        side: Side,
        head: usize,
        rows: &Range<usize>,
        at: usize,
    ) {
        let (part, features) = match side {
            Side::Query => (QUERY, &worker.query[at..]),
            Side::Key => (KEY, &worker.key[at..]),
        };
        let inputs = self.rows(part, head, rows);
        let Worker { products, of_features, of_rows, .. } = worker;
        self.features.back(self.products, products, inputs, features, of_features, of_rows);
        // SAFETY: as the caller promises.
        unsafe { self.put(part, head, rows, &worker.of_rows) };
    }

    /// Writes or adds a part of the gradient with respect to the values: the part that comes
    /// through the state `behind`, which has the sums over later queries. The features of the keys
    /// begin at index `at` of `worker.key`.
    fn read_behind(
        &self,
        worker: &mut Worker<P>,
        behind: &State<P::Value>,
        at: usize,
        count: usize,
        write: Write,
    ) {
        let (products, features) = (self.products, self.features.count);
        let key = (&worker.key[at..], Matrix::rows(stride(features)));
        let (scratch, out) = (&mut worker.products, &mut worker.of_rows);
        products.weigh(scratch, key, (count, features), behind.rows(), out, write);
    }

    /// Adds some queries to the state `behind`. Their features begin at index `at` of
    /// `worker.query`.
    fn add_queries(
        &self,
        worker: &mut Worker<P>,
        behind: &mut State<P::Value>,
        at: usize,
        count: usize,
    ) {
        let adjoint = self.products.summed(self.adjoint_rows(&worker.adjoint, count));
        let features = (&worker.query[at..], count);
        let numbers = Some(&*worker.of_denominators);
        behind.add(self.products, &mut worker.products, features, &adjoint, numbers);
    }

    /// Writes or adds the gradient with respect to the query, key or value (`part`) of one head in
    /// some rows.
    ///
    /// # Safety
    /// As for [`Self::causal`].
    unsafe fn put(&self, part: usize, head: usize, rows: &Range<usize>, gradient: &[P::Value]) {
        let width = self.layout.shape.head;
        let (to, write) = self.to;
        let columns = self.layout.columns(part);
        for (gradient, row) in gradient.chunks_exact(stride(width)).zip(rows.clone()) {
            let first = row * columns.stride + columns.column + head * width;
            let gradient = &gradient[..width];
            // SAFETY: as the caller promises.
            unsafe {
                match write {
                    Write::Replace => to.write(first, gradient),
                    Write::Add => add(to.range(first..first + width), gradient),
                }
            }
        }
    }
}

vectorised! {
    /// Computes `P = dO / Z` and `p = −dO·O / Z` for each row. The second element of `denominators`
    /// is the distance from one denominator to the next.
    fn divide<T>(
        adjoint: Rows<'_, T>,
        out: Rows<'_, T>,
        denominators: (&[T], usize),
        of_numerators: &mut [T],
        of_denominators: &mut [T],
    ) {
        let (denominators, step) = denominators;
        let rows = of_numerators.chunks_exact_mut(stride(adjoint.width));
        for (i, (of_row, of_denominator)) in
            rows.zip(of_denominators).take(adjoint.count).enumerate()
        {
            let factor = T::cast(1.0) / denominators[i * step];
            let (adjoint, out) = (adjoint.row(i), out.row(i));
            for (of_row, &adjoint) in of_row.iter_mut().zip(adjoint) {
                *of_row = adjoint * factor;
            }
            *of_denominator = -blocked_sum([adjoint, out], |[a, b]| a * b) * factor;
        }
    }
}
