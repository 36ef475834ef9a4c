//! Scaled dot-product attention over packed sequences (Vaswani et al. 2017, section 3.2).
//!
//! Sequences are packed: row `n` of a tensor is a real token, and lengths say where each sequence ends. There is no
//! padding to mask; a query sees the keys of its own sequence alone, and under a causal mask those up to its own
//! position. Each (sequence, head) is a small product that fits in cache; sequences run in parallel.

use crate::dropout::Dropout;
use crate::matmul::{Into, Matrix, matmul};
use crate::parallel::{Shared, combined};
use crate::real::{Host, Real, blocked_sum, elements, for_real, is_fused, vectorised};
use candle_core::{CpuStorage, CustomOp1, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor};
use gemm::Parallelism;
use rayon::prelude::*;
use std::sync::{Arc, OnceLock};

/// What an attention layer computes, beside its inputs.
#[derive(Debug, Clone)]
pub struct Attention {
    /// Number of heads; the width is divided between them.
    pub heads: usize,
    /// Tokens of each query sequence; they sum to the rows of the query.
    pub query_lengths: Arc<[usize]>,
    /// Tokens of each key sequence, one for each query sequence.
    pub key_lengths: Arc<[usize]>,
    /// Whether a query sees no key after its own position.
    pub causal: bool,
    /// Position of the first query of each sequence among its keys: 0 but for decoding with a cache.
    pub query_start: usize,
    /// ALiBi's slope for each head: `-slope · |i - j|` is added to a score (Press et al. 2022).
    pub slopes: Option<Arc<[f64]>>,
    /// Dropout on the attention weights.
    pub dropout: Dropout,
}

/// Self-attention on packed projections.
///
/// # Shapes
/// `qkv (N, 3·D)`: query, key and value side by side, each `(H, Dh)`; `bias (H, T, T)` with `T` at least the longest
/// sequence, added to the scores of every sequence → `(N, D)`.
///
/// # Errors
/// When lengths do not sum to `N`, heads do not divide `D`, or the bias is too small.
pub fn self_attention(qkv: &Tensor, bias: Option<&Tensor>, spec: &Attention) -> Result<Tensor> {
    let width = qkv.dim(1)? / 3;
    check(spec, (qkv.dim(0)?, qkv.dim(0)?), width, 3 * width == qkv.dim(1)?)?;
    check_bias(spec, bias)?;
    if !is_fused(qkv) {
        return crate::composed::self_attention(qkv, bias, spec);
    }
    let op = Fused::new(spec, width);
    match bias {
        Some(bias) => qkv.contiguous()?.apply_op2(&bias.contiguous()?, SelfAttention(op)),
        None => qkv.contiguous()?.apply_op1(SelfAttention(op)),
    }
}

/// Attention of one set of sequences to another.
///
/// # Shapes
/// `query (N, D)`, `key_value (M, 2·D)`: key and value side by side; `bias (H, Tq, Tk)` as for [`self_attention`] → `(N, D)`.
///
/// # Errors
/// As [`self_attention`].
pub fn cross_attention(query: &Tensor, key_value: &Tensor, bias: Option<&Tensor>, spec: &Attention) -> Result<Tensor> {
    let width = query.dim(1)?;
    check(spec, (query.dim(0)?, key_value.dim(0)?), width, 2 * width == key_value.dim(1)?)?;
    check_bias(spec, bias)?;
    if !is_fused(query) {
        return crate::composed::cross_attention(query, key_value, bias, spec);
    }
    let (query, key_value, op) = (query.contiguous()?, key_value.contiguous()?, CrossAttention(Fused::new(spec, width)));
    match bias {
        Some(bias) => query.apply_op3(&key_value, &bias.contiguous()?, op),
        None => query.apply_op2(&key_value, op),
    }
}

