//! Softmax attention, composed of Candle's operations, on padded tensors.

#[cfg(feature = "kinds")]
pub(crate) mod kinds;

use super::recent::Recent;
use super::{CountedProduct, wide};
use crate::device::{check_count, kernels_of};
use crate::spec::{AttentionSpec, DualChunk, Sight, Sparse, mask_index};
use candle_core::{D, DType, Device, Result, Tensor};
use std::sync::Arc;

/// Computes self-attention; see [`crate::self_attention()`].
///
/// # Shapes
/// The shapes of [`crate::self_attention()`].
///
/// # Errors
/// If the shapes disagree.
pub fn self_attention(qkv: &Tensor, bias: Option<&Tensor>, spec: &AttentionSpec) -> Result<Tensor> {
    let (width, key_width) = (spec.queries_width(), spec.shape.key_value_width());
    let query = qkv.narrow(1, 0, width)?;
    let key = qkv.narrow(1, width, key_width)?;
    attend(&query, &key, &qkv.narrow(1, width + key_width, key_width)?, bias, spec)
}

/// Computes cross-attention; see [`crate::cross_attention()`].
///
/// # Shapes
/// The shapes of [`crate::cross_attention()`].
///
/// # Errors
/// If the shapes disagree.
pub fn cross_attention(
    query: &Tensor,
    key_value: &Tensor,
    bias: Option<&Tensor>,
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let width = spec.shape.key_value_width();
    attend(query, &key_value.narrow(1, 0, width)?, &key_value.narrow(1, width, width)?, bias, spec)
}

/// Computes the attention weights of packed rows of queries and keys (without padding), in f32 or
/// wider, before dropout. They are zero for keys beyond the end of their sequence. The weights of
/// queries beyond the end of their sequence are meaningless.
///
/// # Shapes
/// `query (N, Q)`; with dual chunk attention, a row has several copies of its query, each rotated
/// by another position. `key (M, K)`; `bias (H, T, T)`, where `T` is at least the length of the
/// longest sequence → `(B, H, Tq, Tk)`, each sequence padded to the longest. Q and K are the widths
/// of all heads of a query and of a key.
///
/// # Errors
/// If the shapes disagree.
pub fn attention_weights(
    query: &Tensor,
    key: &Tensor,
    bias: Option<&Tensor>,
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let exponents = shifted_scores(query, key, bias, spec)?.exp()?;
    exponents.broadcast_div(&exponents.sum_keepdim(D::Minus1)?)
}

/// Computes the logarithms of [`attention_weights`], which are finite even if a weight underflows
/// to 0. For keys beyond the end of their sequence, they are large negative numbers.
///
/// # Shapes
/// The shapes of [`attention_weights`].
///
/// # Errors
/// If the shapes disagree.
pub fn attention_log_weights(
    query: &Tensor,
    key: &Tensor,
    bias: Option<&Tensor>,
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let shifted = shifted_scores(query, key, bias, spec)?;
    let sums = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?;
    shifted.broadcast_sub(&sums)
}

/// Pads packed rows to the longest sequence, and splits them into `count` heads: `(N, W)` →
/// `(B, count, T, Dh)`.
fn heads(x: &Tensor, lengths: &[usize], count: usize) -> Result<Tensor> {
    let padded = pad(x, lengths)?; // (B, T, W)
    let (batch, longest, width) = padded.dims3()?;
    padded.reshape((batch, longest, count, width / count))?.transpose(1, 2)?.contiguous()
}

/// Computes the scores for [`attention_weights`], shifted so that the largest score of each query
/// is 0.
fn shifted_scores(
    query: &Tensor,
    key: &Tensor,
    bias: Option<&Tensor>,
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let shape = spec.shape;
    longest(spec, query.device())?;
    let k = heads(key, &spec.key_lengths, shape.key_value_heads)?;
    let (batch, keys) = (k.dim(0)?, k.dim(2)?);
    let k = k.t()?.contiguous()?; // (B, K, Dh, Tk)
    let products = |rotation: usize| {
        let query = query.narrow(1, rotation * shape.query_width(), shape.query_width())?;
        let q = (heads(&query, &spec.query_lengths, shape.heads)? * shape.scale)?;
        let queries = q.dim(2)?;
        // The queries of a group of heads form one matrix, (B, K, G·Tq, Dh). So one product
        // multiplies them by the keys that they share.
        let group = shape.group() * queries;
        let q = q.reshape((batch, shape.key_value_heads, group, shape.head_width))?;
        wide(&q.times(&k)?)?.reshape((batch, shape.heads, queries, keys))
    };
    let mut scores = products(0)?;
    let queries = scores.dim(2)?;
    if let Some(chunks) = spec.dual_chunk {
        let first = spec.query_start;
        let of_pair = |pair| chunks.rotation(first + pair / keys, pair % keys);
        let pairs = (0..queries * keys).map(of_pair).collect();
        scores = by_rotation(scores, products, pairs, &[1, 1, queries, keys])?;
    }
    scores = scores.broadcast_add(&mask(spec, queries, keys, scores.dtype(), query.device())?)?;
    if let Some(bias) = bias {
        let bias = bias.narrow(1, 0, queries)?.narrow(2, 0, keys)?.to_dtype(scores.dtype())?;
        scores = scores.broadcast_add(&bias.unsqueeze(0)?)?;
    }
    // The maximum is detached: the softmax does not depend on it, so it needs no gradient.
    scores.broadcast_sub(&scores.detach().max_keepdim(D::Minus1)?)
}

