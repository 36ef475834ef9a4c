//! Reference implementations: every operation of this crate, composed of Candle's differentiable
//! operations.
//!
//! Tests compare the fused kernels with these operations. The operations are also used on devices
//! and for types without a kernel. With a [`Tape`](crate::Tape), which records operations for the
//! backward pass, each of them is then recorded as a single operation ([`on_tape`]). A parameter
//! stays in f32. If the input has another type, a differentiable operation converts the parameter
//! to it.
//!
//! **Decision.** In half precision (f16 or bf16), the result of an operation is rounded only once.
//! Matrix products have operands and results of the half type. Everything after a product (bias,
//! activation, softmax, loss, dropout) is computed in f32, forward and backward. The reason is that
//! Candle sums in the type of its input. In bf16, 256 + 1 is 256, so the gradient with respect to a
//! bias would stop growing after some hundred rows. The price is that f32 copies are kept for the
//! backward pass.

mod adam;
pub(crate) mod attention;
mod columns;
mod counted_product;
mod decoding;
mod dropout;
mod embedding;
mod likeliest;
mod linear;
mod loss;
mod muon;
mod on_tape;
mod positions;
pub(crate) mod recent;
mod recurrence;

use candle_core::{DType, Result, Tensor};

pub use adam::adam_step;
#[cfg(feature = "kinds")]
pub use attention::kinds::{
    causal_convolution, hierarchical_attention, hierarchical_attention_step,
    hierarchical_attention_weights, linear_attention, linear_attention_step,
    linear_attention_weights, selective_scan, sequence_sums,
};
pub use attention::{
    attention_log_weights, attention_weights, cross_attention, pad, self_attention, unpad,
};
pub(crate) use columns::sequences;
pub use columns::{columns, gated, windows};
pub use counted_product::CountedProduct;
pub use decoding::decoding_attention;
pub use dropout::drop;
pub use embedding::embedding;
pub use likeliest::{Likeliest, first_largest, likeliest};
pub use linear::{activation, linear, low_rank, norm, norm_columns};
pub(crate) use loss::cross_entropy_on_tape;
pub use loss::{smoothed_cross_entropy, with_bias_column};
pub use muon::muon_step;
pub use on_tape::on_tape;
pub use positions::{relative_bias, rotary};
pub use recurrence::recurrence;

/// Returns the type for sums over elements of type `dtype`.
fn wide_type(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Converts `x` to the type for sums over its elements.
fn wide(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(wide_type(x.dtype()))
}
