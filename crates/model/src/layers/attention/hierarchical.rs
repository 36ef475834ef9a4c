//! Hierarchical attention of two levels, in plain Candle: within chunks token by token, and to other
//! chunks by a summary of each.
//!
//! ```text
//! O_i = (Σ_{j ∈ C} exp(q_i·k_j / √d) v_j + Σ_{J ≠ C} |J| exp(q_i·k̄_J / √d) v̄_J) / Z_i
//! ```
//!
//! where `C` is the chunk of token `i`, under a causal mask up to `i` and with chunks before `C`
//! alone; `k̄_J` and `v̄_J` are the means of the keys and values of chunk `J`, of `|J|` tokens, and
//! `Z_i` is the sum of the exponentials. It is what Zhu and Soricut 2021 ("H-Transformer-1D", section
//! 4) call the coarsening of a block of scores, with one level above the tokens and queries that
//! stay as they are; a summary counts as its tokens. Chunks of one token, and a chunk that holds the
//! whole sequence, give full attention. A query has about `chunk + n / chunk` scores.

use super::super::positions::PreparedPositions;
use super::past::padded_rows;
use super::{Kind, LayerPast, PastRows, Site, Texts};
use crate::Pass;
use crate::cost::PartCost;
use candle_core::{D, DType, Result, Tensor};
use std::sync::Arc;
use taper_ops::composed::CountedProduct;
use taper_ops::rng::name_key;
use taper_ops::{Dropout, composed};

/// Hidden scores get this.
const HIDDEN: f64 = -3.0e4;

#[derive(Debug)]
pub(super) struct Hierarchical {
    pub(super) heads: usize,
    pub(super) causal: bool,
    /// Tokens of a chunk.
    pub(super) chunk: usize,
    pub(super) dropout: f64,
    pub(super) site: u64,
}

/// Chunks of padded sequences: `n` of `C` tokens each.
struct Chunks {
    /// `(B, H, n, C, Dh)` each.
    query: Tensor,
    key: Tensor,
    value: Tensor,
    /// Tokens of each chunk, `(B, n)`.
    counts: Vec<Vec<usize>>,
}

impl Hierarchical {
    pub(super) fn new(site: &Site<'_>) -> Self {
        Self {
            heads: site.config.heads,
            causal: site.causal,
            chunk: site.config.attention(site.causal).chunk,
            dropout: site.config.attention_dropout,
            site: name_key(site.name),
        }
    }

    pub(super) fn cost(site: &Site<'_>) -> PartCost {
        let (width, chunk) = (site.config.d_model, site.config.attention(site.causal).chunk);
        let (heads, drops) = (site.config.heads, site.config.attention_dropout > 0.0);
        PartCost::of_sequence(|length| {
            (flops(width, chunk, length), kept((width, heads), (chunk, drops), length))
        })
    }

    /// `(N, 3·D)` → chunks, in f32 at least.
    fn chunks(&self, qkv: &Tensor, lengths: &[usize]) -> Result<Chunks> {
        let padded = wide(&composed::pad(qkv, lengths)?)?; // (B, T, 3·D)
        let (batch, longest, width) = padded.dims3()?;
        let (heads, chunk) = (self.heads, self.chunk.min(longest.max(1)));
        let count = longest.div_ceil(chunk);
        let all = padded.pad_with_zeros(1, 0, count * chunk - longest)?.reshape(vec![
            batch,
            count,
            chunk,
            3,
            heads,
            width / 3 / heads,
        ])?;
        let part = |index: usize| {
            all.narrow(3, index, 1)?.squeeze(3)?.permute((0, 3, 1, 2, 4))?.contiguous()
        };
        let of_chunk =
            |&length: &usize| (0..count).map(move |i| length.saturating_sub(i * chunk).min(chunk));
        let counts = lengths.iter().map(|length| of_chunk(length).collect()).collect();
        Ok(Chunks { query: part(0)?, key: part(1)?, value: part(2)?, counts })
    }

    /// The weights of the tokens of a query's own chunk, and of the summaries: `(B, H, n, C, C + n)`.
    fn chunk_weights(&self, chunks: &Chunks) -> Result<Tensor> {
        let (batch, heads, count, chunk, head) = chunks.query.dims5()?;
        let scale = (head as f64).powf(-0.5);
        let groups = batch * heads * count;
        let query = (&chunks.query * scale)?;
        let key = chunks.key.reshape((groups, chunk, head))?.transpose(1, 2)?.contiguous()?;
        let own = query.reshape((groups, chunk, head))?.times(&key)?;
        let own = own.reshape((batch, heads, count, chunk, chunk))?;
        let summaries = summaries(&chunks.key, &chunks.counts)?
            .reshape((batch * heads, count, head))?
            .transpose(1, 2)?
            .contiguous()?;
        let of_summaries = query
            .reshape((batch * heads, count * chunk, head))?
            .times(&summaries)?
            .reshape((batch, heads, count, chunk, count))?;
        let scores = Tensor::cat(&[own, of_summaries], 4)?;
        let mut mask = Vec::with_capacity(batch * count * chunk * (chunk + count));
        for counts in &chunks.counts {
            for (own, i) in (0..count).flat_map(|own| (0..chunk).map(move |i| (own, i))) {
                let is_seen = |j: usize| j < counts[own] && (j <= i || !self.causal);
                mask.extend((0..chunk).map(|j| if is_seen(j) { 0.0 } else { HIDDEN }));
                mask.extend((0..count).map(|other| self.of_summary(counts, own, other)));
            }
        }
        let mask =
            Tensor::from_vec(mask, (batch, 1, count, chunk, chunk + count), scores.device())?;
        softmax(&scores.broadcast_add(&mask.to_dtype(scores.dtype())?)?)
    }