/// Selects the score of each pair of a query and a key. In dual chunk attention, each query is
/// rotated by several positions. The chunk of the key decides which of these rotations applies to
/// the pair. `scores` has the scores with rotation 0; `products` computes the scores with another
/// rotation, given its index.
///
/// # Shapes
/// `scores (B, H, Tq, Tk)`; `rotations` has the index of the rotation of each pair, as a tensor of
/// the shape `shape`, which can be broadcast to the shape of `scores` → `(B, H, Tq, Tk)`.
pub(super) fn by_rotation(
    scores: Tensor,
    products: impl Fn(usize) -> Result<Tensor>,
    rotations: Vec<usize>,
    shape: &[usize],
) -> Result<Tensor> {
    let (dtype, device) = (scores.dtype(), scores.device().clone());
    let of_rotation = |rotation: usize, scores: &Tensor| {
        let has = rotations.iter().map(|&of_pair| f64::from(of_pair == rotation)).collect();
        let has = Tensor::from_vec::<_, f64>(has, shape, &Device::Cpu)?.to_dtype(dtype)?;
        scores.broadcast_mul(&has.to_device(&device)?)
    };
    let mut sum = of_rotation(0, &scores)?;
    for rotation in 1..DualChunk::ROTATIONS {
        if rotations.contains(&rotation) {
            sum = (sum + of_rotation(rotation, &products(rotation)?)?)?;
        }
    }
    Ok(sum)
}

/// Returns the numbers of queries and of keys in the longest sequences. Returns an error if there
/// would be more scores than the device can count.
pub(crate) fn longest(spec: &AttentionSpec, device: &Device) -> Result<[usize; 2]> {
    let longest = |lengths: &[usize]| lengths.iter().copied().max().unwrap_or(0);
    let [queries, keys] = [longest(&spec.query_lengths), longest(&spec.key_lengths)];
    let scores = spec.shape.heads * spec.key_lengths.len() * queries * keys;
    check_count(device, "scores of attention", scores)?;
    Ok([queries, keys])
}

fn attend(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    bias: Option<&Tensor>,
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let mut weights = attention_weights(query, key, bias, spec)?;
    if spec.dropout.is_active() {
        weights =
            weights.mul(&weight_mask(spec, weights.dims4()?, weights.dtype(), query.device())?)?;
    }
    let shape = spec.shape;
    let value = heads(value, &spec.key_lengths, shape.key_value_heads)?; // (B, K, Tk, Dh)
    let (batch, _, queries, keys) = weights.dims4()?;
    let grouped = (batch, shape.key_value_heads, shape.group() * queries, keys);
    let weights = weights.to_dtype(value.dtype())?.reshape(grouped)?;
    let out = weights.times(&value)?; // (B, K, G·Tq, Dh)
    let out = out.reshape((batch, shape.heads, queries, shape.head_width))?;
    let out = out.transpose(1, 2)?.contiguous()?; // (B, Tq, H, Dh)
    unpad(&out.reshape((batch * queries, shape.query_width()))?, &spec.query_lengths, queries)
}

/// Pads packed sequences with zeros to the longest sequence.
///
/// # Shapes
/// `(N, D)` → `(B, T, D)`, with T the longest length.
///
/// # Errors
/// If the lengths do not sum to `N`.
pub fn pad(x: &Tensor, lengths: &[usize]) -> Result<Tensor> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let (rows, width) = x.dims2()?;
    let shape = (lengths.len(), longest, width);
    if !x.device().is_cpu() {
        let index = padded(lengths, longest, crate::ABSENT, x.device())?;
        let back = packed(lengths, longest, x.device())?;
        if let Some(out) = kernels_of(x.device()).rows(x, &index, &back) {
            return out?.reshape(shape);
        }
    }
    // Padding reads the row of zeros that follows the last token.
    let zero = Tensor::zeros((1, width), x.dtype(), x.device())?;
    let with_zero = Tensor::cat(&[&x.contiguous()?, &zero], 0)?;
    let index = padded(lengths, longest, rows as u32, x.device())?;
    with_zero.index_select(&index, 0)?.reshape(shape)
}

