//! Inputs of attention, and destinations of its gradients.

use super::layout::Columns;
use crate::float::Float;
use crate::parallel::add;
use crate::shared::{Shared, Write};

/// Inputs of attention on the host.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a, T> {
    /// Matrices that contain queries, keys and values; `at` says in which columns.
    pub(super) values: [&'a [T]; 3],
    pub(super) at: [Columns; 3],
    /// Bias `(H, Tq, Tk)`, with the number of its elements for each head, and for each query.
    pub(super) bias: Option<(&'a [T], usize, usize)>,
}

impl<'a, T: Float> Operands<'a, T> {
    /// Returns the same inputs as f32; `None` if they are of another type.
    pub(super) fn as_f32(&self) -> Option<Operands<'a, f32>> {
        let [query, key, value] = self.values;
        let bias = match self.bias {
            Some((bias, head, row)) => Some((T::as_f32(bias)?, head, row)),
            None => None,
        };
        let values = [T::as_f32(query)?, T::as_f32(key)?, T::as_f32(value)?];
        Some(Operands { values, at: self.at, bias })
    }
}

/// Destinations of the gradients. Those with respect to queries, keys and values have the layout of
/// the inputs.
#[derive(Clone, Copy)]
pub(super) struct Gradients<T> {
    pub(super) values: [Shared<T>; 3],
    pub(super) write: Write,
    /// Destination of the gradient with respect to the bias; it must be initialised, because
    /// gradients are added to it.
    pub(super) bias: Option<Shared<T>>,
}

impl<T: Float> Gradients<T> {
    /// Returns the same destinations as f32; `None` if they are of another type.
    pub(super) fn as_f32(&self) -> Option<Gradients<f32>> {
        let [query, key, value] = self.values.map(T::shared_f32);
        let bias = match self.bias {
            Some(bias) => Some(T::shared_f32(bias)?),
            None => None,
        };
        Some(Gradients { values: [query?, key?, value?], write: self.write, bias })
    }

    /// Writes or adds the gradient with respect to the queries, keys or values (`part`) of one head
    /// in one row.
    ///
    /// # Safety
    /// No other thread reads or writes this gradient at the same time. If gradients are added, the
    /// memory is initialised.
    pub(super) unsafe fn put(
        &self,
        part: usize,
        at: Columns,
        row: usize,
        head: usize,
        gradient: &[T],
    ) {
        let first = row * at.stride + at.column + head * gradient.len();
        let to = self.values[part];
        // SAFETY: as the caller promises.
        unsafe {
            match self.write {
                Write::Replace => to.write(first, gradient),
                Write::Add => add(to.range(first..first + gradient.len()), gradient),
            }
        }
    }
}