fn check(spec: &Attention, (queries, keys): (usize, usize), width: usize, packed: bool) -> Result<()> {
    let total = |lengths: &[usize]| lengths.iter().sum::<usize>();
    if !packed || spec.heads == 0 || !width.is_multiple_of(spec.heads) {
        candle_core::bail!("attention: {} heads do not divide width {width}, or the projections do not fit together", spec.heads);
    }
    if total(&spec.query_lengths) != queries || total(&spec.key_lengths) != keys || spec.query_lengths.len() != spec.key_lengths.len() {
        candle_core::bail!(
            "attention: {queries} queries and {keys} keys, but lengths sum to {} and {}",
            total(&spec.query_lengths),
            total(&spec.key_lengths)
        );
    }
    Ok(())
}

fn check_bias(spec: &Attention, bias: Option<&Tensor>) -> Result<()> {
    let longest = |lengths: &[usize]| lengths.iter().copied().max().unwrap_or(0);
    let (queries, keys) = (longest(&spec.query_lengths), longest(&spec.key_lengths));
    if let Some(bias) = bias {
        let shape = bias.dims3()?;
        if shape.0 != spec.heads || shape.1 < queries || shape.2 < keys {
            candle_core::bail!("attention: bias {:?} for {} heads, {queries} queries and {keys} keys", bias.shape(), spec.heads);
        }
    }
    Ok(())
}

/// The element of the dropout mask for (query row, head, key position).
///
/// Stated once, because the composed path must drop the same weights.
pub(crate) fn mask_index(query_row: usize, heads: usize, head: usize, longest_key: usize, key: usize) -> usize {
    (query_row * heads + head) * longest_key + key
}

/// Where a sequence lies in the packed rows, and in the saved weights.
#[derive(Clone, Copy)]
struct Span {
    query: usize,
    queries: usize,
    key: usize,
    keys: usize,
    /// Start of this sequence's `(H, queries, keys)` weights.
    weights: usize,
}

struct Fused {
    spec: Attention,
    head_width: usize,
    spans: Vec<Span>,
    longest_key: usize,
    /// Softmax results of the forward pass, before dropout: `(H, queries, keys)` of each sequence in turn.
    weights: OnceLock<CpuStorage>,
}

/// A projection inside a packed matrix: its elements, their row stride, and the column where it starts.
#[derive(Clone, Copy)]
struct Part<'a, T> {
    values: &'a [T],
    stride: usize,
    column: usize,
}

impl<T> Part<'_, T> {
    fn head(&self, row: usize, head: usize, head_width: usize) -> Matrix {
        Matrix::rows(self.stride).at(row * self.stride + self.column + head * head_width)
    }
}

impl Fused {
    fn new(spec: &Attention, width: usize) -> Self {
        let mut next = Span { query: 0, queries: 0, key: 0, keys: 0, weights: 0 };
        let spans: Vec<Span> = spec
            .query_lengths
            .iter()
            .zip(spec.key_lengths.iter())
            .map(|(&queries, &keys)| {
                let span = Span { queries, keys, ..next };
                next.query += queries;
                next.key += keys;
                next.weights += spec.heads * queries * keys;
                span
            })
            .collect();
        let longest_key = spec.key_lengths.iter().copied().max().unwrap_or(0);
        Self { spec: spec.clone(), head_width: width / spec.heads, spans, longest_key, weights: OnceLock::new() }
    }

    fn width(&self) -> usize {
        self.head_width * self.spec.heads
    }

    fn rows(&self) -> usize {
        self.spans.last().map_or(0, |span| span.query + span.queries)
    }

    fn weight_count(&self) -> usize {
        self.spans.last().map_or(0, |span| span.weights + self.spec.heads * span.queries * span.keys)
    }

