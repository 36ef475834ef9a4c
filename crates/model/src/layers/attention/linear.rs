//! Linear attention (Katharopoulos et al. 2020, "Transformers are RNNs", section 3), in plain Candle.
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
//! numerator. The sums `S = Σ φ(k) v'ᵀ`, `(Dh, Dh + 1)` a head, are all that decoding keeps. Whole
//! sequences go in chunks: within one the products φ(q)·φ(k) are computed as they are, and S
//! carries what was before.

use super::super::positions::PreparedPositions;
use super::{Kind, LayerPast, PastRows, Site, Texts};
use crate::cost::PartCost;
use crate::{ModelConfig, Pass};
use candle_core::{D, DType, Result, Tensor};
use std::sync::Arc;
use taper_ops::composed;

/// Tokens of a chunk: about the width of a head, where both ways to attend take as long.
const CHUNK: usize = 64;
/// Added to a denominator, as the paper's authors do: φ may underflow to 0.
const EPSILON: f64 = 1e-6;

#[derive(Debug)]
pub(super) struct LinearAttention {
    heads: usize,
    causal: bool,
}

impl LinearAttention {
    pub(super) fn new(site: &Site<'_>) -> Self {
        Self { heads: site.config.heads, causal: site.causal }
    }

    /// Candle keeps each result on the way: of queries, keys and values padded, mapped and divided
    /// into chunks about 24 rows, and of the products within a chunk three.
    pub(super) fn cost(config: &ModelConfig, causal: bool) -> PartCost {
        let kind = Self { heads: config.heads, causal };
        let flops = kind.flops(config.d_model, 1);
        let kept = 24.0 * config.d_model as f64 + 3.0 * (config.heads * CHUNK) as f64;
        PartCost { flops, kept, ..PartCost::default() }
    }

    /// φ of queries and keys, and values with a one behind each: `(B, T, 3·D)` → `(B, H, T, Dh)`
    /// twice and `(B, H, T, Dh + 1)`. Keys beyond their sequence are zero.
    fn mapped(&self, padded: &Tensor, lengths: &[usize]) -> Result<[Tensor; 3]> {
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
        let key = feature(&part(1)?)?.broadcast_mul(&is_real.to_dtype(padded.dtype())?)?;
        let value = part(2)?;
        let ones = Tensor::ones((batch, heads, longest, 1), value.dtype(), value.device())?;
        Ok([feature(&part(0)?)?, key, Tensor::cat(&[&value, &ones], 3)?])
    }

