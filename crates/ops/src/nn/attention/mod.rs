//! Scaled dot-product attention over packed sequences (Vaswani et al. 2017, section 3.2).
//!
//! Sequences are packed: row `n` of a tensor is a real token, and lengths say where each sequence
//! ends. There is no padding to mask; a query sees the keys of its own sequence alone, and under a
//! causal mask those up to its own position. Each (sequence, head) is a small product that fits in
//! cache; sequences run in parallel.

mod decoding;
mod relative_bias;
mod scores;

pub use decoding::{Seen, decoding_attention};
pub use relative_bias::relative_bias;

use crate::float::{Float, for_float};
use crate::host::Host;
use crate::nn::dropout::{Dropout, mask_rows};
use crate::parallel::{combined, multiply};
use crate::products::{Matrix, Products, Threads, product, raw_product};
use crate::shared::{Shared, Write, filled};
use crate::tape::{Tape, is_fused};
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use scores::{scale_and_bias, softmax_backward, softmax_rows};
use std::sync::Arc;

/// What an attention layer computes, beside its inputs.
#[derive(Debug, Clone)]
pub struct AttentionSpec {
    /// Number of heads; the width is divided between them.
    pub heads: usize,
    /// Tokens of each query sequence; they sum to the rows of the query.
    pub query_lengths: Arc<[usize]>,
    /// Tokens of each key sequence, one for each query sequence.
    pub key_lengths: Arc<[usize]>,
    /// Whether a query sees no key after its own position.
    pub causal: bool,
    /// Position of the first query of each sequence among its keys: 0 but for decoding with a
    /// cache.
    pub query_start: usize,
    /// ALiBi's slope for each head: `-slope · |i - j|` is added to a score (Press et al. 2022).
    pub slopes: Option<Arc<[f64]>>,
    /// Dropout on the attention weights.
    pub dropout: Dropout,
    /// How the operands of the products are rounded, forward and backward. Those of short
    /// sequences are not: rounding and packing would take longer than the product.
    pub products: Products,
}

/// Self-attention on packed projections.
///
/// # Shapes
/// `qkv (N, 3·D)`: query, key and value side by side, each `(H, Dh)`; `bias (H, T, T)` with `T` at
/// least the longest sequence, added to the scores of every sequence → `(N, D)`.
///
/// # Errors
/// When lengths do not sum to `N`, heads do not divide `D`, or the bias is too small.
pub fn self_attention(
    tape: Option<&Tape>,
    qkv: &Tensor,
    bias: Option<&Tensor>,
    spec: &AttentionSpec,
) -> Result<Tensor> {
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
    for_float!(qkv, T => {
        let host = Host::new(qkv)?;
        let values = host.elements::<T>()?;
        let (out, weights) = crate::profile::time("attention", || fused.forward([values; 3], at, bias))?;
        let out = Tensor::from_vec(out, (fused.rows(), width), qkv.device())?;
        if let Some(tape) = tape {
            let (qkv, bias) = (qkv.clone(), bias.cloned());
            tape.record::<T>("attention", &inputs, &out, move |adjoint, adjoints| {
                let host = Host::new(&qkv)?;
                let values = host.elements()?;
                let back = |to: Shared<T>, write| fused.backward([values; 3], at, &weights, &adjoint, ([to; 3], write), bias.as_ref());
                let mut grad_bias = Ok(None);
                // Where its own gradient is not wanted that of the bias is, and is computed beside it.
                if adjoints.is_first(&qkv) || !adjoints.wants(&qkv) {
                    // SAFETY: query, key and value are all there is of a row, and `backward` writes the rows of every sequence.
                    let (gradient, of_bias) = unsafe { filled(values.len(), |to| back(to, Write::Replace)) };
                    grad_bias = of_bias;
                    adjoints.give(&qkv, gradient)?;
                } else {
                    adjoints.add_with(&qkv, |out: &mut [T], write| {
                        grad_bias = back(Shared::new(out), write);
                        Ok(())
                    })?;
                }
                give_bias(adjoints, bias.as_ref(), grad_bias?)
            })?;
        }
        Ok(out)
    })
}