    /// `softmax(scale · Q Kᵀ + biases) V` of each sequence and head.
    fn forward<T: Real>(&self, q: Part<'_, T>, k: Part<'_, T>, v: Part<'_, T>, bias: Option<(&[T], usize)>) -> (CpuStorage, Shape) {
        let (width, dh) = (self.width(), self.head_width);
        let scale = T::of(1.0 / (dh as f64).sqrt());
        let mut out = vec![T::default(); self.rows() * width];
        let mut weights = vec![T::default(); self.weight_count()];
        let (out_shared, weights_shared) = (Shared::new(&mut out), Shared::new(&mut weights));
        self.spans.par_iter().for_each_init(Vec::new, |dropped, span| {
            let (tq, tk) = (span.queries, span.keys);
            if tq == 0 || tk == 0 {
                return;
            }
            let rows = span.query * width..(span.query + tq) * width;
            // SAFETY: each sequence has its own rows and its own weights, and both vectors outlive the loop.
            let out = unsafe { out_shared.range(rows) };
            // SAFETY: as above.
            let weights = unsafe { weights_shared.range(span.weights..span.weights + self.spec.heads * tq * tk) };
            for (head, weights) in weights.chunks_exact_mut((tq * tk).max(1)).enumerate() {
                let (q_at, k_at) = (q.head(span.query, head, dh), k.head(span.key, head, dh));
                let square = Matrix::rows(tk);
                matmul(
                    (tq, dh, tk),
                    (q.values, q_at),
                    (k.values, k_at.transposed()),
                    (weights, square),
                    Into::Replace,
                    scale,
                    Parallelism::None,
                );
                let slope = self.spec.slopes.as_ref().map_or(0.0, |slopes| slopes[head]);
                let bias = bias.map(|(bias, longest)| {
                    let size = bias.len() / self.spec.heads;
                    (&bias[head * size..(head + 1) * size], longest)
                });
                add_biases(weights, tk, self.spec.query_start, T::of(slope), bias);
                softmax_rows(weights, tk, if self.spec.causal { Some(self.spec.query_start) } else { None });
                let used: &[T] = if self.spec.dropout.is_active() {
                    dropped.clear();
                    dropped.extend_from_slice(weights);
                    self.drop_weights(dropped, span, head);
                    dropped
                } else {
                    weights
                };
                let out_at = Matrix::rows(width).at(head * dh);
                matmul(
                    (tq, tk, dh),
                    (used, square),
                    (v.values, v.head(span.key, head, dh)),
                    (out, out_at),
                    Into::Replace,
                    T::of(1.0),
                    Parallelism::None,
                );
            }
        });
        let _ = self.weights.set(T::to_cpu_storage_owned(weights));
        (T::to_cpu_storage_owned(out), Shape::from((self.rows(), width)))
    }

    fn drop_weights<T: Real>(&self, weights: &mut [T], span: &Span, head: usize) {
        for (query, row) in weights.chunks_exact_mut(span.keys).enumerate() {
            let first = mask_index(span.query + query, self.spec.heads, head, self.longest_key, 0);
            drop_row(row, first, self.spec.dropout);
        }
    }

