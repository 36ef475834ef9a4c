//! Operations of networks, each with its backward pass.

mod activation;
mod attention;
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
mod state_space;
mod windows;

pub use activation::activation;
pub use attention::{
    Cache, computed_pairs, cross_attention, decoding_attention, hierarchical_attention,
    hierarchical_attention_arithmetic, keeps_scores, kept_by_attention,
    kept_by_hierarchical_attention, kept_by_linear_attention, linear_attention,
    linear_attention_after, linear_attention_arithmetic, relative_bias, self_attention,
    sequence_sums,
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
pub use state_space::{
    causal_convolution, causal_convolution_after, selective_scan, selective_scan_after,
};
pub use windows::windows;
