//! Linear attention, composed of Candle's operations, on padded tensors.
//!
//! Queries q and keys k are mapped to features φ. A one is appended to each value: `v' = (v, 1)`.
//! So the sum of weighted values has the denominator in its last column. Decoding keeps only the
//! sums `S = Σ φ(k) v'ᵀ`, `(M, Dh + 1)` for a head with M features. Whole sequences are computed in
//! chunks: from the products φ(q)·φ(k) within a chunk, and from S for all tokens before the chunk.

use super::random_features::{key_features, query_features, together};
use crate::composed::attention::{pad, unpad};
use crate::composed::{CountedProduct, wide};
use crate::spec::attention::kinds::LinearAttentionSpec;
use candle_core::{D, Result, Tensor};

/// Smallest number of tokens in a chunk. If this is about the width of a head, the products within
/// a chunk take as long as the sums S.
const CHUNK: usize = 64;

/// Features φ of queries and keys, `(B, H, T, M)`, and values with a one appended to each,
/// `(B, H, T, Dh + 1)`.
struct Mapped {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    /// Number c for each head, `(B, H)`, if the features of keys have been divided by `exp(c)`.
    left_out: Option<Tensor>,
}

/// Sums `S`, `(B, H, M, Dh + 1)`, and the numbers c, `(B, H)`, if the sums have been divided by
/// `exp(c)`.
struct Sums(Tensor, Option<Tensor>);

/// Computes linear attention; see [`crate::linear_attention_after`].
///
/// # Shapes
/// The shapes of [`crate::linear_attention_after`].
///
/// # Errors
/// If the shapes disagree.
pub fn linear_attention(
    qkv: &Tensor,
    vectors: Option<&Tensor>,
    spec: &LinearAttentionSpec,
) -> Result<(Tensor, Tensor)> {
    let (features, lengths) = (spec.shape(qkv, vectors)?.features, &spec.lengths);
    let chunk = match vectors {
        None => CHUNK,
        Some(_) => features.next_power_of_two().clamp(CHUNK, 256),
    };
    let mut padded = pad(&wide(qkv)?, lengths)?; // (B, T, 3·D)
    let longest = padded.dim(1)?;
    if spec.causal && longest > chunk {
        let whole = longest.next_multiple_of(chunk);
        padded = padded.pad_with_zeros(1, 0, whole - longest)?;
    }
    let Mapped { query, key, value, left_out } = mapped(&padded, vectors, spec.heads, lengths)?;
    let (batch, _, longest, _) = query.dims4()?;
    let (out, sums) = if spec.causal {
        in_chunks(&query, &key, &value, chunk)?
    } else {
        let sums = transposed(&key)?.times(&value)?; // (B, H, M, Dh + 1)
        (query.times(&sums)?, sums)
    };
    let out = divided(&out, vectors.is_some())?.transpose(1, 2)?.contiguous()?; // (B, T, H, Dh)
    let out = unpad(&out.reshape((batch * longest, qkv.dim(1)? / 3))?, lengths, longest)?;
    Ok((out.to_dtype(qkv.dtype())?, Sums(sums, left_out).kept()?))
}

/// Attends from one more token in each row, given `kept`: the sums over the tokens before it. Also
/// returns the sums that include the token.
///
/// # Shapes
/// `qkv (R, 3·D)`, `vectors (M, Dh)`, `kept` as returned by [`crate::linear_attention_after`], or
/// `None` before the first token → the result `(R, D)`, and the new `kept`.
///
/// # Errors
/// If the shapes disagree.
pub fn linear_attention_step(
    qkv: &Tensor,
    vectors: Option<&Tensor>,
    heads: usize,
    kept: Option<&Tensor>,
) -> Result<(Tensor, Tensor)> {
    let (rows, width) = qkv.dims2()?;
    // Each row is a sequence of one token.
    let padded = wide(qkv)?.unsqueeze(1)?;
    let Mapped { query, key, value, left_out } = mapped(&padded, vectors, heads, &vec![1; rows])?; // (R, H, 1, ·)
    let mut sums = Sums(transposed(&key)?.times(&value)?, left_out);
    if let Some(kept) = kept {
        sums = sums.after(kept)?;
    }
    let out = divided(&query.times(&sums.0)?, vectors.is_some())?;
    Ok((out.reshape((rows, width / 3))?.to_dtype(qkv.dtype())?, sums.kept()?))
}

