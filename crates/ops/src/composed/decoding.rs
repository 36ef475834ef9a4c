//! Attention of single queries, composed of Candle's operations, for decoding on a GPU.

use super::attention::{HIDDEN, by_rotation};
use super::recent::Recent;
use super::{CountedProduct, wide};
use crate::device::check_count;
use crate::spec::{AttentionShape, DualChunk, Sight, Sparse, VisibleKeys};
use candle_core::{D, DType, Device, Result, Tensor};
use std::sync::Arc;

/// Attends from each query to its own keys; see [`crate::decoding_attention()`].
///
/// The keys of each query are gathered once. The number of columns is the largest number of keys
/// that a query has. Keys are aligned at the end: the last column holds the last key of every
/// query. So all queries have the same distances from their last key. Columns before a query's
/// first key are hidden.
///
/// # Shapes
/// The shapes of [`crate::decoding_attention()`].
///
/// # Errors
/// If the shapes disagree.
pub fn decoding_attention(
    query: &Tensor,
    visible: VisibleKeys<'_>,
    shape: AttentionShape,
) -> Result<Tensor> {
    let (queries, device) = (query.dim(0)?, query.device());
    let AttentionShape { heads, key_value_heads, head_width: head, scale } = shape;
    let lengths: Vec<usize> = (0..queries).map(|query| visible.keys(query)).collect();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    if longest == 0 {
        return query.narrow(1, 0, shape.query_width())?.zeros_like();
    }
    check_count(
        device,
        "keys and values of attention",
        2 * shape.key_value_width() * queries * longest,
    )?;
    let (all, index) = places(visible, &lengths, longest)?;
    // The rows of a compact cache have been expanded to f32, which can differ from the type of the
    // query.
    let all = all.to_dtype(query.dtype())?;
    static INDICES: Recent<Vec<u32>> = Recent::new();
    let index = INDICES.get(index.clone(), device, || {
        let count = index.len();
        Tensor::from_vec(index, count, device)
    })?;
    let gathered =
        all.index_select(&index, 0)?.reshape((queries, longest, 2, key_value_heads, head))?;
    // Shapes: R queries with up to T keys, H query heads of width Dh, and K key and value heads,
    // each shared by G query heads.
    let part = |part: usize| gathered.narrow(2, part, 1)?.squeeze(2); // (R, T, K, Dh)
    let keys = part(0)?.permute((0, 2, 3, 1))?.contiguous()?; // (R, K, Dh, T)
    let values = part(1)?.transpose(1, 2)?.contiguous()?; // (R, K, T, Dh)
    let products = |rotation: usize| {
        let query = query.narrow(1, rotation * shape.query_width(), shape.query_width())?;
        let query = query.contiguous()?.reshape((queries, key_value_heads, shape.group(), head))?;
        let scores = wide(&(query * scale)?.times(&keys)?)?; // (R, K, G, T)
        scores.reshape((queries, heads, 1, longest))
    };
    let mut scores = products(0)?;
    if let VisibleKeys::Past { dual_chunk: Some(chunks), .. } = visible {
        let rotations = rotations(chunks, &lengths, longest);
        scores = by_rotation(scores, products, rotations, &[queries, 1, 1, longest])?;
    }
    if let Some(mask) = mask(visible, lengths.clone(), heads, scores.dtype(), device)? {
        scores = scores.broadcast_add(&mask)?;
    }
    let scores = with_biases(scores, visible, longest)?;
    let exponents = scores.broadcast_sub(&scores.detach().max_keepdim(D::Minus1)?)?.exp()?;
    let weights = exponents.broadcast_div(&exponents.sum_keepdim(D::Minus1)?)?;
    let weights = weights.to_dtype(values.dtype())?;
    let weights = weights.reshape((queries, key_value_heads, shape.group(), longest))?;
    let out = weights.times(&values)?; // (R, K, G, Dh)
    let out = out.reshape((queries, shape.query_width()))?;
    if lengths.contains(&0) {
        let sees: Vec<f64> = lengths.iter().map(|&length| f64::from(length > 0)).collect();
        return out.broadcast_mul(&host_tensor(sees, &[queries, 1], out.dtype(), device)?);
    }
    Ok(out)
}

/// Returns, for dual chunk attention, the index of the rotation that applies to each column of each
/// query. (A query is rotated by several positions.) The last column holds the query's last key.
fn rotations(chunks: DualChunk, lengths: &[usize], longest: usize) -> Vec<usize> {
    let of_query = |&length: &usize| {
        (0..longest).map(move |column| {
            let key = (column + length).saturating_sub(longest);
            chunks.rotation(length.saturating_sub(1), key)
        })
    };
    lengths.iter().flat_map(of_query).collect()
}

