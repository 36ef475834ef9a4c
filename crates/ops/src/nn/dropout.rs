//! Dropout of elements in place, and the factors of dropout.

use crate::float::vectorised;
use crate::spec::Dropout;

vectorised! {
    /// Computes `values[i] *= factor(first + i)`, where `first` is the index of the first value in
    /// the mask.
    fn drop_in_place<T>(values: &mut [T], first: usize, dropout: Dropout) {
        let factor = dropout.kernel::<T>();
        for (i, value) in values.iter_mut().enumerate() {
            *value *= factor(first.wrapping_add(i) as u32);
        }
    }
}

vectorised! {
    /// Computes the dropout factors of rows with `width` elements each. `first` is the index of the
    /// first element in the mask, and `stride` the distance there from one row's first element to
    /// the next.
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
