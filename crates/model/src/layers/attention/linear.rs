//! Linear attention (Katharopoulos et al. 2020, "Transformers are RNNs", section 3), in plain Candle;
//! with random features in place of elu(x) + 1 it is a Performer ([`super::performer`]).
//!
//! ```text
//! O_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / (φ(q_i)ᵀ Σ_j φ(k_j) + ε),   φ(x) = elu(x) + 1
//! ```
//!
//! over all tokens j of the sequence, under a causal mask over j ≤ i (equations 5, 7, 9 and 12). φ
//! is positive, and so is the weight of each key; no score is computed, so that time and memory
//! grow with the length alone. Queries and keys are not scaled: φ is no function of their product.
//!
//! With a one behind each value, `v' = (v, 1)`, the denominator is the last column of the
//! numerator. The sums `S = Σ φ(k) v'ᵀ`, `(M, Dh + 1)` a head of M features, are all that decoding keeps. Whole
//! sequences go in chunks: within one the products φ(q)·φ(k) are computed as they are, and S
//! carries what was before.

use super::super::positions::PreparedPositions;
use super::performer::{self, RandomFeatures};
use super::{Kind, LayerPast, PastRows, Texts};
use crate::Pass;
use crate::cost::PartCost;
use candle_core::{D, DType, Result, Tensor};
use std::sync::Arc;
use taper_ops::composed::{self, CountedProduct};

/// Tokens of a chunk, at least: about the width of a head, where both ways to attend take as long.
const CHUNK: usize = 64;

#[derive(Debug)]
pub(super) struct LinearAttention {
    heads: usize,
    causal: bool,
    features: Features,
}

/// φ.
#[derive(Debug)]
enum Features {
    /// `elu(x) + 1`, of as many features as a head is wide.
    Elu,
    Random(RandomFeatures),
}

/// φ of queries and keys, `(B, H, T, M)`, and values with a one behind each, `(B, H, T, Dh + 1)`.
struct Mapped {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    /// The exponent that was left out of the keys of a head, `(B, H)`.
    left_out: Option<Tensor>,
}

/// Sums `S`, `(B, H, M, Dh + 1)`, and the exponent that was left out of them, `(B, H)`.
pub(super) struct Sums(Tensor, Option<Tensor>);

impl LinearAttention {
    pub(super) fn new(heads: usize, causal: bool) -> Self {
        Self { heads, causal, features: Features::Elu }
    }

    pub(super) fn performer(heads: usize, causal: bool, features: RandomFeatures) -> Self {
        Self { heads, causal, features: Features::Random(features) }
    }

    pub(super) fn cost(&self, width: usize) -> PartCost {
        PartCost::of_sequence(|length| (self.flops(width, length), self.kept(width, length)))
    }

    /// Features of a head of this width.
    fn count(&self, head: usize) -> usize {
        match &self.features {
            Features::Elu => head,
            Features::Random(features) => features.count(),
        }
    }

    /// Tokens of a chunk: about as many as features, where both ways to attend take as long.
    fn chunk(&self) -> usize {
        match &self.features {
            Features::Elu => CHUNK,
            Features::Random(features) => features.count().next_power_of_two().clamp(CHUNK, 256),
        }
    }

    /// Tokens of a sequence of this length with what fills its last chunk, and its chunks.
    fn chunked(&self, length: usize) -> (usize, usize) {
        let chunk = self.chunk();
        let padded =
            if self.causal && length > chunk { length.next_multiple_of(chunk) } else { length };
        (padded, if self.causal { padded.div_ceil(chunk).max(1) } else { 1 })
    }

    /// Added to a denominator: φ may underflow to 0. As the authors of linear attention do; the
    /// largest of random features is 1, and the square of this is not yet 0 in f32.
    fn epsilon(&self) -> f64 {
        match &self.features {
            Features::Elu => 1e-6,
            Features::Random(_) => 1e-18,
        }
    }

    /// The vectors of random features outside of training.
    pub(super) fn own_vectors(&self) -> Result<Option<Tensor>> {
        match &self.features {
            Features::Elu => Ok(None),
            Features::Random(features) => Ok(Some(features.own()?)),
        }
    }

    /// The same in a pass.
    fn vectors_of_pass(&self, pass: &Pass) -> Result<Option<Tensor>> {
        match &self.features {
            Features::Elu => Ok(None),
            Features::Random(features) => Ok(Some(features.of_pass(pass)?)),
        }
    }