    /// What is added to the score of a summary: the logarithm of its tokens, or that it is hidden.
    fn of_summary(&self, counts: &[usize], own: usize, other: usize) -> f64 {
        let is_seen = other < own || (other > own && !self.causal);
        if is_seen && counts[other] > 0 { (counts[other] as f64).ln() } else { HIDDEN }
    }

    /// `(N, 3·D)` → `(N, D)`.
    pub(super) fn run(&self, qkv: &Tensor, lengths: &[usize], dropout: Dropout) -> Result<Tensor> {
        let chunks = self.chunks(qkv, lengths)?;
        let weights = composed::drop(&self.chunk_weights(&chunks)?, dropout)?;
        let (batch, heads, count, chunk, head) = chunks.value.dims5()?;
        let groups = batch * heads * count;
        let of_own = weights
            .narrow(4, 0, chunk)?
            .contiguous()?
            .reshape((groups, chunk, chunk))?
            .times(&chunks.value.reshape((groups, chunk, head))?)?;
        let of_own = of_own.reshape((batch * heads, count * chunk, head))?;
        let summaries = summaries(&chunks.value, &chunks.counts)?;
        let of_summaries = weights
            .narrow(4, chunk, count)?
            .contiguous()?
            .reshape((batch * heads, count * chunk, count))?
            .times(&summaries.reshape((batch * heads, count, head))?)?;
        let out = (of_own + of_summaries)?
            .reshape((batch, heads, count * chunk, head))?
            .transpose(1, 2)?
            .contiguous()?
            .reshape((batch * count * chunk, heads * head))?;
        composed::unpad(&out, lengths, count * chunk)?.to_dtype(qkv.dtype())
    }
}

/// The mean of each chunk: `(B, H, n, C, Dh)`, zero behind a sequence → `(B, H, n, Dh)`.
fn summaries(x: &Tensor, counts: &[Vec<usize>]) -> Result<Tensor> {
    let (batch, _, count, _, _) = x.dims5()?;
    let shares = counts.iter().flatten().map(|&tokens| 1.0 / tokens.max(1) as f64).collect();
    let shares = Tensor::from_vec::<_, f64>(shares, (batch, 1, count, 1), x.device())?;
    x.sum(3)?.broadcast_mul(&shares.to_dtype(x.dtype())?)
}

/// Of a sequence in whole chunks: scores with the tokens of a chunk and with all summaries, and the
/// sums that they weigh.
fn flops(width: usize, chunk: usize, length: usize) -> f64 {
    let chunk = chunk.min(length.max(1));
    let count = length.div_ceil(chunk);
    4.0 * (width * count * chunk) as f64 * (chunk + count) as f64
}

/// Of a sequence in whole chunks: of a token, queries, keys and values, padded and apart, and what
/// it gives; in each head its scores, and what softmax and dropout make of them, and a mask for all
/// heads; of a chunk the summaries.
fn kept((width, heads): (usize, usize), (chunk, drops): (usize, bool), length: usize) -> f64 {
    let chunk = chunk.min(length.max(1));
    let count = length.div_ceil(chunk);
    let (padded, seen) = (count * chunk, (chunk + count) as f64);
    let (d, h, scores) = (width as f64, heads as f64, if drops { 9.0 } else { 7.0 });
    let of_token = 19.0 * d + 3.0 * h + seen * (scores * h + 1.0);
    let added = if padded > length { 3.0 * d * (2 * padded - length) as f64 } else { 0.0 };
    padded as f64 * of_token + 5.0 * count as f64 * d + added
}

/// In f32 at least.
pub(super) fn wide(x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::F16 | DType::BF16 => x.to_dtype(DType::F32),
        _ => Ok(x.clone()),
    }
}

/// Over the last dimension.
pub(super) fn softmax(scores: &Tensor) -> Result<Tensor> {
    let largest = scores.detach().max_keepdim(D::Minus1)?;
    let weights = scores.broadcast_sub(&largest)?.exp()?;
    weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)
}

impl Kind for Hierarchical {
    fn attend(
        &self,
        qkv: &Tensor,
        lengths: &Arc<[usize]>,
        _: &PreparedPositions,
        pass: &Pass,
    ) -> Result<Tensor> {
        composed::on_tape(pass.tape(), "hierarchical", &[qkv], |inputs| {
            self.run(&inputs[0], lengths, pass.dropout(self.dropout, self.site))
        })
    }