    /// Whole sequences, and the sums after them: `(N, 3·D)` → `(N, D)`, `(B, H, Dh, Dh + 1)`.
    fn run(&self, qkv: &Tensor, lengths: &[usize]) -> Result<(Tensor, Tensor)> {
        let mut padded = composed::pad(&wide(qkv)?, lengths)?; // (B, T, 3·D)
        let longest = padded.dim(1)?;
        if self.causal && longest > CHUNK {
            let whole = longest.next_multiple_of(CHUNK);
            padded = padded.pad_with_zeros(1, 0, whole - longest)?;
        }
        let [query, key, value] = self.mapped(&padded, lengths)?;
        let (batch, heads, longest, head) = query.dims4()?;
        let (out, sums) = if self.causal {
            in_chunks(&query, &key, &value)?
        } else {
            let sums = transposed(&key)?.matmul(&value)?; // (B, H, Dh, Dh + 1)
            (query.matmul(&sums)?, sums)
        };
        let out = divided(&out)?.transpose(1, 2)?.contiguous()?; // (B, T, H, Dh)
        let out =
            composed::unpad(&out.reshape((batch * longest, heads * head))?, lengths, longest)?;
        Ok((out.to_dtype(qkv.dtype())?, sums))
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

/// Numerators by the denominators behind them: `(…, Dh + 1)` → `(…, Dh)`.
fn divided(sums: &Tensor) -> Result<Tensor> {
    let head = sums.dim(D::Minus1)? - 1;
    let denominator = (sums.narrow(D::Minus1, head, 1)? + EPSILON)?;
    sums.narrow(D::Minus1, 0, head)?.broadcast_div(&denominator)
}

/// The causal sums of each query, and those after the last token.
///
/// All chunks go at once, since Candle's way back from a part of a tensor writes the whole of it.
///
/// # Shapes
/// `query` and `key (B, H, T, Dh)`, `value (B, H, T, Dh + 1)`, T being one chunk or several whole
/// ones → `(B, H, T, Dh + 1)` and `(B, H, Dh, Dh + 1)`.
fn in_chunks(query: &Tensor, key: &Tensor, value: &Tensor) -> Result<(Tensor, Tensor)> {
    let (batch, heads, longest, head) = query.dims4()?;
    if longest == 0 {
        let sums = Tensor::zeros((batch, heads, head, head + 1), key.dtype(), key.device())?;
        return Ok((value.clone(), sums));
    }
    let count = longest.min(CHUNK);
    let chunks = longest / count;
    // Heads of all sequences are one dimension G: Candle multiplies no more than four.
    let in_chunks = |x: &Tensor, width| x.reshape((batch * heads, chunks, count, width));
    let (query, key) = (in_chunks(query, head)?, in_chunks(key, head)?); // (G, K, C, Dh)
    let value = in_chunks(value, head + 1)?; // (G, K, C, Dh + 1)
    let across = transposed(&key)?; // (G, K, Dh, C)
    let scores = query.matmul(&across)?.broadcast_mul(&past(count, &query)?)?; // (G, K, C, C)
    let mut out = scores.matmul(&value)?;
    let of_chunks = across.matmul(&value)?; // (G, K, Dh, Dh + 1)
    let mut sums = of_chunks.narrow(1, chunks - 1, 1)?;
    if chunks > 1 {
        let before = sums_before(&of_chunks)?;
        out = (out + query.matmul(&before)?)?;
        sums = (sums + before.narrow(1, chunks - 1, 1)?)?;
    }
    let out = out.reshape((batch, heads, longest, head + 1))?;
    Ok((out, sums.reshape((batch, heads, head, head + 1))?))
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
        composed::on_tape(pass.tape(), "linear attention", &[qkv], |inputs| {
            Ok(self.run(&inputs[0], lengths)?.0)
        })
    }

    fn flops(&self, width: usize, length: usize) -> f64 {
        let (length, head) = (length as f64, (width / self.heads) as f64);
        // Sums are added to and read from; within a chunk, products are weighed as they are.
        let sums = 4.0 * length * head * (head + 1.0);
        let within = 2.0 * length * CHUNK as f64 * (2.0 * head + 1.0);
        self.heads as f64 * if self.causal { sums + within } else { sums }
    }

    fn weights(
        &self,
        qkv: &Tensor,
        lengths: &Arc<[usize]>,
        _: &PreparedPositions,
        _: &Pass,
    ) -> Result<Tensor> {
        let padded = composed::pad(&wide(qkv)?, lengths)?;
        let [query, key, _] = self.mapped(&padded, lengths)?;
        let mut weights = query.matmul(&transposed(&key)?)?; // (B, H, T, T)
        if self.causal {
            weights = weights.broadcast_mul(&past(padded.dim(1)?, &weights)?)?;
        }
        weights.broadcast_div(&(weights.sum_keepdim(D::Minus1)? + EPSILON)?)
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
        let [query, key, value] = self.mapped(&wide(qkv)?.unsqueeze(1)?, &ones)?; // (R, H, 1, ·)
        let mut sums = transposed(&key)?.matmul(&value)?; // (R, H, Dh, Dh + 1)
        if let Some(running) = &past.running {
            sums = (running.reshape(sums.shape())? + sums)?;
        }
        past.running = Some(sums.flatten_from(1)?);
        divided(&query.matmul(&sums)?)?.reshape((rows, width / 3))?.to_dtype(qkv.dtype())
    }

    fn read(
        &self,
        qkv: &Tensor,
        past: &mut LayerPast,
        texts: &Texts<'_>,
        _: &PreparedPositions,
    ) -> Result<Tensor> {
        let (out, sums) = self.run(qkv, texts.lengths)?;
        past.put_running(sums.flatten_from(1)?, texts)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};
    use taper_ops::Tape;
    use taper_ops::rng::Counter;

    const LENGTHS: [usize; 3] = [70, 1, 150];

    fn random(rows: usize, columns: usize, key: u64) -> Var {
        let counter = Counter::new(key);
        let values: Vec<f64> = (0..(rows * columns) as u64).map(|i| counter.normal_at(i)).collect();
        let x = Tensor::from_vec(values, (rows, columns), &Device::Cpu).unwrap();
        Var::from_tensor(&x).unwrap()
    }

    fn kind(causal: bool) -> LinearAttention {
        LinearAttention { heads: 2, causal }
    }

    fn attend(kind: &LinearAttention, qkv: &Tensor, tape: Option<&Tape>) -> Tensor {
        // Without dropout and parameters a pass is its tape.
        composed::on_tape(tape, "linear attention", &[qkv], |inputs| {
            Ok(kind.run(&inputs[0], &LENGTHS)?.0)
        })
        .unwrap()
    }

    /// Chunks and sums against all weights, computed one by one in plain Rust.
    #[test]
    fn it_is_the_equation() {
        let (qkv, head) = (random(221, 18, 1), 3);
        let rows = qkv.to_vec2::<f64>().unwrap();
        let feature = |x: f64| if x > 0.0 { x + 1.0 } else { x.exp() };
        for causal in [false, true] {
            let ours = attend(&kind(causal), &qkv, None).to_vec2::<f64>().unwrap();
            let mut first = 0;
            for length in LENGTHS {
                for i in 0..length {
                    for column in 0..6 {
                        let own = column / head * head;
                        let last = if causal { i + 1 } else { length };
                        let (mut sum, mut total) = (0.0, EPSILON);
                        for j in 0..last {
                            let (query, key) = (&rows[first + i], &rows[first + j]);
                            let products =
                                (own..own + head).map(|d| feature(query[d]) * feature(key[6 + d]));
                            let weight: f64 = products.sum();
                            sum += weight * key[12 + column];
                            total += weight;
                        }
                        let error = (ours[first + i][column] - sum / total).abs();
                        assert!(error < 1e-12, "causal {causal}, token {i} of {length}: {error}");
                    }
                }
                first += length;
            }
        }
    }

    /// `Σ gradient ⊙ direction` against the central difference along that direction.
    #[test]
    fn gradients_are_finite_differences() {
        for causal in [false, true] {
            let (qkv, kind) = (random(221, 18, 2), kind(causal));
            let (adjoint, direction) = (random(221, 6, 3), random(221, 18, 4));
            let inner = |left: &Tensor, right: &Tensor| {
                left.mul(right).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap()
            };
            let tape = Tape::new();
            let out = attend(&kind, &qkv, Some(&tape));
            let gradients = tape.differentiate(&out, &adjoint).unwrap();
            let expected = inner(&gradients.get(&qkv).unwrap().unwrap(), &direction);
            let at = |step: f64| {
                let moved = (qkv.as_tensor() + (direction.as_tensor() * step).unwrap()).unwrap();
                inner(&attend(&kind, &moved, None), &adjoint)
            };
            let difference = (at(1e-5) - at(-1e-5)) / 2e-5;
            assert!(
                (expected - difference).abs() < 1e-6 * (1.0 + difference.abs()),
                "causal {causal}: {expected}, finite difference {difference}"
            );
        }
    }
}