    /// Gradients of query, key and value, written into matrices of the given strides and columns, and of the bias.
    fn backward<T: Real>(
        &self,
        (q, k, v): (Part<'_, T>, Part<'_, T>, Part<'_, T>),
        grad: &[T],
        (grad_query, query_stride): (&mut [T], usize),
        (grad_key_value, key_stride): (&mut [T], usize),
        bias_shape: Option<(usize, usize, usize)>,
    ) -> Result<Option<Vec<T>>> {
        let Some(saved) = self.weights.get() else { candle_core::bail!("attention: backward before forward") };
        let saved = T::cpu_storage_as_slice(saved)?;
        let (width, dh, heads) = (self.width(), self.head_width, self.spec.heads);
        let (scale, one) = (T::of(1.0 / (dh as f64).sqrt()), T::of(1.0));
        let (gq_shared, gkv_shared) = (Shared::new(grad_query), Shared::new(grad_key_value));
        let group = self.spans.len().div_ceil(16).max(1);
        let partial: Vec<Vec<T>> = self
            .spans
            .par_chunks(group)
            .map(|spans| {
                let mut bias_sum = vec![T::default(); bias_shape.map_or(0, |(heads, queries, keys)| heads * queries * keys)];
                let (mut probs, mut scores) = (Vec::new(), Vec::new());
                for span in spans {
                    let (tq, tk) = (span.queries, span.keys);
                    if tq == 0 || tk == 0 {
                        continue;
                    }
                    let square = Matrix::rows(tk);
                    // SAFETY: sequences have disjoint rows in both matrices, and each is handled by one task.
                    let gq = unsafe { gq_shared.range(span.query * query_stride..(span.query + tq) * query_stride) };
                    // SAFETY: as above.
                    let gkv = unsafe { gkv_shared.range(span.key * key_stride..(span.key + tk) * key_stride) };
                    for head in 0..heads {
                        let weights = &saved[span.weights + head * tq * tk..span.weights + (head + 1) * tq * tk];
                        let grad_at = Matrix::rows(width).at(span.query * width + head * dh);
                        let key_at = Matrix::rows(key_stride).at(head * dh);
                        let value_at = key_at.at(key_at.offset + width);
                        probs.clear();
                        probs.extend_from_slice(weights);
                        if self.spec.dropout.is_active() {
                            self.drop_weights(&mut probs, span, head);
                        }
                        matmul(
                            (tk, tq, dh),
                            (&probs, square.transposed()),
                            (grad, grad_at),
                            (gkv, value_at),
                            Into::Replace,
                            one,
                            Parallelism::None,
                        );
                        scores.clear();
                        scores.resize(tq * tk, T::default());
                        matmul(
                            (tq, dh, tk),
                            (grad, grad_at),
                            (v.values, v.head(span.key, head, dh).transposed()),
                            (&mut scores, square),
                            Into::Replace,
                            one,
                            Parallelism::None,
                        );
                        if self.spec.dropout.is_active() {
                            self.drop_weights(&mut scores, span, head);
                        }
                        softmax_backward(weights, &mut scores, tk);
                        if let Some((_, queries, keys)) = bias_shape {
                            for (i, row) in scores.chunks_exact(tk).enumerate() {
                                let start = (head * queries + i) * keys;
                                for (sum, value) in bias_sum[start..start + tk].iter_mut().zip(row) {
                                    *sum += *value;
                                }
                            }
                        }
                        matmul(
                            (tq, tk, dh),
                            (&scores, square),
                            (k.values, k.head(span.key, head, dh)),
                            (gq, Matrix::rows(query_stride).at(head * dh)),
                            Into::Replace,
                            scale,
                            Parallelism::None,
                        );
                        matmul(
                            (tk, tq, dh),
                            (&scores, square.transposed()),
                            (q.values, q.head(span.query, head, dh)),
                            (gkv, key_at),
                            Into::Replace,
                            scale,
                            Parallelism::None,
                        );
                    }
                }
                bias_sum
            })
            .collect();
        Ok(bias_shape.map(|(heads, queries, keys)| combined(partial, heads * queries * keys)))
    }
}

/// The gradient of a bias in the shape of the bias.
fn bias_tensor<T: Real>(values: Option<Vec<T>>, bias: Option<&Tensor>) -> Result<Option<Tensor>> {
    match (values, bias) {
        (Some(values), Some(bias)) => Ok(Some(Tensor::from_vec(values, bias.shape(), bias.device())?)),
        _ => Ok(None),
    }
}

struct SelfAttention(Fused);

impl SelfAttention {
    fn parts<'a, T>(&self, qkv: &'a [T]) -> (Part<'a, T>, Part<'a, T>, Part<'a, T>) {
        let width = self.0.width();
        let part = |column| Part { values: qkv, stride: 3 * width, column };
        (part(0), part(width), part(2 * width))
    }

