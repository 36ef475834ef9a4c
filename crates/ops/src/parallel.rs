//! Parallel work in pieces (ranges of elements or rows) of fixed size, so that no result depends on
//! the number of threads.
//!
//! By default, Rayon hands out several pieces at a time (with two threads, up to a fourth of all).
//! As a result, a thread that finishes early may wait long for the rest. `with_max_len(1)` hands
//! pieces out one by one. This costs a tenth of a microsecond for each piece, which is little if
//! pieces are large enough.

use crate::float::{Float, vectorised};
use crate::profile::{even, region};
use rayon::prelude::*;

/// Number of elements in a piece of an elementwise pass.
pub(crate) const CHUNK: usize = 16 * 1024;

/// Number of rows in a piece, for passes that sum over rows.
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
    /// Adds the rows of a matrix to `sums`, which has one element for each column.
    fn add_rows<T>(rows: &[T], sums: &mut [T]) {
        for row in rows.chunks_exact(sums.len()) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += *value;
            }
        }
    }
}

/// Returns the sum of each column of a row-major matrix. Pieces of [`ROWS`] rows are summed in
/// parallel, and their sums are added in order.
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

/// Adds vectors of length `width` elementwise, in their order.
pub(crate) fn combined<T: Float>(parts: Vec<Vec<T>>, width: usize) -> Vec<T> {
    let mut total = vec![T::default(); width];
    for part in parts {
        add(&mut total, &part);
    }
    total
}
