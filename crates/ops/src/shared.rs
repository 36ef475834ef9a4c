//! Memory to which several threads write, each to its own part.

use crate::claims::{claim, disclaim};

/// How results are written to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// Replaces the values in the memory, which can be uninitialised.
    Replace,
    /// Adds to the values in the memory.
    Add,
}

/// Makes a vector of `count` elements that `write` fills, and returns it with the result of
/// `write`. The memory is not filled with zeros first, which would be a serial pass over it.
///
/// # Safety
/// `write` writes every element.
pub(crate) unsafe fn filled<T, R>(count: usize, write: impl FnOnce(Shared<T>) -> R) -> (Vec<T>, R) {
    let mut values = Vec::with_capacity(count);
    let result = write(Shared::spare(&mut values, count));
    // SAFETY: there is capacity for the elements, and they have been written, as the caller
    // promises.
    unsafe { values.set_len(count) };
    (values, result)
}

/// Memory to which several tasks write, each to its own elements.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(*mut T, usize);

// SAFETY: every access is `unsafe`, and its callers promise that no two of them overlap.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(slice: &mut [T]) -> Self {
        disclaim(slice.as_ptr(), slice.len());
        Self(slice.as_mut_ptr(), slice.len())
    }

    /// Returns the spare capacity of `vector` for `count` elements. This memory is not
    /// initialised: it must be written before it is read.
    pub(crate) fn spare(vector: &mut Vec<T>, count: usize) -> Self {
        let spare = vector.spare_capacity_mut();
        assert!(count <= spare.len());
        disclaim(spare.as_ptr(), count);
        Self(spare.as_mut_ptr().cast(), count)
    }

    /// Writes `values` to the elements from index `start` on, which can be uninitialised.
    ///
    /// # Safety
    /// As for [`Shared::range`], for the elements that are written.
    pub(crate) unsafe fn write(&self, start: usize, values: &[T])
    where
        T: Copy,
    {
        assert!(start <= self.1 && values.len() <= self.1 - start);
        claim(self.address(start), values.len());
        // SAFETY: in bounds by the assertion; without overlap, as the caller promises.
        unsafe { self.0.add(start).copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        self.1
    }

    /// Returns the address at which the element `index` is or would be, for prefetching.
    pub(crate) fn address(&self, index: usize) -> *const T {
        self.0.wrapping_add(index)
    }

    /// Returns the address of the first element of `range`, for reads and writes.
    ///
    /// # Safety
    /// As for [`Shared::range`], for the elements that are written.
    pub(crate) unsafe fn pointer(&self, range: std::ops::Range<usize>) -> *mut T {
        assert!(range.start <= range.end && range.end <= self.1);
        // SAFETY: in bounds by the assertion.
        unsafe { self.0.add(range.start) }
    }

    /// Returns the elements of `range`.
    ///
    /// # Safety
    /// Slices that this function has returned and that are in use at the same time do not overlap.
    /// The memory behind `self` outlives them, and the elements are initialised.
    #[allow(
        clippy::mut_from_ref,
        reason = "threads write disjoint parts through one shared reference"
    )]
    pub(crate) unsafe fn range(&self, range: std::ops::Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.1);
        claim(self.address(range.start), range.len());
        // SAFETY: in bounds by the assertion; disjoint and initialised, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
    }
}
