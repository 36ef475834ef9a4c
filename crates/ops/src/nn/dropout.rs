//! Dropout of elements in place, and its mask.

use crate::float::vectorised;
use crate::spec::Dropout;

vectorised! {
    /// Multiplies each value by its number in the dropout mask; `first` is the index of the first
    /// value in the mask.
    fn drop_in_place<T>(values: &mut [T], first: usize, dropout: Dropout) {
        let factor = dropout.kernel::<T>();
        for (i, value) in values.iter_mut().enumerate() {
            *value *= factor(first.wrapping_add(i) as u32);
        }
    }
}

vectorised! {
    /// Writes the dropout mask to `out`, for rows with `width` elements each. In the mask, `first`
    /// is the index of the first element, and `stride` is the distance from the beginning of one
    /// row to the beginning of the next.
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
