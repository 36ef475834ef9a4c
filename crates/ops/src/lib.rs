//! Differentiable operations for training Transformers on Candle: fused on the CPU, with backward
//! passes, each beside the composition of Candle primitives that is its oracle and its fallback.
//!
//! **Decision.** Sequences are packed: an activation is `(N, D)` with one row for each real token,
//! and lengths say where sequences end. Every pass then costs what the tokens cost, and nothing
//! that is computed depends on padding. The alternative, padded `(B, T, D)` tensors with masks,
//! spends up to half of the work on padding and makes a result depend on its batch.
//!
//! **Decision.** On the host, a tape of our own carries the graph ([`Tape`]); elsewhere Candle's
//! autodiff does, through the composed operations. Hung into Candle's graph as custom ops, the same
//! kernels spent a third of a step on zeros, copies and additions at its edges, and every
//! activation lived until the end. The functions are the same on both ways, so that a model is
//! written once.
//!
//! All `unsafe` of the project is here: raw products, threads that write to disjoint parts of a
//! slice, calls of functions compiled for processor features found at run time, and of those of the
//! system that no library makes safe.

mod attention;
pub mod composed;
mod decoding_attention;
mod dropout;
mod embedding;
pub mod hangup;
mod layer_norm;
mod linear;
mod loss;
pub mod memory;
pub mod normalizer;
pub mod optimizer;
mod packed;
mod parallel;
mod parameters;
pub mod products;
pub mod profile;
mod real;
mod relative_bias;
pub mod rng;
mod rotary;
mod softmax;
mod tape;
pub mod threads;

pub use attention::{Attention, cross_attention, self_attention};
pub use decoding_attention::{Seen, decoding_attention};
pub use dropout::Dropout;
pub use embedding::{Embedding, embedding};
pub use layer_norm::layer_norm;
pub use linear::{Activation, Linear, linear, packed_linear};
pub use loss::{CrossEntropy, LossSums, smoothed_cross_entropy};
pub use optimizer::{AdamStep, adam_step, ema_step, global_norm};
pub use packed::PackedWeights;
pub use parameters::{Gradients, Parameter, ParameterStore};
pub use products::{Kernel, KernelError, Products};
pub use relative_bias::relative_bias;
pub use rotary::rotary;
pub use tape::{Adjoints, Tape};
