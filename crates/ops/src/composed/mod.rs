//! Every operation again, composed of Candle's differentiable primitives.
//!
//! These are the oracles of the fused kernels, and what runs on devices and types without a kernel
//! (CUDA, Metal, half precision on those). Parameters of another type than the input are converted
//! to it, differentiably, so that master weights stay in f32.

mod adam;

pub use adam::adam_step;

use crate::loss::{CrossEntropySpec, LossSums};
use crate::nn::attention::Seen;
use crate::nn::attention::{AttentionSpec, mask_index};
use crate::nn::dropout::Dropout;
use crate::nn::embedding::EmbeddingSpec;
use crate::nn::linear::{Activation, LinearSpec};
use crate::nn::rotary::angles;
use crate::products::Products;
use candle_core::{D, DType, Device, IndexOp, Result, Tensor};

fn drop(x: &Tensor, dropout: Dropout) -> Result<Tensor> {
    if !dropout.is_active() {
        return Ok(x.clone());
    }
    x.mul(&dropout.mask(x.elem_count(), x.dtype(), x.device())?.reshape(x.shape())?)
}

/// See [`crate::layer_norm()`]. Statistics are computed in f32 at least.
///
/// # Errors
/// When the widths differ.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, epsilon: f64) -> Result<Tensor> {
    let wide = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let values = x.to_dtype(wide)?;
    let centred = values.broadcast_sub(&values.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let normal = centred.broadcast_div(&(variance + epsilon)?.sqrt()?)?;
    normal
        .broadcast_mul(&weight.to_dtype(wide)?)?
        .broadcast_add(&bias.to_dtype(wide)?)?
        .to_dtype(x.dtype())
}

/// See [`crate::linear()`].
///
/// # Errors
/// When the widths differ.
pub fn linear(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    residual: Option<&Tensor>,
    spec: &LinearSpec,
) -> Result<Tensor> {
    let mut out = x.matmul(&weight.to_dtype(x.dtype())?.t()?)?;
    if let Some(bias) = bias {
        out = out.broadcast_add(&bias.to_dtype(x.dtype())?)?;
    }
    let out = match spec.activation {
        Activation::Identity => out,
        // Candle's relu has derivative 1 at 0; the product with a constant step has 0, as PyTorch
        // has.
        Activation::Relu => out.mul(&out.detach().gt(0.0)?.to_dtype(out.dtype())?)?,
        // Candle's `gelu_erf` rounds a constant of its derivative to six digits; its `erf` does
        // not.
        Activation::Gelu => {
            ((&out * 0.5)? * ((&out * std::f64::consts::FRAC_1_SQRT_2)?.erf()? + 1.0)?)?
        }
        Activation::Swish => out.silu()?,
    };
    let out = drop(&out, spec.dropout)?;
    match residual {
        Some(residual) => residual + out,
        None => Ok(out),
    }
}

/// See [`crate::self_attention()`].
///
/// # Errors
/// When the shapes disagree.
pub fn self_attention(qkv: &Tensor, bias: Option<&Tensor>, spec: &AttentionSpec) -> Result<Tensor> {
    let width = qkv.dim(1)? / 3;
    let part = |i: usize| qkv.narrow(1, i * width, width);
    attend(&part(0)?, &part(1)?, &part(2)?, bias, spec)
}

/// See [`crate::cross_attention()`].
///
/// # Errors
/// When the shapes disagree.
pub fn cross_attention(
    query: &Tensor,
    key_value: &Tensor,
    bias: Option<&Tensor>,
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let width = query.dim(1)?;
    attend(query, &key_value.narrow(1, 0, width)?, &key_value.narrow(1, width, width)?, bias, spec)
}

