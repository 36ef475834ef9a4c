//! Interface between the int8 kernels and the code that calls them.

/// Functions of a kernel, and the layout of its operands.
///
/// The functions must be called only on a processor with the instructions of the kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    /// Number of columns in a panel of weights; their sums are computed side by side.
    pub(super) width: usize,
    /// Number of bytes that the kernel uses to store an activation.
    pub(super) activation_bytes: usize,
    /// Number that is added to each activation before it is stored, for instructions that need
    /// unsigned values.
    pub(super) shift: i32,
    /// Rounds a row, stores it at `to`, where there must be room for it, and returns the row's
    /// scale.
    pub(super) quantise: unsafe fn(row: &[f32], to: *mut u8) -> f32,
    /// Computes the scaled sums of some rows, for the columns of one panel.
    pub(super) products: unsafe fn(&Block),
    /// Computes the sums in i32, without scaling.
    #[cfg(test)]
    pub(super) sums: unsafe fn(&Block),
}

/// Operands of a product of some rows and one panel, and its destination.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// Rows of activations, as the kernel stores them.
    pub(super) left: *const u8,
    /// Distance from one row of activations to the next, in bytes.
    pub(super) stride: usize,
    pub(super) rows: usize,
    /// One panel of weights: for each quad (four indices of the summed dimension), four values of
    /// every column.
    pub(super) right: *const i8,
    pub(super) quads: usize,
    /// Initial value of each column's sum, which cancels the shift of the activations.
    pub(super) starts: *const i32,
    /// Scale of each row of activations.
    pub(super) row_scales: *const f32,
    /// Scale of each column of weights.
    pub(super) scales: *const f32,
    /// Destination of results: `rows` rows, each with as many values as the panel has columns.
    pub(super) to: *mut f32,
    /// Distance from one row of results to the next.
    pub(super) to_stride: usize,
}
