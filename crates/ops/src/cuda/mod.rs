//! Kernels of our own for CUDA, for operations that would need many of Candle's kernels.
//!
//! The composed operations call these on a CUDA device. They define the result and the gradient of
//! each, and the device tests compare both with f64. A kernel reads its inputs once and keeps
//! nothing else for the backward pass; it computes in f32 and rounds once.

mod adam;
mod attention;
mod dropout;
mod epilogue;
mod flat_gradients;
mod launch;
mod layer_norm;
mod linear;
mod loss;
mod product;
mod row_sums;
mod rows;
mod softmax;
mod times;
mod weight_gradient;

pub(crate) use adam::adam_step;
pub(crate) use attention::{Sequences, cross_attention, self_attention};
pub(crate) use dropout::drop;
pub(crate) use flat_gradients::{add_at, adding_to};
pub(crate) use layer_norm::layer_norm;
pub(crate) use linear::linear;
pub(crate) use loss::{LOGITS, cross_entropy, with_gradients};
pub(crate) use product::product;
pub(crate) use rows::{looked_up, rows};
pub(crate) use times::kernel_times;
pub(crate) use weight_gradient::weight_gradient;
