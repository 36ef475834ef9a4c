//! The layers of a network: each operation with its backward pass.

pub(crate) mod attention;
pub(crate) mod dropout;
pub(crate) mod embedding;
mod layer_norm;
pub(crate) mod linear;
pub mod normalizer;
pub(crate) mod rotary;

pub use attention::{
    AttentionSpec, Seen, cross_attention, decoding_attention, relative_bias, self_attention,
};
pub use dropout::Dropout;
pub use embedding::{EmbeddingSpec, embedding};
pub use layer_norm::layer_norm;
pub use linear::{Activation, LinearSpec, linear, packed_linear};
pub use rotary::rotary;
