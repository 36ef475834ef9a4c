//! Operations of neural networks on tensors, each with its backward pass.

mod activation;
pub(crate) mod attention;
mod columns;
mod conversion;
mod dropout;
mod embedding;
mod gated;
mod linear;
mod low_rank;
mod norm;
mod norm_columns;
pub mod normalizer;
mod recurrence;
mod rotary;
mod windows;

pub use activation::activation;
pub use attention::{
    Cache, computed_pairs, cross_attention, decoding_attention, keeps_scores, kept_by_attention,
    relative_bias, self_attention,
};
pub use columns::columns;
pub use conversion::converted;
pub use embedding::embedding;
pub use gated::gated;
pub use linear::{linear, packed_linear};
pub use low_rank::low_rank;
pub use norm::norm;
pub use norm_columns::norm_columns;
pub use recurrence::recurrence;
pub use rotary::rotary;
pub use windows::windows;
