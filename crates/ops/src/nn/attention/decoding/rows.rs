//! Access to the cached rows of keys and values that a query reads: rows of tensors, and rows in
//! bf16 or int8.

use super::{LANES, LINE};
use crate::float::Float;
use crate::products::fetch;
use crate::sums::{blocked_product, blocked_sum};
use half::bf16;

/// Row with the keys and values of one token.
pub(crate) trait Row<T: Float>: Copy {
    /// Prefetches the cache lines of the row.
    fn fetch(self);

    /// Computes the dot product of `query` and the key that begins at the column `first`.
    fn product(self, first: usize, query: &[T]) -> T;

    /// Returns `weight` times the scale of the block of columns that contains `first`; the scale is
    /// 1 if rows have no scales. [`Row::lanes`] and [`Row::number`] return values without this
    /// scale.
    fn weighted(self, weight: T, first: usize) -> T;

    /// Returns the values of [`LANES`] columns from `first` on, not multiplied by their scale.
    fn lanes(self, first: usize) -> [T; LANES];

    /// Returns the value of a column, not multiplied by its scale.
    fn number(self, column: usize) -> T;
}

/// Rows that are stored together: the rows of one tensor, or rows added to a cache in one call.
pub(super) trait Rows<T: Float>: Copy + Sync {
    type Row: Row<T>;

    /// Returns the row with this index; `width` is the number of columns.
    fn row(self, index: usize, width: usize) -> Self::Row;
}

/// Elements of a tensor.
impl<'a, T: Float> Rows<T> for &'a [T] {
    type Row = &'a [T];

    #[inline(always)]
    fn row(self, index: usize, width: usize) -> Self::Row {
        &self[width * index..width * (index + 1)]
    }
}

impl<T: Float> Row<T> for &[T] {
    #[inline(always)]
    fn fetch(self) {
        fetch_all(self);
    }

    #[inline(always)]
    fn product(self, first: usize, query: &[T]) -> T {
        blocked_sum([query, &self[first..first + query.len()]], |[query, key]| query * key)
    }

    #[inline(always)]
    fn weighted(self, weight: T, _first: usize) -> T {
        weight
    }

    #[inline(always)]
    fn lanes(self, first: usize) -> [T; LANES] {
        let mut lanes = [T::default(); LANES];
        lanes.copy_from_slice(&self[first..first + LANES]);
        lanes
    }

    #[inline(always)]
    fn number(self, column: usize) -> T {
        self[column]
    }
}

/// Rows in bf16.
#[derive(Clone, Copy)]
pub(super) struct Bf16Rows<'a>(pub(super) &'a [bf16]);

impl<T: Float> Rows<T> for Bf16Rows<'_> {
    type Row = Self;

    #[inline(always)]
    fn row(self, index: usize, width: usize) -> Self {
        Self(&self.0[width * index..width * (index + 1)])
    }
}

impl<T: Float> Row<T> for Bf16Rows<'_> {
    #[inline(always)]
    fn fetch(self) {
        fetch_all(self.0);
    }

    #[inline(always)]
    fn product(self, first: usize, query: &[T]) -> T {
        blocked_product(query, &self.0[first..first + query.len()], T::widened)
    }

    #[inline(always)]
    fn weighted(self, weight: T, _first: usize) -> T {
        weight
    }

    #[inline(always)]
    fn lanes(self, first: usize) -> [T; LANES] {
        let codes = &self.0[first..first + LANES];
        std::array::from_fn(|lane| T::widened(codes[lane]))
    }

    #[inline(always)]
    fn number(self, column: usize) -> T {
        T::widened(self.0[column])
    }
}

/// Rows in int8, with a scale for each block of columns.
#[derive(Clone, Copy)]
pub(super) struct Int8Rows<'a> {
    pub(super) codes: &'a [i8],
    pub(super) scales: &'a [f32],
    /// Number of columns in a block.
    pub(super) block: usize,
}

impl<T: Float> Rows<T> for Int8Rows<'_> {
    type Row = Self;

    #[inline(always)]
    fn row(self, index: usize, width: usize) -> Self {
        let blocks = width / self.block;
        Self {
            codes: &self.codes[width * index..width * (index + 1)],
            scales: &self.scales[blocks * index..blocks * (index + 1)],
            ..self
        }
    }
}

impl Int8Rows<'_> {
    #[inline(always)]
    fn scale<T: Float>(self, column: usize) -> T {
        T::cast(f64::from(self.scales[column / self.block]))
    }
}

#[inline(always)]
fn code<T: Float>(code: i8) -> T {
    T::cast(f64::from(code))
}

impl<T: Float> Row<T> for Int8Rows<'_> {
    #[inline(always)]
    fn fetch(self) {
        fetch_all(self.codes);
    }

    #[inline(always)]
    fn product(self, first: usize, query: &[T]) -> T {
        let codes = &self.codes[first..first + query.len()];
        blocked_product(query, codes, code::<T>) * self.scale(first)
    }

    #[inline(always)]
    fn weighted(self, weight: T, first: usize) -> T {
        weight * self.scale(first)
    }

    #[inline(always)]
    fn lanes(self, first: usize) -> [T; LANES] {
        let codes = &self.codes[first..first + LANES];
        std::array::from_fn(|lane| code(codes[lane]))
    }

    #[inline(always)]
    fn number(self, column: usize) -> T {
        code(self.codes[column])
    }
}

/// Prefetches the cache lines of a row.
#[inline(always)]
fn fetch_all<E>(row: &[E]) {
    for line in (0..row.len()).step_by(LINE / size_of::<E>()) {
        fetch(row[line..].as_ptr().cast());
    }
}