/// Adds the relative bias and ALiBi's terms to the scores, `(R, H, 1, T)`, if the keys are past
/// tokens. Keys of a source have no such terms.
fn with_biases(mut scores: Tensor, visible: VisibleKeys<'_>, longest: usize) -> Result<Tensor> {
    let VisibleKeys::Past { bias, slopes, .. } = visible else { return Ok(scores) };
    if let Some(bias) = bias {
        let last = bias.narrow(1, 0, 1)?.narrow(2, bias.dim(2)? - longest, longest)?;
        scores = scores.broadcast_add(&last.to_dtype(scores.dtype())?.unsqueeze(0)?)?;
    }
    if let Some(slopes) = slopes {
        let distances = distances(slopes.clone(), longest, scores.dtype(), scores.device())?;
        scores = scores.broadcast_add(&distances)?;
    }
    Ok(scores)
}

/// Returns a tensor with all keys and values. Also returns, for each column of each query, the
/// index of a row of this tensor. A hidden column has the index of the query's last key. Its value
/// is multiplied by the weight 0, which gives 0 if the value is finite.
fn places(
    visible: VisibleKeys<'_>,
    lengths: &[usize],
    longest: usize,
) -> Result<(Tensor, Vec<u32>)> {
    let mut index = Vec::with_capacity(lengths.len() * longest);
    let mut add = |length: usize, rows: &mut dyn Iterator<Item = u32>| {
        let first = index.len() + longest - length;
        index.resize(first, 0);
        index.extend(rows);
        let last = if length > 0 { index[index.len() - 1] } else { 0 };
        index[first + length - longest..first].fill(last);
    };
    let all = match visible {
        VisibleKeys::Source { key_value, rows } => {
            for (&length, range) in lengths.iter().zip(rows) {
                add(length, &mut range.clone().map(|row| row as u32));
            }
            key_value.clone()
        }
        VisibleKeys::Past { kept, text, history, .. } => {
            let all = kept.joined()?;
            for (query, &length) in lengths.iter().enumerate() {
                add(length, &mut all.visible_to(query, text, history));
            }
            all.rows
        }
    };
    Ok((all, index))
}

/// Key under which a mask is cached; the mask's device is also part of the key.
#[derive(PartialEq)]
struct MaskKey {
    lengths: Vec<usize>,
    sparse: Option<Sparse>,
    heads: usize,
    dtype: DType,
}

/// Returns a mask `(R, H or 1, 1, T)` that is [`HIDDEN`] where a query does not see a column and 0
/// elsewhere; `None` if all queries see all columns.
fn mask(
    visible: VisibleKeys<'_>,
    lengths: Vec<usize>,
    heads: usize,
    dtype: DType,
    device: &Device,
) -> Result<Option<Tensor>> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let sparse = match visible {
        VisibleKeys::Source { .. } => None,
        VisibleKeys::Past { sparse, .. } => sparse,
    };
    if sparse.is_none() && lengths.iter().all(|&length| length == longest) {
        return Ok(None);
    }
    // Heads need separate masks only if they differ in their random blocks.
    let heads = if sparse.is_some_and(|rule| rule.random > 0) { heads } else { 1 };
    static MASKS: Recent<MaskKey> = Recent::new();
    let key = MaskKey { lengths: lengths.clone(), sparse, heads, dtype };
    let make = || {
        let mut values = Vec::with_capacity(lengths.len() * heads * longest);
        let mut scratch = Vec::new();
        for &length in &lengths {
            for head in 0..heads {
                values.extend(std::iter::repeat_n(HIDDEN, longest - length));
                let first = values.len();
                values.resize(first + length, 0.0);
                if let Some(rule) = sparse.filter(|_| length > 0) {
                    let sight = Sight::for_few(rule, true, head, length);
                    sight.gaps(length - 1, 0..length, &mut scratch, |keys| {
                        values[first..][keys].fill(HIDDEN);
                    });
                }
            }
        }
        host_tensor(values, &[lengths.len(), heads, 1, longest], dtype, device)
    };
    MASKS.get(key, device, make).map(Some)
}

/// Returns ALiBi's term of the scores, the negative distance to the last column times each head's
/// slope: `(1, H, 1, T)` (Press et al. 2022).
fn distances(slopes: Arc<[f64]>, longest: usize, dtype: DType, device: &Device) -> Result<Tensor> {
    static DISTANCES: Recent<(Arc<[f64]>, usize, DType)> = Recent::new();
    DISTANCES.get((slopes.clone(), longest, dtype), device, || {
        let of_head = |&slope: &f64| (0..longest).map(move |key| slope * (key + 1) as f64);
        let values = slopes.iter().flat_map(|slope| {
            let last = slope * longest as f64;
            of_head(slope).map(move |value| value - last)
        });
        host_tensor(values.collect(), &[1, slopes.len(), 1, longest], dtype, device)
    })
}

fn host_tensor(values: Vec<f64>, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
}
