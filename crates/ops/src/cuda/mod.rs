//! Taper's own CUDA kernels, for operations that would take many of Candle's kernels.
//!
//! Each operation computes its result, and records its backward pass on the [`Tape`]. Tests on a
//! GPU compare both with the same operation composed of Candle's, in f64. A kernel reads its inputs
//! once, computes in f32 and rounds once. For the backward pass, nothing is kept but the inputs of
//! kernels and of matrix products. Gradients with respect to parameters are added in place to the
//! buffer that holds the gradients of all parameters one after another.

mod adam;
pub(crate) mod addition;
mod attention;
mod dropout;
mod embedding;
mod launch;
mod layer_norm;
mod linear;
mod loss;
mod row_sums;
mod rows;
mod softmax;
mod times;

use crate::device::{KernelSizes, KernelTime};
use crate::kernels::{BlockOfLoss, Kernels};
use crate::spec::{
    AdamStep, AttentionSpec, CrossEntropySpec, Dropout, EmbeddingSpec, LinearSpec, NormSpec,
};
use crate::tape::{ParameterStore, Tape};
use candle_core::{Device, Result, Tensor};
use launch::computes;
use std::ops::Range;

/// The kernels of CUDA devices.
pub(crate) struct Cuda;

impl Kernels for Cuda {
    fn linear(
        &self,
        tape: Option<&Tape>,
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        residual: Option<&Tensor>,
        spec: &LinearSpec,
    ) -> Option<Result<Tensor>> {
        linear::linear(tape, x, weight, bias, residual, spec)
    }

    fn norm(
        &self,
        tape: Option<&Tape>,
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        spec: &NormSpec,
    ) -> Option<Result<Tensor>> {
        let is_here = spec.is_centred && computes(x.dtype());
        is_here.then(|| layer_norm::layer_norm(tape, x, weight, bias, spec.epsilon))
    }

    fn embedding(
        &self,
        tape: Option<&Tape>,
        table: &Tensor,
        positions: Option<&Tensor>,
        spec: &EmbeddingSpec,
    ) -> Option<Result<Tensor>> {
        computes(table.dtype()).then(|| embedding::embedding(tape, table, positions, spec))
    }

    fn self_attention(
        &self,
        tape: Option<&Tape>,
        qkv: &Tensor,
        spec: &AttentionSpec,
    ) -> Option<Result<Tensor>> {
        computes(qkv.dtype()).then(|| attention::self_attention(tape, qkv, spec))
    }

    fn cross_attention(
        &self,
        tape: Option<&Tape>,
        query: &Tensor,
        key_value: &Tensor,
        spec: &AttentionSpec,
    ) -> Option<Result<Tensor>> {
        // There is no kernel for queries that are only a part of wider rows.
        let is_here =
            computes(query.dtype()) && query.dims().last() == Some(&spec.shape.query_width());
        is_here.then(|| attention::cross_attention(tape, query, key_value, spec))
    }

    fn drop(&self, x: &Tensor, dropout: Dropout) -> Option<Result<Tensor>> {
        computes(x.dtype()).then(|| x.contiguous()?.apply_op1(dropout))
    }

    fn rows(&self, x: &Tensor, index: &Tensor, back: &Tensor) -> Option<Result<Tensor>> {
        computes(x.dtype()).then(|| rows::rows(x, index, back))
    }

    fn logits_at_once(&self, spec: &CrossEntropySpec) -> Option<usize> {
        (!spec.is_paired()).then_some(loss::LOGITS)
    }

    fn block_of_loss(
        &self,
        logits: &Tensor,
        targets: &Tensor,
        spec: &CrossEntropySpec,
        differentiate: bool,
    ) -> Option<Result<BlockOfLoss>> {
        let is_here = computes(logits.dtype()) && !spec.is_paired();
        is_here.then(|| loss::cross_entropy(logits, targets, spec, differentiate))
    }

    fn weight_gradient(
        &self,
        gradient: &Tensor,
        x: &Tensor,
        sum: Option<&Tensor>,
    ) -> Option<Result<Tensor>> {
        computes(x.dtype()).then(|| linear::weight_gradient(gradient, x, sum))
    }

    fn adam_step(
        &self,
        store: &ParameterStore,
        range: &Range<usize>,
        gradient: &Tensor,
        moments: &mut [Tensor; 2],
        step: &AdamStep,
    ) -> Option<Result<()>> {
        Some(adam::adam_step(store, range, gradient, moments, step))
    }

    fn times(
        &self,
        device: &Device,
        sizes: &KernelSizes,
        repeats: usize,
    ) -> Option<Result<Vec<KernelTime>>> {
        Some(times::kernel_times(device, sizes, repeats))
    }
}
