//! Dropout of elements in place, and its factors.

use crate::float::vectorised;
use crate::spec::Dropout;

vectorised! {
    /// Computes `values[i] *= factor(first + i)`.
    fn drop_in_place<T>(values: &mut [T], first: usize, dropout: Dropout) {
        let factor = dropout.kernel::<T>();
        for (i, value) in values.iter_mut().enumerate() {
            *value *= factor(first.wrapping_add(i) as u32);
        }
    }
}

vectorised! {
    /// Computes the factors of rows of `width` elements each; the first elements of two rows are
    /// `stride` apart in the mask.
    fn mask_rows<T>(out: &mut [T], width: usize, first: usize, stride: usize, dropout: Dropout) {
        let factor = dropout.kernel::<T>();
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            let first = first.wrapping_add(row * stride);
            for (i, out) in out.iter_mut().enumerate() {
                *out = factor(first.wrapping_add(i) as u32);
            }
        }
    }
}