    /// `padded (B, T, 3·D)`; keys beyond their sequence become zero.
    fn mapped(
        &self,
        padded: &Tensor,
        lengths: &[usize],
        vectors: Option<&Tensor>,
    ) -> Result<Mapped> {
        let (batch, longest, width) = padded.dims3()?;
        let (heads, head) = (self.heads, width / 3 / self.heads);
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
                let (key, left_out) = performer::of_keys(&key, vectors, &is_real)?;
                (performer::of_queries(&query, vectors)?, key, Some(left_out))
            }
        };
        Ok(Mapped { query, key, value, left_out })
    }

    /// Whole sequences, and the sums after them: `(N, 3·D)` → `(N, D)`.
    pub(super) fn run(
        &self,
        qkv: &Tensor,
        lengths: &[usize],
        vectors: Option<&Tensor>,
    ) -> Result<(Tensor, Sums)> {
        let mut padded = composed::pad(&wide(qkv)?, lengths)?; // (B, T, 3·D)
        let (longest, chunk) = (padded.dim(1)?, self.chunk());
        if self.causal && longest > chunk {
            let whole = longest.next_multiple_of(chunk);
            padded = padded.pad_with_zeros(1, 0, whole - longest)?;
        }
        let Mapped { query, key, value, left_out } = self.mapped(&padded, lengths, vectors)?;
        let (batch, _, longest, _) = query.dims4()?;
        let (out, sums) = if self.causal {
            in_chunks(&query, &key, &value, chunk)?
        } else {
            let sums = transposed(&key)?.times(&value)?; // (B, H, M, Dh + 1)
            (query.times(&sums)?, sums)
        };
        let out = self.divided(&out)?.transpose(1, 2)?.contiguous()?; // (B, T, H, Dh)
        let out =
            composed::unpad(&out.reshape((batch * longest, qkv.dim(1)? / 3))?, lengths, longest)?;
        Ok((out.to_dtype(qkv.dtype())?, Sums(sums, left_out)))
    }

    /// Numerators by the denominators behind them: `(…, Dh + 1)` → `(…, Dh)`.
    fn divided(&self, sums: &Tensor) -> Result<Tensor> {
        let head = sums.dim(D::Minus1)? - 1;
        let denominator = (sums.narrow(D::Minus1, head, 1)? + self.epsilon())?;
        sums.narrow(D::Minus1, 0, head)?.broadcast_div(&denominator)
    }
}

impl Sums {
    /// As a layer keeps them of each row: `(R, …)`.
    fn kept(self) -> Result<Tensor> {
        let sums = self.0.flatten_from(1)?;
        match self.1 {
            None => Ok(sums),
            Some(left_out) => Tensor::cat(&[sums, left_out], 1),
        }
    }

    /// These after what was kept.
    fn after(self, kept: &Tensor) -> Result<Self> {
        let Self(sums, left_out) = self;
        let (rows, heads, features, width) = sums.dims4()?;
        let count = heads * features * width;
        let past = kept.narrow(1, 0, count)?.reshape((rows, heads, features, width))?;
        match left_out {
            None => Ok(Self((past + sums)?, None)),
            Some(left_out) => {
                let past = (&past, &kept.narrow(1, count, heads)?);
                let (sums, left_out) = performer::together(past, (&sums, &left_out))?;
                Ok(Self(sums, Some(left_out)))
            }
        }
    }
}

/// `elu(x) + 1`.
fn feature(x: &Tensor) -> Result<Tensor> {
    x.elu(1.0)? + 1.0
}

/// Sums of half precision would forget what comes late.
fn wide(x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::F16 | DType::BF16 => x.to_dtype(DType::F32),
        _ => Ok(x.clone()),
    }
}

fn transposed(x: &Tensor) -> Result<Tensor> {
    x.transpose(D::Minus2, D::Minus1)?.contiguous()
}

/// The causal sums of each query, and those after the last token.
///
/// All chunks go at once, since Candle's way back from a part of a tensor writes the whole of it.
///
/// # Shapes
/// `query` and `key (B, H, T, M)`, `value (B, H, T, Dh + 1)`, T being one chunk or several whole
/// ones → `(B, H, T, Dh + 1)` and `(B, H, M, Dh + 1)`.
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
    // Heads of all sequences are one dimension G: Candle multiplies no more than four.
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

/// For each chunk the sum over those before it: `(G, K, …)` → the same. Each round adds to a sum the
/// one that ends where it begins, of as many chunks.
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

/// `(C, C)`: 1 where a token sees another of its chunk.
fn past(count: usize, like: &Tensor) -> Result<Tensor> {
    let ones = (0..count * count).map(|i| f32::from(i % count <= i / count));
    let mask = Tensor::from_vec(ones.collect::<Vec<f32>>(), (count, count), like.device())?;
    mask.to_dtype(like.dtype())
}