    fn backward(&self, qkv: &Tensor, grad: &Tensor, bias: Option<&Tensor>) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        let (rows, columns) = qkv.dims2()?;
        let width = self.0.width();
        let shape = bias.map(Tensor::dims3).transpose()?;
        for_real!(&grad, T => {
            let (qkv_host, grad_host) = (Host::new(qkv), Host::new(&grad));
            let parts = self.parts(qkv_host.elements::<T>()?);
            let mut grad_query = vec![T::default(); rows * width];
            let mut grad_key_value = vec![T::default(); rows * 2 * width];
            let grad_bias = self.0.backward(parts, grad_host.elements::<T>()?, (&mut grad_query, width), (&mut grad_key_value, 2 * width), shape)?;
            let mut out = vec![T::default(); rows * columns];
            out.par_chunks_mut(columns).enumerate().for_each(|(row, out)| {
                out[..width].copy_from_slice(&grad_query[row * width..(row + 1) * width]);
                out[width..].copy_from_slice(&grad_key_value[row * 2 * width..(row + 1) * 2 * width]);
            });
            Ok((Some(Tensor::from_vec(out, (rows, columns), qkv.device())?), bias_tensor(grad_bias, bias)?))
        })
    }
}

impl CustomOp1 for SelfAttention {
    fn name(&self) -> &'static str {
        "self-attention"
    }

    fn cpu_fwd(&self, qkv: &CpuStorage, at: &Layout) -> Result<(CpuStorage, Shape)> {
        for_real!(qkv, T => {
            let (q, k, v) = self.parts(elements::<T>(qkv, at)?);
            Ok(self.0.forward(q, k, v, None))
        })
    }

    fn bwd(&self, qkv: &Tensor, _res: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        Ok(self.backward(qkv, grad, None)?.0)
    }
}

impl CustomOp2 for SelfAttention {
    fn name(&self) -> &'static str {
        "self-attention-bias"
    }

    fn cpu_fwd(&self, qkv: &CpuStorage, at: &Layout, bias: &CpuStorage, bias_at: &Layout) -> Result<(CpuStorage, Shape)> {
        let (_, _, keys) = bias_at.shape().dims3()?;
        for_real!(qkv, T => {
            let (q, k, v) = self.parts(elements::<T>(qkv, at)?);
            Ok(self.0.forward(q, k, v, Some((elements::<T>(bias, bias_at)?, keys))))
        })
    }

    fn bwd(&self, qkv: &Tensor, bias: &Tensor, _res: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        self.backward(qkv, grad, Some(bias))
    }
}

struct CrossAttention(Fused);

impl CrossAttention {
    fn parts<'a, T>(&self, query: &'a [T], key_value: &'a [T]) -> (Part<'a, T>, Part<'a, T>, Part<'a, T>) {
        let width = self.0.width();
        (
            Part { values: query, stride: width, column: 0 },
            Part { values: key_value, stride: 2 * width, column: 0 },
            Part { values: key_value, stride: 2 * width, column: width },
        )
    }
}

impl CrossAttention {
    #[allow(clippy::type_complexity)]
    fn backward(
        &self,
        query: &Tensor,
        key_value: &Tensor,
        bias: Option<&Tensor>,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        let width = self.0.width();
        let shape = bias.map(Tensor::dims3).transpose()?;
        for_real!(&grad, T => {
            let (query_host, key_host, grad_host) = (Host::new(query), Host::new(key_value), Host::new(&grad));
            let parts = self.parts(query_host.elements::<T>()?, key_host.elements::<T>()?);
            let mut grad_query = vec![T::default(); query.elem_count()];
            let mut grad_key_value = vec![T::default(); key_value.elem_count()];
            let grad_bias = self.0.backward(parts, grad_host.elements::<T>()?, (&mut grad_query, width), (&mut grad_key_value, 2 * width), shape)?;
            Ok((
                Some(Tensor::from_vec(grad_query, query.shape(), query.device())?),
                Some(Tensor::from_vec(grad_key_value, key_value.shape(), query.device())?),
                bias_tensor(grad_bias, bias)?,
            ))
        })
    }
}

