//! Every operation again, composed of Candle's differentiable primitives.
//!
//! These are the oracles of the fused kernels, and what runs on devices and types without a kernel
//! (CUDA, Metal, half precision on those). Parameters of another type than the input are converted
//! to it, differentiably, so that master weights stay in f32.

mod adam;
mod attention;
mod dropout;
mod embedding;
mod linear;
mod loss;
mod on_tape;
mod positions;

pub use adam::adam_step;
pub use attention::{
    attention_weights, cross_attention, decoding_attention, pad, self_attention, unpad,
};
pub use embedding::embedding;
pub use linear::{layer_norm, linear};
pub use loss::smoothed_cross_entropy;
pub use on_tape::on_tape;
pub use positions::{relative_bias, rotary};
