//! The layers of a network: each operation with its backward pass.

mod attention;
mod dropout;
mod embedding;
mod layer_norm;
mod linear;
pub mod normalizer;
mod rotary;

pub use attention::{cross_attention, decoding_attention, relative_bias, self_attention};
pub use embedding::embedding;
pub use layer_norm::layer_norm;
pub use linear::{linear, packed_linear};
pub use rotary::rotary;
