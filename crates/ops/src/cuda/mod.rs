//! Kernels of our own for CUDA, where Candle's operations would need many.
//!
//! The composed operations call these on a CUDA device: what one of them computes, and how it is
//! differentiated, is told there, and the test of devices compares both with f64. A kernel reads its
//! inputs once and keeps nothing but them for the way back; it computes in f32 and rounds once.

mod adam;
mod attention;
mod dropout;
mod epilogue;
mod launch;
mod layer_norm;
mod product;
mod rows;
mod softmax;

pub(crate) use adam::adam_step;
pub(crate) use attention::{Sequences, cross_attention, self_attention};
pub(crate) use dropout::drop;
pub(crate) use epilogue::epilogue;
pub(crate) use layer_norm::layer_norm;
pub(crate) use product::product;
pub(crate) use rows::{looked_up, rows};
