//! Products of int8 weights and of activations that are rounded to int8 on the way.
//!
//! A row of a matrix is rounded to whole numbers from -127 to 127 times a scale of its own: the
//! weights of each output when they are packed, the activations of each token when they are
//! multiplied (Dettmers et al. 2022, "LLM.int8()", section 2.1, vector-wise quantization). A
//! product's sums are exact in i32, so that every kernel gives the same ones, and a row's result
//! depends on that row alone; then `sum · scale of the weights · scale of the row` in f32.
//!
//! [`Int8Kernel`]s differ in how they multiply, and in how they want activations stored.
//! Instructions that saturate (`vpmaddubsw`) are not used: two products of 8 bits do not fit 16.

mod kernel;
mod loops;
mod packed;
mod product;
mod quantised;
mod sums;

pub use kernel::Int8Kernel;
pub(crate) use packed::PackedInt8;
pub(crate) use product::product;
pub use quantised::Int8Matrix;

/// Values of the summed dimension that stand side by side for each column.
const QUAD: usize = 4;
/// The most values that are summed: so many products of 127 by 127 fit an i32.
const MOST_DEPTH: usize = 1 << 17;

#[cfg(test)]
mod tests;