/// Attention of one set of sequences to another.
///
/// # Shapes
/// `query (N, D)`, `key_value (M, 2·D)`: key and value side by side; `bias (H, Tq, Tk)` as for
/// [`self_attention`] → `(N, D)`.
///
/// # Errors
/// As [`self_attention`].
pub fn cross_attention(
    tape: Option<&Tape>,
    query: &Tensor,
    key_value: &Tensor,
    bias: Option<&Tensor>,
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let width = query.dim(1)?;
    check(spec, (query.dim(0)?, key_value.dim(0)?), width, 2 * width == key_value.dim(1)?)?;
    check_bias(spec, bias)?;
    let inputs: Vec<&Tensor> = [query, key_value].into_iter().chain(bias).collect();
    if !is_fused(tape, &inputs) {
        return crate::composed::cross_attention(query, key_value, bias, spec);
    }
    let fused = Fused::new(spec, width);
    let at = [
        Columns { stride: width, column: 0 },
        Columns { stride: 2 * width, column: 0 },
        Columns { stride: 2 * width, column: width },
    ];
    for_float!(query, T => {
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
                let values = [query_values, key_values, key_values];
                let back = |to_query, to_keys| {
                    let to = ([to_query, to_keys, to_keys], Write::Replace);
                    fused.backward(values, at, &weights, &adjoint, to, bias.as_ref())
                };
                // SAFETY: a row of the one is a query, a row of the other key and value, and `backward` writes the rows of every sequence.
                let (grad_query, (grad_key_value, grad_bias)) =
                    unsafe { filled(query_values.len(), |to_query| filled(key_values.len(), |to_keys| back(to_query, to_keys))) };
                adjoints.give(&query, grad_query)?;
                adjoints.give(&key_value, grad_key_value)?;
                give_bias(adjoints, bias.as_ref(), grad_bias?)
            })?;
        }
        Ok(out)
    })
}

fn give_bias<T: Float>(
    adjoints: &mut crate::tape::Adjoints<'_>,
    bias: Option<&Tensor>,
    gradient: Option<Vec<T>>,
) -> Result<()> {
    match (bias, gradient) {
        (Some(bias), Some(gradient)) => adjoints.give(bias, gradient),
        _ => Ok(()),
    }
}

fn check(
    spec: &AttentionSpec,
    (queries, keys): (usize, usize),
    width: usize,
    packed: bool,
) -> Result<()> {
    let total = |lengths: &[usize]| lengths.iter().sum::<usize>();
    if !packed || spec.heads == 0 || !width.is_multiple_of(spec.heads) {
        candle_core::bail!(
            "attention: {} heads do not divide width {width}, or the projections do not fit together",
            spec.heads
        );
    }
    if total(&spec.query_lengths) != queries
        || total(&spec.key_lengths) != keys
        || spec.query_lengths.len() != spec.key_lengths.len()
    {
        candle_core::bail!(
            "attention: {queries} queries and {keys} keys, but lengths sum to {} and {}",
            total(&spec.query_lengths),
            total(&spec.key_lengths)
        );
    }
    Ok(())
}

fn check_bias(spec: &AttentionSpec, bias: Option<&Tensor>) -> Result<()> {
    let longest = |lengths: &[usize]| lengths.iter().copied().max().unwrap_or(0);
    let (queries, keys) = (longest(&spec.query_lengths), longest(&spec.key_lengths));
    if let Some(bias) = bias {
        let shape = bias.dims3()?;
        if shape.0 != spec.heads || shape.1 < queries || shape.2 < keys {
            candle_core::bail!(
                "attention: bias {:?} for {} heads, {queries} queries and {keys} keys",
                bias.shape(),
                spec.heads
            );
        }
    }
    Ok(())
}

