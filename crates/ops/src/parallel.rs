//! Parallel work in pieces of fixed size, so that no result depends on the number of threads.
//!
//! Rayon hands out several pieces at a time (with two threads, up to a fourth of all), so that the
//! first thread to finish waits. `with_max_len(1)` hands them out one by one, at a cost of a tenth
//! of a microsecond each, for pieces that are large enough.

use crate::float::{Float, vectorised};
use crate::profile::{even, region};
use rayon::prelude::*;

/// Number of elements in a piece of an elementwise pass.
pub(crate) const CHUNK: usize = 16 * 1024;

/// Number of rows in a piece of a pass over rows that also sums over them.
pub(crate) const ROWS: usize = 64;

vectorised! {
    /// Computes `total[i] += values[i]`.
    fn add<T>(total: &mut [T], values: &[T]) {
        for (total, value) in total.iter_mut().zip(values) {
            *total += *value;
        }
    }
}

vectorised! {
    /// Computes `out[i] *= factors[i]`.
    fn multiply<T>(out: &mut [T], factors: &[T]) {
        for (out, factor) in out.iter_mut().zip(factors) {
            *out *= *factor;
        }
    }
}

vectorised! {
    /// Adds the rows of a matrix to `sums`.
    fn add_rows<T>(rows: &[T], sums: &mut [T]) {
        for row in rows.chunks_exact(sums.len()) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += *value;
            }
        }
    }
}

/// Sums the columns of a row-major matrix: pieces of [`ROWS`] rows in parallel, combined in order.
pub(crate) fn column_sums<T: Float>(values: &[T], width: usize) -> Vec<T> {
    let sums = |rows: &[T]| {
        let mut sums = vec![T::default(); width];
        add_rows(rows, &mut sums);
        sums
    };
    let piece = (width * ROWS).max(1);
    let partial = region(even(values.len().div_ceil(piece)), || {
        values.par_chunks(piece).with_max_len(1).map(sums).collect()
    });
    combined(partial, width)
}

/// Sums equally long vectors elementwise, in their order.
pub(crate) fn combined<T: Float>(parts: Vec<Vec<T>>, width: usize) -> Vec<T> {
    let mut total = vec![T::default(); width];
    for part in parts {
        add(&mut total, &part);
    }
    total
}
