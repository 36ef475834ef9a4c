//! Kinds of attention other than a softmax over keys, composed of Candle's operations.

mod hierarchical;
mod linear;
mod random_features;
mod sequence_sums;
mod state_space;

pub use hierarchical::{
    hierarchical_attention, hierarchical_attention_step, hierarchical_attention_weights,
};
pub use linear::{linear_attention, linear_attention_step, linear_attention_weights};
pub use sequence_sums::sequence_sums;
pub use state_space::{causal_convolution, selective_scan};
