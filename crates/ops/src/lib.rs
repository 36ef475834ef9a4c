//! Differentiable operations for training Transformers on Candle: fused on the CPU, with backward passes, each beside
//! the composition of Candle primitives that is its oracle and its fallback.
//!
//! **Decision.** Sequences are packed: an activation is `(N, D)` with one row for each real token, and lengths say where
//! sequences end. Every pass then costs what the tokens cost, and nothing that is computed depends on padding. The
//! alternative, padded `(B, T, D)` tensors with masks, spends up to half of the work on padding and makes a result
//! depend on its batch.
//!
//! **Decision.** Candle's autodiff carries the graph, and these operations hang in it as custom ops. A tape of our own
//! would save some allocation, but every device and every composed experiment would have to be written twice.
//!
//! All `unsafe` of the project is here: raw products, threads that write to disjoint parts of a slice, and calls of
//! functions compiled for processor features found at run time.

pub mod attention;
pub mod composed;
pub mod dropout;
pub mod embedding;
pub mod layer_norm;
pub mod linear;
pub mod loss;
mod matmul;
pub mod optimizer;
mod parallel;
pub mod parameters;
mod real;
pub mod residual;
pub mod rng;
pub mod rotary;
pub mod threads;

pub use attention::{Attention, cross_attention, self_attention};
pub use dropout::Dropout;
pub use embedding::{Embedding, embedding};
pub use layer_norm::layer_norm;
pub use linear::{Activation, linear};
pub use loss::{LossSums, smoothed_cross_entropy};
pub use optimizer::{AdamStep, adam_step, ema_step, global_norm};
pub use parameters::{Gradients, Parameter, ParameterStore};
pub use residual::residual;
pub use rotary::rotary;