impl CustomOp2 for CrossAttention {
    fn name(&self) -> &'static str {
        "cross-attention"
    }

    fn cpu_fwd(&self, query: &CpuStorage, at: &Layout, key_value: &CpuStorage, key_at: &Layout) -> Result<(CpuStorage, Shape)> {
        for_real!(query, T => {
            let (q, k, v) = self.parts(elements::<T>(query, at)?, elements::<T>(key_value, key_at)?);
            Ok(self.0.forward(q, k, v, None))
        })
    }

    fn bwd(&self, query: &Tensor, key_value: &Tensor, _res: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (query, key_value, _) = self.backward(query, key_value, None, grad)?;
        Ok((query, key_value))
    }
}

impl CustomOp3 for CrossAttention {
    fn name(&self) -> &'static str {
        "cross-attention-bias"
    }

    fn cpu_fwd(
        &self,
        query: &CpuStorage,
        at: &Layout,
        key_value: &CpuStorage,
        key_at: &Layout,
        bias: &CpuStorage,
        bias_at: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (_, _, keys) = bias_at.shape().dims3()?;
        for_real!(query, T => {
            let (q, k, v) = self.parts(elements::<T>(query, at)?, elements::<T>(key_value, key_at)?);
            Ok(self.0.forward(q, k, v, Some((elements::<T>(bias, bias_at)?, keys))))
        })
    }

    fn bwd(
        &self,
        query: &Tensor,
        key_value: &Tensor,
        bias: &Tensor,
        _res: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        self.backward(query, key_value, Some(bias), grad)
    }
}

vectorised! {
    fn add_biases<T>(scores: &mut [T], keys: usize, query_start: usize, slope: T, bias: Option<(&[T], usize)>) {
        if slope != T::default() {
            for (i, row) in scores.chunks_exact_mut(keys).enumerate() {
                for (j, score) in row.iter_mut().enumerate() {
                    *score -= slope * T::of((query_start + i).abs_diff(j) as f64);
                }
            }
        }
        if let Some((bias, length)) = bias {
            for (i, row) in scores.chunks_exact_mut(keys).enumerate() {
                for (score, bias) in row.iter_mut().zip(&bias[i * length..i * length + keys]) {
                    *score += *bias;
                }
            }
        }
    }
}

vectorised! {
    /// Softmax of each row; under a causal mask row `i` has `start + i + 1` entries and zeros after them.
    fn softmax_rows<T>(scores: &mut [T], keys: usize, causal_start: Option<usize>) {
        for (i, row) in scores.chunks_exact_mut(keys).enumerate() {
            let visible = causal_start.map_or(keys, |start| (start + i + 1).min(keys));
            let (row, hidden) = row.split_at_mut(visible);
            hidden.fill(T::default());
            let mut largest = T::NEGATIVE_INFINITY;
            for &score in row.iter() {
                largest = if score > largest { score } else { largest };
            }
            for score in row.iter_mut() {
                *score = (*score - largest).exp();
            }
            let total = T::of(1.0) / blocked_sum(row.len(), |j| row[j]);
            for score in row.iter_mut() {
                *score *= total;
            }
        }
    }
}

vectorised! {
    /// `grad ← weights ⊙ (grad - Σ grad ⊙ weights)`, row by row.
    fn softmax_backward<T>(weights: &[T], grad: &mut [T], keys: usize) {
        for (weights, grad) in weights.chunks_exact(keys).zip(grad.chunks_exact_mut(keys)) {
            let sum = blocked_sum(keys, |j| weights[j] * grad[j]);
            for (grad, weight) in grad.iter_mut().zip(weights) {
                *grad = *weight * (*grad - sum);
            }
        }
    }
}

vectorised! {
    fn drop_row<T>(row: &mut [T], first: usize, dropout: Dropout) {
        let factor = dropout.kernel::<T>();
        for (j, value) in row.iter_mut().enumerate() {
            *value *= factor(first.wrapping_add(j) as u32);
        }
    }
}
