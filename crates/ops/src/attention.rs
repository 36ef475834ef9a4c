//! Scaled dot-product attention over packed sequences (Vaswani et al. 2017, section 3.2).
//!
//! Sequences are packed: row `n` of a tensor is a real token, and lengths say where each sequence ends. There is no
//! padding to mask; a query sees the keys of its own sequence alone, and under a causal mask those up to its own
//! position. Each (sequence, head) is a small product that fits in cache; sequences run in parallel.

use crate::dropout::Dropout;
use crate::parallel::{Shared, combined};
use crate::products::{Into, Matrix, Products, Threads, product};
use crate::real::{Host, Real, blocked_max, blocked_sum, for_real, is_fused, vectorised};
use crate::tape::Tape;
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::sync::Arc;

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
    /// How the operands of the products are rounded, forward and backward.
    pub products: Products,
}

/// Self-attention on packed projections.
///
/// # Shapes
/// `qkv (N, 3·D)`: query, key and value side by side, each `(H, Dh)`; `bias (H, T, T)` with `T` at least the longest
/// sequence, added to the scores of every sequence → `(N, D)`.
///
/// # Errors
/// When lengths do not sum to `N`, heads do not divide `D`, or the bias is too small.
pub fn self_attention(tape: Option<&Tape>, qkv: &Tensor, bias: Option<&Tensor>, spec: &Attention) -> Result<Tensor> {
    let width = qkv.dim(1)? / 3;
    check(spec, (qkv.dim(0)?, qkv.dim(0)?), width, 3 * width == qkv.dim(1)?)?;
    check_bias(spec, bias)?;
    let inputs: Vec<&Tensor> = [qkv].into_iter().chain(bias).collect();
    if !is_fused(tape, &inputs) {
        return crate::composed::self_attention(qkv, bias, spec);
    }
    let fused = Fused::new(spec, width);
    let columns = |column| Columns { stride: 3 * width, column };
    let at = [columns(0), columns(width), columns(2 * width)];
    for_real!(qkv, T => {
        let host = Host::new(qkv)?;
        let values = host.elements::<T>()?;
        let (out, weights) = crate::profile::time("attention", || fused.forward([values; 3], at, bias))?;
        let out = Tensor::from_vec(out, (fused.rows(), width), qkv.device())?;
        if let Some(tape) = tape {
            let (qkv, bias) = (qkv.clone(), bias.cloned());
            tape.record::<T>("attention", &inputs, &out, move |adjoint, adjoints| {
                let host = Host::new(&qkv)?;
                let mut grad_bias = None;
                adjoints.add_with(&qkv, |out: &mut [T], into| {
                    let shared = Shared::new(out);
                    grad_bias = fused.backward([host.elements()?; 3], at, &weights, &adjoint, ([shared; 3], into), bias.as_ref())?;
                    Ok(())
                })?;
                give_bias(adjoints, bias.as_ref(), grad_bias)
            })?;
        }
        Ok(out)
    })
}

/// Attention of one set of sequences to another.
///
/// # Shapes
/// `query (N, D)`, `key_value (M, 2·D)`: key and value side by side; `bias (H, Tq, Tk)` as for [`self_attention`] → `(N, D)`.
///
/// # Errors
/// As [`self_attention`].
pub fn cross_attention(tape: Option<&Tape>, query: &Tensor, key_value: &Tensor, bias: Option<&Tensor>, spec: &Attention) -> Result<Tensor> {
    let width = query.dim(1)?;
    check(spec, (query.dim(0)?, key_value.dim(0)?), width, 2 * width == key_value.dim(1)?)?;
    check_bias(spec, bias)?;
    let inputs: Vec<&Tensor> = [query, key_value].into_iter().chain(bias).collect();
    if !is_fused(tape, &inputs) {
        return crate::composed::cross_attention(query, key_value, bias, spec);
    }
    let fused = Fused::new(spec, width);
    let at = [Columns { stride: width, column: 0 }, Columns { stride: 2 * width, column: 0 }, Columns { stride: 2 * width, column: width }];
    for_real!(query, T => {
        let (query_host, key_host) = (Host::new(query)?, Host::new(key_value)?);
        let (query_values, key_values) = (query_host.elements::<T>()?, key_host.elements::<T>()?);
        let forward = || fused.forward([query_values, key_values, key_values], at, bias);
        let (out, weights) = crate::profile::time("attention", forward)?;
        let out = Tensor::from_vec(out, (fused.rows(), width), query.device())?;
        if let Some(tape) = tape {
            let (query, key_value, bias) = (query.clone(), key_value.clone(), bias.cloned());
            tape.record::<T>("attention", &inputs, &out, move |adjoint, adjoints| {
                let (query_host, key_host) = (Host::new(&query)?, Host::new(&key_value)?);
                let (query_values, key_values) = (query_host.elements::<T>()?, key_host.elements::<T>()?);
                let (mut grad_query, mut grad_key_value) = (vec![T::default(); query_values.len()], vec![T::default(); key_values.len()]);
                let (to_query, to_keys) = (Shared::new(&mut grad_query), Shared::new(&mut grad_key_value));
                let to = ([to_query, to_keys, to_keys], Into::Replace);
                let grad_bias = fused.backward([query_values, key_values, key_values], at, &weights, &adjoint, to, bias.as_ref())?;
                adjoints.give(&query, grad_query)?;
                adjoints.give(&key_value, grad_key_value)?;
                give_bias(adjoints, bias.as_ref(), grad_bias)
            })?;
        }
        Ok(out)
    })
}