/// Computes the weight of each key for each query.
///
/// # Shapes
/// The inputs of [`crate::linear_attention`] → `(B, H, T, T)`, each sequence padded to the longest.
///
/// # Errors
/// If the shapes disagree.
pub fn linear_attention_weights(
    qkv: &Tensor,
    vectors: Option<&Tensor>,
    spec: &LinearAttentionSpec,
) -> Result<Tensor> {
    let padded = pad(&wide(qkv)?, &spec.lengths)?;
    let Mapped { query, key, .. } = mapped(&padded, vectors, spec.heads, &spec.lengths)?;
    let mut weights = query.times(&transposed(&key)?)?; // (B, H, T, T)
    if spec.causal {
        weights = weights.broadcast_mul(&past(padded.dim(1)?, &weights)?)?;
    }
    let epsilon = LinearAttentionSpec::epsilon(vectors.is_some());
    weights.broadcast_div(&(weights.sum_keepdim(D::Minus1)? + epsilon)?)
}

/// Maps queries and keys in `padded (B, T, 3·D)` to features. The features of keys beyond the end
/// of their sequence are zero.
fn mapped(
    padded: &Tensor,
    vectors: Option<&Tensor>,
    heads: usize,
    lengths: &[usize],
) -> Result<Mapped> {
    let (batch, longest, width) = padded.dims3()?;
    let head = width / 3 / heads;
    let part = |index: usize| {
        padded
            .narrow(2, index * heads * head, heads * head)?
            .reshape((batch, longest, heads, head))?
            .transpose(1, 2)?
            .contiguous() // (B, H, T, Dh)
    };
    let is_real =
        lengths.iter().flat_map(|&length| (0..longest).map(move |t| f32::from(t < length)));
    let shape = (batch, 1, longest, 1);
    let is_real = Tensor::from_vec(is_real.collect::<Vec<f32>>(), shape, padded.device())?;
    let is_real = is_real.to_dtype(padded.dtype())?;
    let (query, key, value) = (part(0)?, part(1)?, part(2)?);
    let ones = Tensor::ones((batch, heads, longest, 1), value.dtype(), value.device())?;
    let value = Tensor::cat(&[&value, &ones], 3)?;
    let (query, key, left_out) = match vectors {
        None => (feature(&query)?, feature(&key)?.broadcast_mul(&is_real)?, None),
        Some(vectors) => {
            let (key, left_out) = key_features(&key, vectors, &is_real)?;
            (query_features(&query, vectors)?, key, Some(left_out))
        }
    };
    Ok(Mapped { query, key, value, left_out })
}

impl Sums {
    /// Returns the sums as decoding keeps them from token to token: one row for each sequence,
    /// `(R, …)`.
    fn kept(self) -> Result<Tensor> {
        let sums = self.0.flatten_from(1)?;
        match self.1 {
            None => Ok(sums),
            Some(left_out) => Tensor::cat(&[sums, left_out], 1),
        }
    }

    /// Adds `kept`, the sums over earlier tokens, to these sums.
    fn after(self, kept: &Tensor) -> Result<Self> {
        let Self(sums, left_out) = self;
        let (rows, heads, features, width) = sums.dims4()?;
        let count = heads * features * width;
        let past = kept.narrow(1, 0, count)?.reshape((rows, heads, features, width))?;
        match left_out {
            None => Ok(Self((past + sums)?, None)),
            Some(left_out) => {
                let past = (&past, &kept.narrow(1, count, heads)?);
                let (sums, left_out) = together(past, (&sums, &left_out))?;
                Ok(Self(sums, Some(left_out)))
            }
        }
    }
}

