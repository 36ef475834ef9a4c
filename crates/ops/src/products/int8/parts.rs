//! The interface between the kernels and the loops around them.

/// The functions of a kernel, and its layout.
///
/// A function may be called only on a processor with the instructions of its kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    /// Number of columns of a panel of weights; these are summed side by side.
    pub(super) width: usize,
    /// Number of bytes of a stored activation.
    pub(super) activation_bytes: usize,
    /// Number that is added to each stored activation, for instructions that need unsigned values.
    pub(super) shift: i32,
    /// Rounds a row, stores it in memory that has room for it, and returns its scale.
    pub(super) quantise: unsafe fn(row: &[f32], to: *mut u8) -> f32,
    /// Computes the scaled sums of some rows for the columns of one panel.
    pub(super) products: unsafe fn(&Block),
    /// Computes the sums in i32, without scaling.
    #[cfg(test)]
    pub(super) sums: unsafe fn(&Block),
}

/// Operands of a product of some rows and a panel.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// Rows of activations, as the kernel stores them.
    pub(super) left: *const u8,
    /// Number of bytes from one row to the next.
    pub(super) stride: usize,
    pub(super) rows: usize,
    /// One panel: four values of every column for each quad of the summed dimension.
    pub(super) right: *const i8,
    pub(super) quads: usize,
    /// Initial value of each column's sum, which compensates for the shift of activations.
    pub(super) starts: *const i32,
    /// Scale of each row.
    pub(super) row_scales: *const f32,
    /// Scale of each column.
    pub(super) scales: *const f32,
    /// Destination of results: `rows` rows, each with as many values as the panel has columns.
    pub(super) to: *mut f32,
    /// Number of results from one row to the next.
    pub(super) to_stride: usize,
}