    fn flops(&self, width: usize, length: usize) -> f64 {
        flops(width, self.chunk, length)
    }

    fn kept(&self, width: usize, length: usize) -> f64 {
        kept((width, self.heads), (self.chunk, self.dropout > 0.0), length)
    }

    /// That of a summary is shared by its tokens.
    fn weights(
        &self,
        qkv: &Tensor,
        lengths: &Arc<[usize]>,
        _: &PreparedPositions,
        _: &Pass,
    ) -> Result<Tensor> {
        let chunks = self.chunks(qkv, lengths)?;
        let weights = self.chunk_weights(&chunks)?;
        let (batch, heads, count, chunk, _) = chunks.query.dims5()?;
        let (all, longest) = (count * chunk, lengths.iter().copied().max().unwrap_or(0));
        let is_own = Tensor::eye(count, weights.dtype(), weights.device())?;
        let is_own = is_own.reshape(vec![1, 1, count, 1, count, 1])?;
        let own = weights.narrow(4, 0, chunk)?.unsqueeze(4)?.broadcast_mul(&is_own)?;
        let share = |&tokens: &usize| 1.0 / tokens.max(1) as f64;
        let mut shares = Vec::with_capacity(batch * all);
        for counts in &chunks.counts {
            for tokens in counts {
                shares.extend((0..chunk).map(|j| if j < *tokens { share(tokens) } else { 0.0 }));
            }
        }
        let shares = Tensor::from_vec(shares, vec![batch, 1, 1, 1, count, chunk], qkv.device())?;
        let others = weights.narrow(4, chunk, count)?.unsqueeze(5)?;
        let others = others.broadcast_mul(&shares.to_dtype(weights.dtype())?)?;
        let both = (own + others)?.reshape((batch, heads, all, all))?;
        both.narrow(2, 0, longest)?.narrow(3, 0, longest)?.contiguous()
    }

    fn step(
        &self,
        qkv: &Tensor,
        past: &mut LayerPast,
        rows: &PastRows<'_>,
        _: &PreparedPositions,
    ) -> Result<Tensor> {
        let (count, width) = (qkv.dim(0)?, qkv.dim(1)? / 3);
        past.cache.add_step(qkv.narrow(1, width, 2 * width)?.contiguous()?)?;
        let (all, of_rows) = past.tokens(rows, count)?;
        let lengths: Vec<usize> = of_rows.iter().map(Vec::len).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0).next_multiple_of(self.chunk);
        let (heads, head, chunks) = (self.heads, width / self.heads, longest / self.chunk);
        let padded = padded_rows(&wide(&all)?, &of_rows, longest, false)?; // (R, T, 2·D)
        let part = |index: usize| {
            padded
                .narrow(2, index * width, width)?
                .reshape((count, longest, heads, head))?
                .transpose(1, 2)?
                .contiguous() // (R, H, T, Dh)
        };
        let (key, value) = (part(0)?, part(1)?);
        let of_chunk =
            |&length: &usize| (0..chunks).map(move |i| length.saturating_sub(i * self.chunk));
        let counts: Vec<Vec<usize>> = lengths
            .iter()
            .map(|length| of_chunk(length).map(|tokens| tokens.min(self.chunk)).collect())
            .collect();
        let both = |x: &Tensor| {
            let chunked = x.reshape((count, heads, chunks, self.chunk, head))?;
            Tensor::cat(&[x, &summaries(&chunked, &counts)?], 2) // (R, H, T + n, Dh)
        };
        let query = wide(&qkv.narrow(1, 0, width)?.contiguous()?)?;
        let query = (query.reshape((count, heads, 1, head))? * (head as f64).powf(-0.5))?;
        let scores = query.times(&both(&key)?.transpose(2, 3)?.contiguous()?)?;
        let mut mask = Vec::with_capacity(count * (longest + chunks));
        for (&length, counts) in lengths.iter().zip(&counts) {
            let own = (length - 1) / self.chunk;
            let is_own = |j: usize| j / self.chunk == own && j < length;
            mask.extend((0..longest).map(|j| if is_own(j) { 0.0 } else { HIDDEN }));
            mask.extend((0..chunks).map(|other| self.of_summary(counts, own, other)));
        }
        let mask = Tensor::from_vec(mask, (count, 1, 1, longest + chunks), qkv.device())?;
        let weights = softmax(&scores.broadcast_add(&mask.to_dtype(scores.dtype())?)?)?;
        weights.times(&both(&value)?)?.reshape((count, width))?.to_dtype(qkv.dtype())
    }

    fn read(
        &self,
        qkv: &Tensor,
        past: &mut LayerPast,
        texts: &Texts<'_>,
        _: &PreparedPositions,
    ) -> Result<Tensor> {
        let width = qkv.dim(1)? / 3;
        past.cache.add_text(qkv.narrow(1, width, 2 * width)?.contiguous()?)?;
        self.run(qkv, texts.lengths, Dropout::none())
    }
}