/// Divides weighted sums of values by their denominators, which are the last column: `(…, Dh + 1)`
/// → `(…, Dh)`.
fn divided(sums: &Tensor, is_random: bool) -> Result<Tensor> {
    let head = sums.dim(D::Minus1)? - 1;
    let epsilon = LinearAttentionSpec::epsilon(is_random);
    let denominator = (sums.narrow(D::Minus1, head, 1)? + epsilon)?;
    sums.narrow(D::Minus1, 0, head)?.broadcast_div(&denominator)
}

/// Computes the feature map `elu(x) + 1`.
fn feature(x: &Tensor) -> Result<Tensor> {
    x.elu(1.0)? + 1.0
}

fn transposed(x: &Tensor) -> Result<Tensor> {
    x.transpose(D::Minus2, D::Minus1)?.contiguous()
}

/// Computes, for each query, the weighted sum over the keys up to its position, and the sums S
/// after the last token.
///
/// All chunks are computed at once. A loop over chunks would take slices, and Candle's backward
/// pass of each slice would write a tensor as large as the whole.
///
/// # Shapes
/// `query` and `key (B, H, T, M)`, `value (B, H, T, Dh + 1)`, where T is the length of one chunk or
/// a multiple of `chunk` → `(B, H, T, Dh + 1)` and `(B, H, M, Dh + 1)`.
fn in_chunks(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    chunk: usize,
) -> Result<(Tensor, Tensor)> {
    let (batch, heads, longest, features) = query.dims4()?;
    let width = value.dim(3)?;
    if longest == 0 {
        let sums = Tensor::zeros((batch, heads, features, width), key.dtype(), key.device())?;
        return Ok((value.clone(), sums));
    }
    let count = longest.min(chunk);
    let chunks = longest / count;
    // The heads of all sequences share one dimension G, because Candle multiplies tensors with at
    // most four dimensions.
    let in_chunks = |x: &Tensor, width| x.reshape((batch * heads, chunks, count, width));
    let (query, key) = (in_chunks(query, features)?, in_chunks(key, features)?); // (G, K, C, M)
    let value = in_chunks(value, width)?; // (G, K, C, Dh + 1)
    let across = transposed(&key)?; // (G, K, M, C)
    let scores = query.times(&across)?.broadcast_mul(&past(count, &query)?)?; // (G, K, C, C)
    let mut out = scores.times(&value)?;
    let of_chunks = across.times(&value)?; // (G, K, M, Dh + 1)
    let mut sums = of_chunks.narrow(1, chunks - 1, 1)?;
    if chunks > 1 {
        let before = sums_before(&of_chunks)?;
        out = (out + query.times(&before)?)?;
        sums = (sums + before.narrow(1, chunks - 1, 1)?)?;
    }
    let out = out.reshape((batch, heads, longest, width))?;
    Ok((out, sums.reshape((batch, heads, features, width))?))
}

/// Returns, for each chunk, the sum over all chunks before it: `(G, K, …)` → the same shape. At
/// first, the sum of a chunk covers only the chunk just before it. Each round doubles the number n
/// of chunks that a sum covers, by adding the sum that covers the n chunks before. In the end, all
/// sums reach back to the first chunk.
fn sums_before(of_chunks: &Tensor) -> Result<Tensor> {
    let chunks = of_chunks.dim(1)?;
    let later = |x: &Tensor, by: usize| {
        let nothing = x.narrow(1, 0, by)?.zeros_like()?;
        Tensor::cat(&[&nothing, &x.narrow(1, 0, chunks - by)?], 1)
    };
    let mut sums = later(of_chunks, 1)?;
    let mut by = 1;
    while by < chunks {
        sums = (&sums + later(&sums, by)?)?;
        by *= 2;
    }
    Ok(sums)
}

/// Returns the mask `(C, C)`: 1 where the query (row) sees the key (column) of its chunk, otherwise
/// 0.
fn past(count: usize, like: &Tensor) -> Result<Tensor> {
    let ones = (0..count * count).map(|i| f32::from(i % count <= i / count));
    let mask = Tensor::from_vec(ones.collect::<Vec<f32>>(), (count, count), like.device())?;
    mask.to_dtype(like.dtype())
}