/// The attention weights `(B, H, Tq, Tk)` of packed projections, zero for keys beyond their
/// sequence, before dropout; the rows of queries beyond theirs mean nothing.
///
/// # Errors
/// When the shapes disagree.
pub fn attention_weights(
    query: &Tensor,
    key: &Tensor,
    bias: Option<&Tensor>,
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let heads = |x: &Tensor, lengths: &[usize]| {
        let padded = pad(x, lengths)?; // (B, T, D)
        let (batch, longest, width) = padded.dims3()?;
        padded
            .reshape((batch, longest, spec.heads, width / spec.heads))?
            .transpose(1, 2)?
            .contiguous() // (B, H, T, Dh)
    };
    let head_width = query.dim(1)? / spec.heads;
    let q = (heads(query, &spec.query_lengths)? * (head_width as f64).powf(-0.5))?;
    let k = heads(key, &spec.key_lengths)?;
    let mut scores = q.matmul(&k.t()?.contiguous()?)?; // (B, H, Tq, Tk)
    let (_, _, queries, keys) = scores.dims4()?;
    scores = scores.broadcast_add(&mask(spec, queries, keys, scores.dtype(), query.device())?)?;
    if let Some(bias) = bias {
        let bias = bias.narrow(1, 0, queries)?.narrow(2, 0, keys)?.to_dtype(scores.dtype())?;
        scores = scores.broadcast_add(&bias.unsqueeze(0)?)?;
    }
    // The maximum is a constant shift: detached, it gets no gradient.
    let shifted = scores.broadcast_sub(&scores.detach().max_keepdim(D::Minus1)?)?;
    let exponents = shifted.exp()?;
    exponents.broadcast_div(&exponents.sum_keepdim(D::Minus1)?)
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
    let padded = pad(value, &spec.key_lengths)?;
    let (batch, keys, width) = padded.dims3()?;
    let value = padded
        .reshape((batch, keys, spec.heads, width / spec.heads))?
        .transpose(1, 2)?
        .contiguous()?; // (B, H, Tk, Dh)
    let out = weights.matmul(&value)?.transpose(1, 2)?.contiguous()?; // (B, Tq, H, Dh)
    let queries = out.dim(1)?;
    unpad(&out.reshape((batch * queries, width))?, &spec.query_lengths, queries)
}

/// `(N, D)` → `(B, T, D)`: each sequence in its own row, the rest zeros.
fn pad(x: &Tensor, lengths: &[usize]) -> Result<Tensor> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let (rows, width) = x.dims2()?;
    // One row of zeros behind the last token is what padding points at.
    let zero = Tensor::zeros((1, width), x.dtype(), x.device())?;
    let with_zero = Tensor::cat(&[&x.contiguous()?, &zero], 0)?;
    let mut start = 0u32;
    let mut index = Vec::with_capacity(lengths.len() * longest);
    for &length in lengths {
        index.extend((0..longest).map(|t| if t < length { start + t as u32 } else { rows as u32 }));
        start += length as u32;
    }
    let index = Tensor::from_vec(index, lengths.len() * longest, x.device())?;
    with_zero.index_select(&index, 0)?.reshape((lengths.len(), longest, width))
}

/// `(B·T, D)` → `(N, D)`: the real tokens.
fn unpad(x: &Tensor, lengths: &[usize], longest: usize) -> Result<Tensor> {
    let index: Vec<u32> = lengths
        .iter()
        .enumerate()
        .flat_map(|(row, &length)| (0..length).map(move |t| (row * longest + t) as u32))
        .collect();
    let count = index.len();
    x.index_select(&Tensor::from_vec(index, count, x.device())?, 0)
}

/// Hidden scores get this: `exp` of it is 0 in every float type, and it is finite in all of them.
const HIDDEN: f64 = -3.0e4;

