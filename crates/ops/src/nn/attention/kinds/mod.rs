//! Operations for kinds of attention other than the softmax over keys, and for the state-space
//! layer that replaces attention.

mod heads;
mod hierarchical;
mod linear;
mod sequence_sums;
mod state_space;

pub use hierarchical::{
    hierarchical_attention, hierarchical_attention_arithmetic, kept_by_hierarchical_attention,
};
pub use linear::{
    kept_by_linear_attention, linear_attention, linear_attention_after, linear_attention_arithmetic,
};
pub use sequence_sums::sequence_sums;
pub use state_space::{
    causal_convolution, causal_convolution_after, selective_scan, selective_scan_after,
};
