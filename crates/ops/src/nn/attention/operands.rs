//! Inputs of attention, and destinations of its gradients.

use super::layout::Columns;
use crate::float::Float;
use crate::parallel::add;
use crate::shared::{Shared, Write};

/// Inputs of attention.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a, T> {
    /// Elements of query, key and value.
    pub(super) values: [&'a [T]; 3],
    pub(super) at: [Columns; 3],
    /// Bias `(H, Tq, Tk)`, with the numbers of elements of a head and of a query.
    pub(super) bias: Option<(&'a [T], usize, usize)>,
}

impl<'a, T: Float> Operands<'a, T> {
    /// The same inputs, if they are f32.
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

/// Destinations of the gradients of query, key and value, with the layout of these, and of the
/// bias.
#[derive(Clone, Copy)]
pub(super) struct Gradients<T> {
    pub(super) values: [Shared<T>; 3],
    pub(super) write: Write,
    /// Gradient of the bias: initialised, and added to.
    pub(super) bias: Option<Shared<T>>,
}

impl<T: Float> Gradients<T> {
    /// The same destinations, if they are f32.
    pub(super) fn as_f32(&self) -> Option<Gradients<f32>> {
        let [query, key, value] = self.values.map(T::shared_f32);
        let bias = match self.bias {
            Some(bias) => Some(T::shared_f32(bias)?),
            None => None,
        };
        Some(Gradients { values: [query?, key?, value?], write: self.write, bias })
    }

    /// Writes the gradient of one head of a row.
    ///
    /// # Safety
    /// Nobody else reads or writes it meanwhile. It is initialised if it is added to.
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
        // SAFETY: the caller's promise.
        unsafe {
            match self.write {
                Write::Replace => to.write(first, gradient),
                Write::Add => add(to.range(first..first + gradient.len()), gradient),
            }
        }
    }
}