/// The element of the dropout mask for (query row, head, key position).
///
/// Stated once, because the composed path must drop the same weights.
pub(crate) fn mask_index(
    query_row: usize,
    heads: usize,
    head: usize,
    longest_key: usize,
    key: usize,
) -> usize {
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

/// Attention on the host: [`AttentionSpec`] with where each sequence lies.
struct Fused {
    spec: AttentionSpec,
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

    /// Writes zeros to `count` rows of the projection, from `row` on: the caller's alone.
    fn clear<T: Float>(&self, to: Shared<T>, row: usize, count: usize, width: usize) {
        let zeros = vec![T::default(); width];
        for row in row..row + count {
            // SAFETY: the caller's promise.
            unsafe { to.write(row * self.stride + self.column, &zeros) };
        }
    }
}

/// Pairs of a query and a key from which rounding to bf16 pays: measured on AMX, with heads of 32
/// and of 64.
const LONG: usize = 48 * 48;

/// Query, key and value.
const QUERY: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;

impl Fused {
    fn new(spec: &AttentionSpec, width: usize) -> Self {
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
        self.spans
            .last()
            .map_or(0, |span| span.weights + self.spec.heads * span.queries * span.keys)
    }

    fn scale<T: Float>(&self) -> T {
        T::of(1.0 / (self.head_width as f64).sqrt())
    }

    /// `softmax(scale · Q Kᵀ + biases) V` of each sequence and head, and the softmax's results
    /// before dropout: `(H, queries, keys)` of each sequence in turn.
    fn forward<T: Float>(
        &self,
        values: [&[T]; 3],
        at: [Columns; 3],
        bias: Option<&Tensor>,
    ) -> Result<(Vec<T>, Vec<T>)> {
        let bias_host = bias.map(Host::new).transpose()?;
        let bias = match (&bias_host, bias) {
            (Some(host), Some(bias)) => Some((host.elements::<T>()?, bias.dim(2)?)),
            _ => None,
        };
        let (width, dh) = (self.width(), self.head_width);
        let one_sequence = |dropped: &mut Vec<T>,
                            span: &Span,
                            to_out: Shared<T>,
                            to_weights: Shared<T>| {
            let (tq, tk) = (span.queries, span.keys);
            let out_at = Columns { stride: width, column: 0 };
            if tq == 0 || tk == 0 {
                return out_at.clear(to_out, span.query, tq, width);
            }
            let (square, how) = (Matrix::rows(tk), self.how(span));
            for head in 0..self.spec.heads {
                let first = span.weights + head * tq * tk;
                let query = (values[QUERY], at[QUERY].head(span.query, head, dh));
                let key = (values[KEY], at[KEY].head(span.key, head, dh).transposed());
                // SAFETY: each sequence has its own weights, and the product writes those of this
                // head.
                let weights = unsafe {
                    raw_product(
                        (tq, dh, tk),
                        query,
                        key,
                        (to_weights, square.at(first)),
                        Write::Replace,
                        how,
                        None,
                    );
                    to_weights.range(first..first + tq * tk)
                };
                let slope = self.spec.slopes.as_ref().map_or(0.0, |slopes| slopes[head]);
                let bias = bias.map(|(bias, longest)| {
                    let size = bias.len() / self.spec.heads;
                    (&bias[head * size..(head + 1) * size], longest)
                });
                scale_and_bias(
                    weights,
                    tk,
                    self.scale(),
                    self.spec.query_start,
                    T::of(slope),
                    bias,
                );
                softmax_rows(
                    weights,
                    tk,
                    if self.spec.causal { Some(self.spec.query_start) } else { None },
                );
                let used: &[T] = if self.spec.dropout.is_active() {
                    let used = self.mask(dropped, span, head);
                    multiply(used, weights);
                    used
                } else {
                    weights
                };
                let value = (values[VALUE], at[VALUE].head(span.key, head, dh));
                let to = (to_out, out_at.head(span.query, head, dh));
                // SAFETY: each sequence has its own rows.
                unsafe {
                    raw_product((tq, tk, dh), (used, square), value, to, Write::Replace, how, None)
                };
            }
        };
        // SAFETY: the sequences have all rows and all weights between them.
        let (out, (weights, ())) = unsafe {
            filled(self.rows() * width, |out| {
                filled(self.weight_count(), |weights| {
                    self.spans
                        .par_iter()
                        .with_max_len(4)
                        .for_each_init(Vec::new, |dropped, span| {
                            one_sequence(dropped, span, out, weights)
                        });
                })
            })
        };
        Ok((out, weights))
    }

    /// How the products of a sequence are computed.
    fn how(&self, span: &Span) -> (Products, Threads) {
        let products =
            if span.queries * span.keys < LONG { Products::F32 } else { self.spec.products };
        (products, Threads::One)
    }

    /// The factors of dropout on the weights of one head.
    fn mask<'a, T: Float>(&self, scratch: &'a mut Vec<T>, span: &Span, head: usize) -> &'a mut [T] {
        let mask = room(scratch, span.queries * span.keys);
        let number = |query| mask_index(query, self.spec.heads, head, self.longest_key, 0);
        mask_rows(mask, span.keys, number(span.query), number(1) - number(0), self.spec.dropout);
        mask
    }

    /// Adjoints of query, key and value, written to matrices laid out as they are, and that of the
    /// bias. The rows of every sequence are written, in the columns of the projections; where
    /// they are replaced they need not be initialised.
    fn backward<T: Float>(
        &self,
        values: [&[T]; 3],
        at: [Columns; 3],
        saved: &[T],
        grad: &[T],
        (to, write): ([Shared<T>; 3], Write),
        bias: Option<&Tensor>,
    ) -> Result<Option<Vec<T>>> {
        let (width, dh, heads) = (self.width(), self.head_width, self.spec.heads);
        let bias_shape = bias.map(Tensor::dims3).transpose()?;
        // A group has a sum of its own for the bias.
        let group = self.spans.len().div_ceil(if bias.is_some() { 16 } else { 64 }).max(1);
        let partial: Vec<Vec<T>> = self
            .spans
            .par_chunks(group)
            .with_max_len(1)
            .map(|spans| {
                let mut bias_sum =
                    vec![
                        T::default();
                        bias_shape.map_or(0, |(heads, queries, keys)| heads * queries * keys)
                    ];
                let (mut mask, mut probs, mut scores) = (Vec::new(), Vec::new(), Vec::new());
                for span in spans {
                    let (tq, tk) = (span.queries, span.keys);
                    if tq == 0 || tk == 0 {
                        if write == Write::Replace {
                            at[QUERY].clear(to[QUERY], span.query, tq, width);
                            at[KEY].clear(to[KEY], span.key, tk, width);
                            at[VALUE].clear(to[VALUE], span.key, tk, width);
                        }
                        continue;
                    }
                    let (square, how) = (Matrix::rows(tk), self.how(span));
                    for head in 0..heads {
                        let head_at = |part: usize| {
                            at[part].head(
                                if part == QUERY { span.query } else { span.key },
                                head,
                                dh,
                            )
                        };
                        let of = |part: usize| (values[part], head_at(part));
                        let to = |part: usize| (to[part], head_at(part));
                        let weights = &saved
                            [span.weights + head * tq * tk..span.weights + (head + 1) * tq * tk];
                        let grad_at = Matrix::rows(width).at(span.query * width + head * dh);
                        let mask = self
                            .spec
                            .dropout
                            .is_active()
                            .then(|| &*self.mask(&mut mask, span, head));
                        let used: &[T] = match mask {
                            Some(mask) => {
                                let used = room(&mut probs, tq * tk);
                                used.copy_from_slice(mask);
                                multiply(used, weights);
                                used
                            }
                            None => weights,
                        };
                        // SAFETY: here and below: sequences have disjoint rows, and each is handled
                        // by one task.
                        unsafe {
                            raw_product(
                                (tk, tq, dh),
                                (used, square.transposed()),
                                (grad, grad_at),
                                to(VALUE),
                                write,
                                how,
                                None,
                            )
                        };
                        let scores = room(&mut scores, tq * tk);
                        let (value, value_at) = of(VALUE);
                        product(
                            (tq, dh, tk),
                            (grad, grad_at),
                            (value, value_at.transposed()),
                            (scores, square),
                            Write::Replace,
                            how,
                        );
                        if let Some(mask) = mask {
                            multiply(scores, mask);
                        }
                        // The adjoint of the biased scores; that of the products is `scale` times
                        // it.
                        if let Some((_, queries, keys)) = bias_shape {
                            softmax_backward(weights, scores, tk, T::of(1.0));
                            for (i, row) in scores.chunks_exact(tk).enumerate() {
                                let start = (head * queries + i) * keys;
                                crate::parallel::add(&mut bias_sum[start..start + tk], row);
                            }
                            let scale = self.scale::<T>();
                            scores.iter_mut().for_each(|score| *score *= scale);
                        } else {
                            softmax_backward(weights, scores, tk, self.scale());
                        }
                        // SAFETY: as above.
                        unsafe {
                            raw_product(
                                (tq, tk, dh),
                                (scores, square),
                                of(KEY),
                                to(QUERY),
                                write,
                                how,
                                None,
                            );
                            raw_product(
                                (tk, tq, dh),
                                (scores, square.transposed()),
                                of(QUERY),
                                to(KEY),
                                write,
                                how,
                                None,
                            );
                        }
                    }
                }
                bias_sum
            })
            .collect();
        Ok(bias_shape.map(|(heads, queries, keys)| combined(partial, heads * queries * keys)))
    }
}

/// The first `count` elements of a scratch vector that never shrinks.
fn room<T: Float>(scratch: &mut Vec<T>, count: usize) -> &mut [T] {
    if scratch.len() < count {
        scratch.resize(count, T::default());
    }
    &mut scratch[..count]
}