fn give_bias<T: Real>(adjoints: &mut crate::tape::Adjoints<'_>, bias: Option<&Tensor>, gradient: Option<Vec<T>>) -> Result<()> {
    match (bias, gradient) {
        (Some(bias), Some(gradient)) => adjoints.give(bias, gradient),
        _ => Ok(()),
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

/// Attention on the host: [`Attention`] with where each sequence lies.
struct Fused {
    spec: Attention,
    head_width: usize,
    spans: Vec<Span>,
    longest_key: usize,
}

/// Where a projection lies inside a packed matrix: the row stride, and the column where it starts.
#[derive(Clone, Copy)]
struct Columns {
    stride: usize,
    column: usize,
}

impl Columns {
    /// One head of the rows from `row` on.
    fn head(&self, row: usize, head: usize, head_width: usize) -> Matrix {
        Matrix::rows(self.stride).at(row * self.stride + self.column + head * head_width)
    }
}

/// Query, key and value.
const QUERY: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;

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
        Self { spec: spec.clone(), head_width: width / spec.heads, spans, longest_key }
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

    fn scale<T: Real>(&self) -> T {
        T::of(1.0 / (self.head_width as f64).sqrt())
    }

    /// `softmax(scale · Q Kᵀ + biases) V` of each sequence and head, and the softmax's results before dropout: `(H, queries, keys)`
    /// of each sequence in turn.
    fn forward<T: Real>(&self, values: [&[T]; 3], at: [Columns; 3], bias: Option<&Tensor>) -> Result<(Vec<T>, Vec<T>)> {
        let bias_host = bias.map(Host::new).transpose()?;
        let bias = match (&bias_host, bias) {
            (Some(host), Some(bias)) => Some((host.elements::<T>()?, bias.dim(2)?)),
            _ => None,
        };
        let (width, dh) = (self.width(), self.head_width);
        let how = (self.spec.products, Threads::One);
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
            for (head, weights) in weights.chunks_exact_mut(tq * tk).enumerate() {
                let square = Matrix::rows(tk);
                let query = (values[QUERY], at[QUERY].head(span.query, head, dh));
                let key = (values[KEY], at[KEY].head(span.key, head, dh).transposed());
                product((tq, dh, tk), query, key, (weights, square), Into::Replace, how);
                let slope = self.spec.slopes.as_ref().map_or(0.0, |slopes| slopes[head]);
                let bias = bias.map(|(bias, longest)| {
                    let size = bias.len() / self.spec.heads;
                    (&bias[head * size..(head + 1) * size], longest)
                });
                scale_and_bias(weights, tk, self.scale(), self.spec.query_start, T::of(slope), bias);
                softmax_rows(weights, tk, if self.spec.causal { Some(self.spec.query_start) } else { None });
                let used: &[T] = if self.spec.dropout.is_active() {
                    dropped.clear();
                    dropped.extend_from_slice(weights);
                    self.drop_weights(dropped, span, head);
                    dropped
                } else {
                    weights
                };
                let value = (values[VALUE], at[VALUE].head(span.key, head, dh));
                product((tq, tk, dh), (used, square), value, (out, Matrix::rows(width).at(head * dh)), Into::Replace, how);
            }
        });
        Ok((out, weights))
    }

    fn drop_weights<T: Real>(&self, weights: &mut [T], span: &Span, head: usize) {
        for (query, row) in weights.chunks_exact_mut(span.keys).enumerate() {
            let first = mask_index(span.query + query, self.spec.heads, head, self.longest_key, 0);
            drop_row(row, first, self.spec.dropout);
        }
    }

    /// Adjoints of query, key and value, written to matrices laid out as they are, and that of the bias.
    fn backward<T: Real>(
        &self,
        values: [&[T]; 3],
        at: [Columns; 3],
        saved: &[T],
        grad: &[T],
        (to, into): ([Shared<T>; 3], Into),
        bias: Option<&Tensor>,
    ) -> Result<Option<Vec<T>>> {
        let (width, dh, heads) = (self.width(), self.head_width, self.spec.heads);
        let bias_shape = bias.map(Tensor::dims3).transpose()?;
        let how = (self.spec.products, Threads::One);
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
                    // The rows of this sequence in the adjoint of a projection, and where one of its heads begins there.
                    let rows = |part: usize| {
                        let (first, count) = if part == QUERY { (span.query, tq) } else { (span.key, tk) };
                        // SAFETY: sequences have disjoint rows, each is handled by one task, and a task holds one such slice at a time.
                        unsafe { to[part].range(first * at[part].stride..(first + count) * at[part].stride) }
                    };
                    for head in 0..heads {
                        let head_at = |part: usize| at[part].head(0, head, dh);
                        let of = |part: usize| (values[part], at[part].head(if part == QUERY { span.query } else { span.key }, head, dh));
                        let weights = &saved[span.weights + head * tq * tk..span.weights + (head + 1) * tq * tk];
                        let grad_at = Matrix::rows(width).at(span.query * width + head * dh);
                        probs.clear();
                        probs.extend_from_slice(weights);
                        if self.spec.dropout.is_active() {
                            self.drop_weights(&mut probs, span, head);
                        }
                        product((tk, tq, dh), (&probs, square.transposed()), (grad, grad_at), (rows(VALUE), head_at(VALUE)), into, how);
                        scores.clear();
                        scores.resize(tq * tk, T::default());
                        let (value, value_at) = of(VALUE);
                        product((tq, dh, tk), (grad, grad_at), (value, value_at.transposed()), (&mut scores, square), Into::Replace, how);
                        if self.spec.dropout.is_active() {
                            self.drop_weights(&mut scores, span, head);
                        }
                        // The adjoint of the biased scores; that of the products is `scale` times it.
                        if let Some((_, queries, keys)) = bias_shape {
                            softmax_backward(weights, &mut scores, tk, T::of(1.0));
                            for (i, row) in scores.chunks_exact(tk).enumerate() {
                                let start = (head * queries + i) * keys;
                                crate::parallel::add(&mut bias_sum[start..start + tk], row);
                            }
                            let scale = self.scale::<T>();
                            scores.iter_mut().for_each(|score| *score *= scale);
                        } else {
                            softmax_backward(weights, &mut scores, tk, self.scale());
                        }
                        product((tq, tk, dh), (&scores, square), of(KEY), (rows(QUERY), head_at(QUERY)), into, how);
                        product((tk, tq, dh), (&scores, square.transposed()), of(QUERY), (rows(KEY), head_at(KEY)), into, how);
                    }
                }
                bias_sum
            })
            .collect();
        Ok(bias_shape.map(|(heads, queries, keys)| combined(partial, heads * queries * keys)))
    }
}

vectorised! {
    /// Scales the scores of one head, and adds ALiBi's distances and a bias.
    fn scale_and_bias<T>(scores: &mut [T], keys: usize, scale: T, query_start: usize, slope: T, bias: Option<(&[T], usize)>) {
        for score in scores.iter_mut() {
            *score *= scale;
        }
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
            let largest = blocked_max(row);
            for score in row.iter_mut() {
                *score = (*score - largest).exp();
            }
            let total = T::of(1.0) / blocked_sum([&*row], |[x]| x);
            for score in row.iter_mut() {
                *score *= total;
            }
        }
    }
}

vectorised! {
    /// `grad ← scale · weights ⊙ (grad - Σ grad ⊙ weights)`, row by row.
    fn softmax_backward<T>(weights: &[T], grad: &mut [T], keys: usize, scale: T) {
        for (weights, grad) in weights.chunks_exact(keys).zip(grad.chunks_exact_mut(keys)) {
            let sum = blocked_sum([weights, &*grad], |[weight, grad]| weight * grad);
            for (grad, weight) in grad.iter_mut().zip(weights) {
                *grad = scale * *weight * (*grad - sum);
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