impl Kind for LinearAttention {
    fn attend(
        &self,
        qkv: &Tensor,
        lengths: &Arc<[usize]>,
        _: &PreparedPositions,
        pass: &Pass,
    ) -> Result<Tensor> {
        let vectors = self.vectors_of_pass(pass)?;
        composed::on_tape(pass.tape(), "linear attention", &[qkv], |inputs| {
            Ok(self.run(&inputs[0], lengths, vectors.as_ref())?.0)
        })
    }

    fn flops(&self, width: usize, length: usize) -> f64 {
        let (head, features) = (width / self.heads, self.count(width / self.heads));
        let (padded, chunks) = self.chunked(length);
        let (chunk, value) = (self.chunk().min(length) as f64, head as f64 + 1.0);
        let (padded, features) = (padded as f64, features as f64);
        // Sums are added to, and read from but in a single chunk, within which products are weighed
        // as they are.
        let of_sums = if self.causal && chunks == 1 { 2.0 } else { 4.0 };
        let sums = of_sums * padded * features * value;
        let within = if self.causal { 2.0 * padded * chunk * (features + value) } else { 0.0 };
        // Random features are products with as many vectors.
        let mapped = match &self.features {
            Features::Elu => 0.0,
            Features::Random(_) => 4.0 * padded * features * head as f64,
        };
        self.heads as f64 * (mapped + sums + within)
    }

    /// Of a token, queries, keys and values, padded, mapped and in chunks, what it gives, and in each
    /// head denominators and the products within a chunk; of a chunk, the sum of each pair of a
    /// feature and a value, and those of the chunks before it, which takes as many rounds as there
    /// are doublings.
    fn kept(&self, width: usize, length: usize) -> f64 {
        let (head, chunk) = (width / self.heads, self.chunk());
        let (padded, chunks) = self.chunked(length);
        let (d, h) = (width as f64, self.heads as f64);
        let mut of_token = match &self.features {
            Features::Elu => 26.0 * d + 4.0 * h,
            Features::Random(features) => 24.0 * d + (9.0 + 11.0 * features.count() as f64) * h,
        };
        let mut of_sum = 1.0;
        if self.causal {
            of_token += 2.0 * h * chunk.min(length) as f64;
        }
        if chunks > 1 {
            of_token += 2.0 * (d + h);
            of_sum = 3.0 + 2.0 * f64::from(chunks.next_power_of_two().ilog2());
        }
        let sums = chunks as f64 * of_sum * self.count(head) as f64 * (d + h);
        let added = if padded > length { 3.0 * d * (2 * padded - length) as f64 } else { 0.0 };
        padded as f64 * (of_token + 1.0) + sums + added
    }

    fn weights(
        &self,
        qkv: &Tensor,
        lengths: &Arc<[usize]>,
        _: &PreparedPositions,
        pass: &Pass,
    ) -> Result<Tensor> {
        let padded = composed::pad(&wide(qkv)?, lengths)?;
        let vectors = self.vectors_of_pass(pass)?;
        let Mapped { query, key, .. } = self.mapped(&padded, lengths, vectors.as_ref())?;
        let mut weights = query.times(&transposed(&key)?)?; // (B, H, T, T)
        if self.causal {
            weights = weights.broadcast_mul(&past(padded.dim(1)?, &weights)?)?;
        }
        weights.broadcast_div(&(weights.sum_keepdim(D::Minus1)? + self.epsilon())?)
    }

    fn step(
        &self,
        qkv: &Tensor,
        past: &mut LayerPast,
        _: &PastRows<'_>,
        _: &PreparedPositions,
    ) -> Result<Tensor> {
        let (rows, width) = qkv.dims2()?;
        let ones = vec![1; rows];
        // A row is a sequence of one token.
        let padded = wide(qkv)?.unsqueeze(1)?;
        let Mapped { query, key, value, left_out } =
            self.mapped(&padded, &ones, self.own_vectors()?.as_ref())?; // (R, H, 1, ·)
        let mut sums = Sums(transposed(&key)?.times(&value)?, left_out);
        if let Some(running) = &past.running {
            sums = sums.after(running)?;
        }
        let out = self.divided(&query.times(&sums.0)?)?;
        past.running = Some(sums.kept()?);
        out.reshape((rows, width / 3))?.to_dtype(qkv.dtype())
    }

    fn read(
        &self,
        qkv: &Tensor,
        past: &mut LayerPast,
        texts: &Texts<'_>,
        _: &PreparedPositions,
    ) -> Result<Tensor> {
        let (out, sums) = self.run(qkv, texts.lengths, self.own_vectors()?.as_ref())?;
        past.put_running(sums.kept()?, texts)?;
        Ok(out)
    }
}
