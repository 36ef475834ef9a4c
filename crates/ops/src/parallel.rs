//! Work split over threads in pieces of fixed size, so that no result depends on the number of
//! threads.
//!
//! Rayon hands out several pieces at a time, as many as a fourth of all where there are two
//! threads, and whoever is done first waits. `with_max_len(1)` hands them out one by one, where a
//! piece is worth the tenth of a microsecond that it costs.

use crate::real::{Real, vectorised};
use rayon::prelude::*;

/// Elements in a piece of an elementwise pass.
pub(crate) const CHUNK: usize = 16 * 1024;

/// Rows in a piece of a pass over rows that also sums over them.
pub(crate) const ROWS: usize = 64;

/// A vector of `count` elements that `write` fills, and what it returns. Zeros first would be a
/// serial pass over memory.
///
/// # Safety
/// `write` writes every element.
pub(crate) unsafe fn filled<T, R>(count: usize, write: impl FnOnce(Shared<T>) -> R) -> (Vec<T>, R) {
    let mut values = Vec::with_capacity(count);
    let result = write(Shared::spare(&mut values, count));
    // SAFETY: there is room for them, and by the caller's promise they have been written.
    unsafe { values.set_len(count) };
    (values, result)
}

vectorised! {
    /// `total[i] += values[i]`.
    fn add<T>(total: &mut [T], values: &[T]) {
        for (total, value) in total.iter_mut().zip(values) {
            *total += *value;
        }
    }
}

vectorised! {
    /// `out[i] *= factors[i]`.
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

/// Sums of the columns of a row-major matrix: pieces of [`ROWS`] rows in parallel, combined in
/// order.
pub(crate) fn column_sums<T: Real>(values: &[T], width: usize) -> Vec<T> {
    let sums = |rows: &[T]| {
        let mut sums = vec![T::default(); width];
        add_rows(rows, &mut sums);
        sums
    };
    combined(values.par_chunks((width * ROWS).max(1)).with_max_len(1).map(sums).collect(), width)
}

/// The elementwise sum of equally long vectors, in their order.
pub(crate) fn combined<T: Real>(parts: Vec<Vec<T>>, width: usize) -> Vec<T> {
    let mut total = vec![T::default(); width];
    for part in parts {
        add(&mut total, &part);
    }
    total
}

/// Memory that several tasks write to, each to its own elements.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(*mut T, usize);

// SAFETY: every access is `unsafe`, and its callers promise that no two of them overlap.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(slice: &mut [T]) -> Self {
        Self(slice.as_mut_ptr(), slice.len())
    }

    /// Room for `count` elements behind those of `vector`, not initialised: to be written, and not
    /// to be read before.
    pub(crate) fn spare(vector: &mut Vec<T>, count: usize) -> Self {
        let spare = vector.spare_capacity_mut();
        assert!(count <= spare.len());
        Self(spare.as_mut_ptr().cast(), count)
    }

    /// Writes `values` from `start` on, whether or not anything is there.
    ///
    /// # Safety
    /// As [`Shared::range`], for the elements that are written.
    pub(crate) unsafe fn write(&self, start: usize, values: &[T])
    where
        T: Copy,
    {
        assert!(start <= self.1 && values.len() <= self.1 - start);
        // SAFETY: in bounds by the assertion; no overlap by the caller's promise.
        unsafe { self.0.add(start).copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }

    /// Elements.
    pub(crate) fn len(&self) -> usize {
        self.1
    }

    /// The first element of `range`, for reads and writes by address.
    ///
    /// # Safety
    /// As [`Shared::range`], for the elements that are written.
    pub(crate) unsafe fn pointer(&self, range: std::ops::Range<usize>) -> *mut T {
        assert!(range.start <= range.end && range.end <= self.1);
        // SAFETY: in bounds by the assertion.
        unsafe { self.0.add(range.start) }
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// No two live results may overlap, the memory that `self` was made from must outlive them, and
    /// it must be initialised there.
    #[allow(
        clippy::mut_from_ref,
        reason = "threads write disjoint parts through one shared reference"
    )]
    pub(crate) unsafe fn range(&self, range: std::ops::Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.1);
        // SAFETY: in bounds by the assertion; disjointness is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
    }
}