/// Removes the padding of sequences that were padded to `longest`.
///
/// # Shapes
/// `(B·T, D)` → `(N, D)`.
///
/// # Errors
/// If the number of rows is not `longest` times the number of lengths.
pub fn unpad(x: &Tensor, lengths: &[usize], longest: usize) -> Result<Tensor> {
    let index = packed(lengths, longest, x.device())?;
    if !x.device().is_cpu() {
        let back = padded(lengths, longest, crate::ABSENT, x.device())?;
        if let Some(out) = kernels_of(x.device()).rows(x, &index, &back) {
            return out;
        }
    }
    x.index_select(&index, 0)
}

/// Returns the index of the packed row for each padded row, or `absent` for padding: `(B·T,)`.
fn padded(lengths: &[usize], longest: usize, absent: u32, device: &Device) -> Result<Tensor> {
    static INDICES: Recent<(Vec<usize>, usize, u32)> = Recent::new();
    INDICES.get((lengths.to_vec(), longest, absent), device, || {
        let mut start = 0u32;
        let mut index = Vec::with_capacity(lengths.len() * longest);
        for &length in lengths {
            let row = |t| if t < length { start + t as u32 } else { absent };
            index.extend((0..longest).map(row));
            start += length as u32;
        }
        Tensor::from_vec(index, lengths.len() * longest, device)
    })
}

/// Returns the index of the padded row for each packed row: `(N,)`.
fn packed(lengths: &[usize], longest: usize, device: &Device) -> Result<Tensor> {
    static INDICES: Recent<(Vec<usize>, usize)> = Recent::new();
    INDICES.get((lengths.to_vec(), longest), device, || {
        let rows = lengths.iter().enumerate();
        let index: Vec<u32> = rows
            .flat_map(|(row, &length)| (0..length).map(move |t| (row * longest + t) as u32))
            .collect();
        let count = index.len();
        Tensor::from_vec(index, count, device)
    })
}

/// Number that is added to the scores of keys that a query does not see. In every float type, it is
/// finite, and its `exp` is 0.
pub(super) const HIDDEN: f64 = -3.0e4;

/// Key under which a mask is cached; the mask's device is also part of the key.
#[derive(PartialEq)]
struct MaskKey {
    key_lengths: Arc<[usize]>,
    causal: bool,
    sparse: Option<Sparse>,
    slopes: Option<Arc<[f64]>>,
    shape: (usize, usize, usize),
    query_start: usize,
    dtype: DType,
}

/// Returns the mask to be added to scores, `(B, H or 1, Tq, Tk)`: [`HIDDEN`] for keys that a query
/// does not see, otherwise ALiBi's term. It is cached for all layers of a pass.
pub(crate) fn mask(
    spec: &AttentionSpec,
    queries: usize,
    keys: usize,
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    static MASKS: Recent<MaskKey> = Recent::new();
    let key = MaskKey {
        key_lengths: spec.key_lengths.clone(),
        causal: spec.causal,
        sparse: spec.sparse,
        slopes: spec.slopes.clone(),
        shape: (spec.shape.heads, queries, keys),
        query_start: spec.query_start,
        dtype,
    };
    MASKS.get(key, device, || new_mask(spec, queries, keys, dtype, device))
}

fn new_mask(
    spec: &AttentionSpec,
    queries: usize,
    keys: usize,
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    let is_drawn = spec.sparse.is_some_and(|rule| rule.random > 0);
    let heads = if spec.slopes.is_some() || is_drawn { spec.shape.heads } else { 1 };
    let batch = spec.key_lengths.len();
    let mut values = Vec::with_capacity(batch * heads * queries * keys);
    for &length in spec.key_lengths.iter() {
        for head in 0..heads {
            let slope = spec.slopes.as_ref().map_or(0.0, |slopes| slopes[head]);
            let sight = Sight::new(spec, head, length);
            // Queries of the padding may see any keys, because their results are not used.
            let is_hidden =
                |i, j| i < length && sight.as_ref().is_some_and(|sight| !sight.sees(i, j));
            for i in spec.query_start..spec.query_start + queries {
                values.extend((0..keys).map(|j| {
                    if j >= length || (spec.causal && j > i) || is_hidden(i, j) {
                        HIDDEN
                    } else {
                        -slope * i.abs_diff(j) as f64
                    }
                }));
            }
        }
    }
    Tensor::from_vec(values, (batch, heads, queries, keys), &Device::Cpu)?
        .to_dtype(dtype)?
        .to_device(device)
}

/// Returns the dropout mask of the attention weights. Its elements equal those that the fused
/// kernel uses, whose rows of queries have no padding.
fn weight_mask(
    spec: &AttentionSpec,
    shape: (usize, usize, usize, usize),
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    let (batch, heads, queries, keys) = shape;
    let rows: usize = spec.query_lengths.iter().sum();
    let width = mask_index(1, heads, 0, keys, 0);
    let packed = spec.dropout.mask(rows * width, dtype, device)?.reshape((rows, width))?;
    let padded = pad(&packed, &spec.query_lengths)?.reshape((batch, queries, heads, keys))?;
    padded.transpose(1, 2)?.contiguous() // (B, H, Tq, Tk)
}
