//! Products of int8 weights and activations. Activations are rounded to int8 just before they are
//! multiplied.
//!
//! Each row of a matrix is represented by integers from -127 to 127, and by a scale that multiplies
//! them. The weights of each output are rounded when they are packed. The activations of each token
//! are rounded when they are multiplied (Dettmers et al. 2022, "LLM.int8()", section 2.1,
//! vector-wise quantization). Sums of products are exact in i32, so they are the same with every
//! kernel. The result of a row of activations depends on this row alone. A result is
//! `sum · scale of the weights · scale of the row`, in f32.
//!
//! The kernels, [`Int8Kernel`], differ in their instructions and in how they store activations.
//! Saturating instructions (`vpmaddubsw`) are not used, because the sum of two products of 8-bit
//! numbers does not fit into 16 bits.

mod kernel;
mod loops;
mod packed;
mod parts;
mod product;
mod quantised;
mod sums;

pub use kernel::Int8Kernel;
pub(crate) use packed::PackedInt8;
pub(crate) use product::product;
pub use quantised::Int8Matrix;

/// Number of consecutive values of the summed dimension that lie side by side for each column.
const QUAD: usize = 4;
/// Largest number of products 127 · 127 whose sum an i32 can hold, rounded down to a power of two.
const MOST_DEPTH: usize = 1 << 17;

#[cfg(test)]
mod tests;
