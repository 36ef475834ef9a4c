//! The state of linear attention, which consists of sums over tokens. Also the operations on chunks
//! of tokens that are not matrix products.

use crate::float::{Float, vectorised};
use crate::nn::attention::tiled::products::{Rows, TileProducts, stride};
use crate::products::Matrix;
use crate::shared::Write;
use crate::sums::blocked_sum;

/// Sums `Σ φ bᵀ` and `Σ φ w` over tokens, where each token has features φ, a vector b and a number
/// w. In the forward pass, b is the token's value, and w is 1. In the backward pass, b is the
/// adjoint of the token's weighted sum of values, and w is the adjoint of the token's denominator.
/// (An adjoint is the gradient of the loss with respect to a quantity.)
#[derive(Clone)]
pub(super) struct State<T> {
    /// Sums with vectors, `Σ φ bᵀ`, `(M, Dh)`. Each row is padded to whole panels (groups of
    /// elements that a kernel processes together).
    pub(super) sums: Vec<T>,
    /// Sums with numbers, `Σ φ w`, `(M,)`.
    pub(super) totals: Vec<T>,
    /// Number c, if `sums` and `totals` have been divided by `exp(c)`; 0 otherwise.
    pub(super) left_out: T,
    head: usize,
}

impl<T: Float> State<T> {
    /// Makes the sums over no tokens.
    pub(super) fn new(features: usize, head: usize, is_random: bool) -> Self {
        let left_out = if is_random { T::NEGATIVE_INFINITY } else { T::default() };
        let sums = vec![T::default(); stride(features) * stride(head)];
        Self { sums, totals: vec![T::default(); features], left_out, head }
    }

    /// Makes a placeholder without memory, for a state that has been taken out of a list.
    pub(super) const fn none() -> Self
    where
        T: Copy,
    {
        Self { sums: Vec::new(), totals: Vec::new(), left_out: T::NEGATIVE_INFINITY, head: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.sums.fill(T::default());
        self.totals.fill(T::default());
    }

    /// Passes all scalars to `put`, some at a time. A row of `sums`, without its padding, is
    /// followed by the row's element of `totals`. The first argument of `put` is the index of the
    /// first passed scalar among the [`Layout::state_size`](super::layout::Layout::state_size)
    /// scalars of the state.
    pub(super) fn write(&self, put: impl Fn(usize, &[T])) {
        let width = self.head + 1;
        let rows = self.sums.chunks_exact(stride(self.head)).zip(&self.totals).enumerate();
        for (row, (sums, &total)) in rows {
            put(row * width, &sums[..self.head]);
            put(row * width + self.head, &[total]);
        }
    }

    pub(super) fn read(&mut self, from: &[T]) {
        let rows = self.sums.chunks_exact_mut(stride(self.head)).zip(&mut self.totals);
        for ((sums, total), from) in rows.zip(from.chunks_exact(self.head + 1)) {
            sums[..self.head].copy_from_slice(&from[..self.head]);
            *total = from[self.head];
        }
    }

    pub(super) fn scale(&mut self, factor: T) {
        if factor != T::cast(1.0) {
            multiply(&mut self.sums, factor);
            multiply(&mut self.totals, factor);
        }
    }

    /// Scales the sums so that they are divided by `exp(exponent)` instead of the earlier factor.
    pub(super) fn leave_out(&mut self, exponent: T) {
        if exponent != self.left_out {
            self.scale((self.left_out - exponent).exp());
            self.left_out = exponent;
        }
    }

    /// Adds `count` tokens: their `features (N, M)`, their vectors and their numbers. `numbers` is
    /// `None` if all are 1.
    pub(super) fn add<P: TileProducts<Value = T>>(
        &mut self,
        products: &P,
        worker: &mut P::Worker,
        (features, count): (&[T], usize),
        vectors: &P::Operand<'_>,
        numbers: Option<&[T]>,
    ) {
        let width = stride(self.totals.len());
        let across = (features, Matrix::rows(width).transposed());
        let shape = (self.totals.len(), count);
        products.add_weighted(worker, across, shape, (vectors, 0), &mut self.sums, Write::Add);
        crate::profile::count(2 * count * self.totals.len());
        add_weighted_rows(features, (width, count), numbers, &mut self.totals);
    }

    /// Describes the sums with vectors as a matrix, `(M, Dh)`.
    pub(super) fn rows(&self) -> Rows<'_, T> {
        let at = Matrix::rows(stride(self.head));
        Rows { values: &self.sums, at, count: self.totals.len(), width: self.head }
    }

    /// Describes the transpose of the sums with vectors as a matrix, `(Dh, M)`.
    pub(super) fn columns(&self) -> Rows<'_, T> {
        let Rows { values, at, count, width } = self.rows();
        Rows { values, at: at.transposed(), count: width, width: count }
    }
}

vectorised! {
    fn multiply<T>(values: &mut [T], factor: T) {
        for value in values {
            *value *= factor;
        }
    }
}

vectorised! {
    /// Computes `total += Σ_i w_i rows[i]`; if `weights` is `None`, all w_i are 1.
    fn add_weighted_rows<T>(
        rows: &[T],
        layout: (usize, usize),
        weights: Option<&[T]>,
        total: &mut [T],
    ) {
        let (stride, count) = layout;
        for (i, row) in rows.chunks_exact(stride).take(count).enumerate() {
            let weight = weights.map_or(T::cast(1.0), |weights| weights[i]);
            for (total, &value) in total.iter_mut().zip(row) {
                *total += value * weight;
            }
        }
    }
}

vectorised! {
    /// Computes `out[i] += w_i row` for each row i; if `weights` is `None`, all w_i are 1.
    fn add_outer<T>(
        out: &mut [T],
        layout: (usize, usize),
        weights: Option<&[T]>,
        row: &[T],
    ) {
        let (stride, count) = layout;
        for (i, out) in out.chunks_exact_mut(stride).take(count).enumerate() {
            let weight = weights.map_or(T::cast(1.0), |weights| weights[i]);
            for (out, &value) in out.iter_mut().zip(row) {
                *out += value * weight;
            }
        }
    }
}

vectorised! {
    /// Computes `sums[i] += rows[i] · row` for each row i.
    fn add_products<T>(rows: &[T], stride: usize, row: &[T], sums: &mut [T]) {
        for (sum, values) in sums.iter_mut().zip(rows.chunks_exact(stride)) {
            *sum += blocked_sum([&values[..row.len()], row], |[a, b]| a * b);
        }
    }
}

vectorised! {
    /// Sets the elements of each row after the diagonal to zero, and `sums[i]` to the sum of row i
    /// up to the diagonal.
    fn clear_future<T>(scores: &mut [T], stride: usize, sums: &mut [T]) {
        let count = sums.len();
        for (i, (sum, row)) in sums.iter_mut().zip(scores.chunks_exact_mut(stride)).enumerate() {
            row[i + 1..count].fill(T::default());
            *sum = blocked_sum([&row[..i + 1]], |[x]| x);
        }
    }
}

vectorised! {
    /// Adds `added[i]` to the elements of row i up to the diagonal, and sets the elements after the
    /// diagonal to zero.
    fn add_to_past<T>(scores: &mut [T], stride: usize, added: &[T]) {
        let count = added.len();
        for (i, (&added, row)) in added.iter().zip(scores.chunks_exact_mut(stride)).enumerate() {
            let (past, future) = row[..count].split_at_mut(i + 1);
            for score in past {
                *score += added;
            }
            future.fill(T::default());
        }
    }
}