/// `(B, H or 1, Tq, Tk)`: [`HIDDEN`] where a key may not be seen, and ALiBi's distances.
fn mask(
    spec: &AttentionSpec,
    queries: usize,
    keys: usize,
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    let heads = if spec.slopes.is_some() { spec.heads } else { 1 };
    let batch = spec.key_lengths.len();
    let mut values = Vec::with_capacity(batch * heads * queries * keys);
    for &length in spec.key_lengths.iter() {
        for head in 0..heads {
            let slope = spec.slopes.as_ref().map_or(0.0, |slopes| slopes[head]);
            for i in spec.query_start..spec.query_start + queries {
                values.extend((0..keys).map(|j| {
                    if j >= length || (spec.causal && j > i) {
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

/// The dropout mask of the attention weights, element for element that of the fused kernel.
fn weight_mask(
    spec: &AttentionSpec,
    shape: (usize, usize, usize, usize),
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    let (_, heads, queries, keys) = shape;
    let factor = spec.dropout.kernel::<f64>();
    let mut values = Vec::with_capacity(shape.0 * heads * queries * keys);
    let mut start = 0;
    for &length in spec.query_lengths.iter() {
        for head in 0..heads {
            for query in 0..queries {
                values.extend(
                    (0..keys).map(|key| {
                        factor(mask_index(start + query, heads, head, keys, key) as u32)
                    }),
                );
            }
        }
        start += length;
    }
    Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
}

/// See [`crate::smoothed_cross_entropy()`]; holds all logits.
///
/// # Errors
/// When the shapes disagree.
pub fn smoothed_cross_entropy(
    hidden: &Tensor,
    weight: &Tensor,
    targets: &[u32],
    spec: &CrossEntropySpec,
) -> Result<(Tensor, LossSums)> {
    let CrossEntropySpec { smoothing, r_drop, scale, .. } = *spec;
    let wide = if hidden.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let logits = hidden.matmul(&weight.to_dtype(hidden.dtype())?.t()?)?.to_dtype(wide)?; // (N, V)
    let (rows, classes) = logits.dims2()?;
    let largest = logits.detach().max_keepdim(1)?;
    let shifted = logits.broadcast_sub(&largest)?;
    let log_total = shifted.exp()?.sum_keepdim(1)?.log()?; // (N, 1)
    let log_probs = shifted.broadcast_sub(&log_total)?;
    let index = Tensor::from_vec(targets.to_vec(), (rows, 1), hidden.device())?;
    let nll = log_probs.gather(&index, 1)?.neg()?.sum_all()?;
    let uniform = (log_probs.sum_all()?.neg()? / classes as f64)?;
    let smoothed = ((&nll * (1.0 - smoothing))? + (uniform * smoothing)?)?;
    let predictions = logits.argmax(1)?.to_vec1::<u32>()?;
    let correct =
        predictions.iter().zip(targets).filter(|(prediction, target)| prediction == target).count();
    // On the host: Metal has no f64.
    let number = |x: &Tensor| x.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.to_scalar::<f64>();
    let mut sums =
        LossSums { smoothed: number(&smoothed)?, nll: number(&nll)?, correct, divergence: 0.0 };
    if r_drop > 0.0 {
        let (p, q) = (log_probs.i(..rows / 2)?, log_probs.i(rows / 2..)?);
        // KL(p‖q) + KL(q‖p)
        let divergence = ((p.exp()? - q.exp()?)? * (p - q)?)?.sum_all()?;
        sums.divergence = number(&divergence)?;
        return Ok((((smoothed + (divergence * r_drop)?)? * scale)?, sums));
    }
    Ok(((smoothed * scale)?, sums))
}

/// See [`crate::relative_bias()`].
///
/// # Errors
/// When a bucket is not in the table.
pub fn relative_bias(
    table: &Tensor,
    buckets: &[u32],
    queries: usize,
    keys: usize,
) -> Result<Tensor> {
    let index = Tensor::from_slice(buckets, buckets.len(), table.device())?;
    table
        .index_select(&index, 0)?
        .reshape((queries, keys, table.dim(1)?))?
        .permute((2, 0, 1))?
        .contiguous()
}

/// See [`crate::embedding()`].
///
/// # Errors
/// When an id is not in its table.
pub fn embedding(
    table: &Tensor,
    positions: Option<&Tensor>,
    spec: &EmbeddingSpec,
) -> Result<Tensor> {
    let device = table.device();
    let rows = |table: &Tensor, ids: &[u32]| {
        table.index_select(&Tensor::from_vec(ids.to_vec(), ids.len(), device)?, 0)
    };
    let mut out = (rows(table, &spec.ids)? * spec.scale)?;
    if let Some(positions) = positions {
        out = (out + rows(positions, &spec.positions)?)?;
    }
    drop(&out, spec.dropout)
}

/// See [`crate::rotary()`]: heads of `head` elements in the first `turned` columns.
///
/// # Errors
/// When the columns do not fit.
pub fn rotary(x: &Tensor, positions: &[u32], head: usize, turned: usize) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let half = head / 2;
    let longest = positions.iter().max().map_or(0, |&position| position as usize + 1);
    let (cosines, sines) = angles(0..longest, head);
    let at = Tensor::from_vec(positions.to_vec(), rows, x.device())?;
    // Converted on the host: Metal has no f64.
    let table = |values: Vec<f64>| {
        let all =
            Tensor::from_vec(values, (longest, 1, half), &Device::Cpu)?.to_dtype(x.dtype())?;
        all.to_device(x.device())?.index_select(&at, 0)
    };
    let (cosines, sines) = (table(cosines)?, table(sines)?); // (N, 1, Dh/2)
    let pairs = x.narrow(1, 0, turned)?.contiguous()?.reshape((rows, turned / head, head))?;
    let (first, second) = (pairs.i((.., .., ..half))?, pairs.i((.., .., half..))?);
    let out = Tensor::cat(
        &[
            (first.broadcast_mul(&cosines)? - second.broadcast_mul(&sines)?)?,
            (second.broadcast_mul(&cosines)? + first.broadcast_mul(&sines)?)?,
        ],
        2,
    )?
    .reshape((rows, turned))?;
    if turned == width {
        Ok(out)
    } else {
        Tensor::cat(&[out, x.narrow(1, turned, width - turned)?], 1)
    }
}

/// See [`crate::decoding_attention()`]: what every query sees is gathered, and each is a sequence
/// of its own.
///
/// # Errors
/// When the shapes disagree.
pub fn decoding_attention(query: &Tensor, seen: Seen<'_>, heads: usize) -> Result<Tensor> {
    let (mut bias, mut slopes) = (None, None);
    let (all, index, lengths): (Tensor, Vec<u32>, Vec<usize>) = match seen {
        Seen::Source { key_value, rows } => {
            let index = rows.iter().flat_map(|rows| rows.clone().map(|row| row as u32)).collect();
            (key_value.clone(), index, rows.iter().map(ExactSizeIterator::len).collect())
        }
        Seen::Past { blocks, history, bias: its_bias, slopes: its_slopes } => {
            (bias, slopes) = (its_bias, its_slopes);
            let mut first = 0;
            let mut starts = Vec::with_capacity(blocks.len());
            for block in blocks {
                starts.push(first);
                first += block.dim(0)? as u32;
            }
            let queries = query.dim(0)?;
            let index = (0..queries)
                .flat_map(|query| {
                    starts.iter().zip(history).map(move |(start, rows)| start + rows[query])
                })
                .collect();
            (Tensor::cat(blocks, 0)?, index, vec![blocks.len(); queries])
        }
    };
    let count = index.len();
    let key_value = all.index_select(&Tensor::from_vec(index, count, query.device())?, 0)?;
    let spec = AttentionSpec {
        heads,
        query_lengths: vec![1; lengths.len()].into(),
        query_start: lengths.iter().max().map_or(0, |longest| longest.saturating_sub(1)),
        key_lengths: lengths.into(),
        causal: false,
        slopes: slopes.cloned(),
        dropout: Dropout::none(),
        products: Products::F32,
    };
    cross_attention(query, &key_value, bias, &spec)
}
