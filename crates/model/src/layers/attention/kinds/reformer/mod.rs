//! Attention by locality-sensitive hashing (Kitaev et al. 2020, "Reformer: The Efficient
//! Transformer", section 2), written with Candle's own operations.
//!
//! ```text
//! k = q / ‖q‖,   b(x) = argmax([x R; −x R]),   o_i = Σ_j exp(q_i·k_j − z_i) v_j
//! ```
//!
//! The sum is over the tokens j that token i meets, as determined below (equations 2 and 3); z_i is
//! the logarithm of the sum of exp(q_i·k_j) over the same tokens. Queries and keys share one
//! projection. The bucket b(x) of a token comes from a random rotation R, so similar tokens fall
//! into the same bucket. Tokens are sorted by bucket and cut into chunks. Each token meets the
//! tokens of its own chunk and of the chunk before it. There are several rounds, each with its own
//! rotation. Their results are averaged, and the weight of a round is proportional to exp(z_i) of
//! this round (section 2, "Multi-round LSH attention"). A query is nearest to its own key, so the
//! score of a token with itself would almost always be the largest. A token therefore attends to
//! itself only if it meets no other token ("Causal masking for shared-QK attention").
//!
//! **Decision.** In an encoder, chunks are cut as in the paper: from the sorted tokens of all
//! rounds, one round after the other. With this rule, later tokens change where a chunk ends, and
//! therefore also which earlier tokens a token meets. A decoder does not know the later tokens yet.
//! In a decoder, each bucket is therefore cut separately, from its first token on. The chunk of a
//! token then depends only on the tokens before it, and decoding with a cache gives the same result
//! as a pass over the whole text.

mod cost;
mod plan;
mod rotations;
#[cfg(test)]
mod tests;

use super::rows::wide;
use crate::cost::PartCost;
use crate::layers::attention::{LayerPast, Mechanism, PastRows, Site, Texts, Within};
use candle_core::{D, DType, Device, Result, Tensor};
use cost::{flops, kept};
use plan::Plan;
use taper_ops::composed::CountedProduct;
use taper_ops::rng::{mix, name_key};
use taper_ops::{Dropout, composed};

pub(super) use plan::Chunks;
pub(super) use rotations::Rotations;

/// Number added to the score of a token with itself, so that it attends to itself only if it meets
/// no other token.
const ITSELF: f32 = -1e5;
/// Number added to scores of tokens that do not meet.
const HIDDEN: f32 = -1e9;
/// Base of the digits with which the cache stores the index of a bucket. In bf16, all integers up
/// to 256 are exact.
const DIGIT: u64 = 256;

#[derive(Debug)]
pub(super) struct Reformer {
    heads: usize,
    causal: bool,
    chunks: Chunks,
    rotations: Rotations,
    dropout: f64,
    site: u64,
}

impl Reformer {
    pub(super) fn new(site: &Site<'_>) -> Self {
        let config = site.config.attention(site.causal);
        let (shape, key) = (site.config.attention_shape(), name_key(site.name));
        let heads = shape.heads;
        let hashes = (config.hash_rounds, config.hash_buckets);
        Self {
            heads,
            causal: site.causal,
            chunks: Chunks::new(site.causal, config.hash_chunk),
            rotations: Rotations::drawn(
                (heads, shape.head_width),
                hashes,
                mix(config.seed, &[key]),
            ),
            dropout: site.config.attention_dropout,
            site: key,
        }
    }

    #[cfg(test)]
    pub(super) fn given(causal: bool, chunks: Chunks, rotations: Rotations) -> Self {
        Self { heads: rotations.heads, causal, chunks, rotations, dropout: 0.0, site: 0 }
    }

    /// Attends within whole sequences. `qv (N, 2·D)` has the queries and values of N tokens, and
    /// the result is `(N, D)`.
    pub(super) fn run(&self, qv: &Tensor, lengths: &[usize], dropout: Dropout) -> Result<Tensor> {
        let (tokens, width) = qv.dims2()?;
        let value = qv.narrow(1, width / 2, width / 2)?.contiguous()?;
        let value = value.reshape((tokens * self.heads, width / 2 / self.heads))?;
        let out = self.weigh(qv, &value, lengths, dropout)?; // (N·H, Dh)
        out.reshape((tokens, width / 2))
    }

    /// Attends from each head of each token to the rows of `value (N·H, W)`, and returns
    /// `(N·H, W)`. In the shapes, N is the number of tokens, H the number of heads, Dh the width of
    /// a head, W the width of a value, K the number of chunks, and C the number of places in a
    /// chunk.
    fn weigh(
        &self,
        qv: &Tensor,
        value: &Tensor,
        lengths: &[usize],
        dropout: Dropout,
    ) -> Result<Tensor> {
        let (tokens, width) = qv.dims2()?;
        let (rows, head) = (tokens * self.heads, width / 2 / self.heads);
        if tokens == 0 {
            return Ok(value.clone());
        }
        let query = qv.narrow(1, 0, width / 2)?.contiguous()?.reshape((rows, head))?;
        let buckets = self.rotations.buckets_of_rows(qv)?;
        let plan = Plan::new(&buckets, lengths, &self.rotations, (self.chunks, self.causal));
        let size = plan.size;
        let count = plan.queries.len() / size;
        let device = qv.device();
        let gathered = |x: &Tensor, index: &[u32], per: usize| {
            let zero = Tensor::zeros((1, x.dim(1)?), x.dtype(), x.device())?;
            let index = Tensor::from_slice(index, index.len(), device)?;
            let selected = Tensor::cat(&[x, &zero], 0)?.index_select(&index, 0)?;
            selected.reshape((count, per, x.dim(1)?))
        };
        let queries = gathered(&query, &plan.queries, size)?; // (K, C, Dh)
        let keys = gathered(&normalised(&query)?, &plan.keys, 2 * size)?; // (K, 2·C, Dh)
        let values = gathered(value, &plan.keys, 2 * size)?; // (K, 2·C, W)
        let mask = Tensor::from_vec(plan.mask, (count, size, 2 * size), device)?;
        // Scores narrower than f32 are converted to f32, because f16 would turn the numbers of the
        // mask into infinities.
        let scores = wide(&queries.times(&keys.transpose(1, 2)?.contiguous()?)?)?;
        let scores = (&scores + mask.to_dtype(scores.dtype())?)?;
        let largest = scores.max_keepdim(D::Minus1)?.detach();
        let weights = scores.broadcast_sub(&largest)?.exp()?;
        let sums = weights.sum_keepdim(D::Minus1)?; // (K, C, 1)
        let weights = composed::drop(&weights.broadcast_div(&sums)?, dropout)?;
        let weights = weights.to_dtype(values.dtype())?;
        let out = weights.times(&values)?.reshape((count * size, ()))?;
        let logits = (sums.log()? + largest)?.reshape((count * size, 1))?;
        let rounds = self.rotations.rounds;
        let places = Tensor::from_vec(plan.places, rounds * rows, device)?;
        let in_rounds = |x: &Tensor| {
            x.index_select(&places, 0)?.reshape((rounds, rows, x.dim(1)?)) // (rounds, N·H, ·)
        };
        weighed(&in_rounds(&out)?, &in_rounds(&logits)?)
    }
}

/// Combines the results of several rounds, `(rounds, …, W)`, by the softmax of their
/// `logits (rounds, …, 1)`.
fn weighed(out: &Tensor, logits: &Tensor) -> Result<Tensor> {
    if out.dim(0)? == 1 {
        return out.squeeze(0);
    }
    let shares = logits.broadcast_sub(&logits.max_keepdim(0)?.detach())?.exp()?;
    let shares = shares.broadcast_div(&shares.sum_keepdim(0)?)?;
    out.broadcast_mul(&shares.to_dtype(out.dtype())?)?.sum(0)
}

/// Normalises rows: `x / ‖x‖`. As in the authors' implementation, a millionth is added to the mean
/// square.
fn normalised(x: &Tensor) -> Result<Tensor> {
    let width = x.dim(D::Minus1)? as f64;
    let mean = wide(x)?.sqr()?.mean_keepdim(D::Minus1)?;
    let length = ((mean + 1e-6)?.sqrt()? * width.sqrt())?;
    x.broadcast_div(&length.to_dtype(x.dtype())?)
}

impl Mechanism for Reformer {
    fn attend(&self, qv: &Tensor, within: Within<'_>) -> Result<Tensor> {
        let Within { lengths, pass, .. } = within;
        composed::on_tape(pass.tape(), "hashed attention", &[qv], |inputs| {
            self.run(&inputs[0], lengths, pass.dropout(self.dropout, self.site))
        })
    }

    fn flops(&self, width: usize, length: usize) -> f64 {
        let chunks = self.expected_chunks(length);
        let rotated = length as f64 * self.rotations.count() as f64;
        flops(width / self.heads, self.chunks.size(), (rotated, chunks))
    }

    /// Returns the cost per token if all buckets have equal probability.
    fn cost(&self, width: usize) -> PartCost {
        let Rotations { rounds, buckets, .. } = self.rotations;
        let (size, drops) = (self.chunks.size(), self.dropout > 0.0);
        let buckets_cut = if self.causal { buckets } else { 1 };
        let all = rounds as f64 * self.heads as f64 * buckets_cut as f64;
        PartCost::per_token(|length| {
            let chunks = all * self.chunks.expected(length, &[1.0 / buckets_cut as f64]);
            let rotated = width as f64 * (length * rounds * (buckets / 2)) as f64;
            let flops = flops(width / self.heads, size, (rotated, chunks));
            (flops, kept((width, self.heads), (rounds, size), drops, (length, chunks)))
        })
    }

    fn kept(&self, width: usize, length: usize) -> f64 {
        let chunks = self.expected_chunks(length);
        let hashes = (self.rotations.rounds, self.chunks.size());
        kept((width, self.heads), hashes, self.dropout > 0.0, (length, chunks))
    }

    /// Computes the weights by running the mechanism on one-hot values: the value of a token is 1
    /// at the index of the token in its sequence, and 0 elsewhere.
    fn weights(&self, qv: &Tensor, within: Within<'_>) -> Result<Tensor> {
        let Within { lengths, .. } = within;
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let one = |at: usize| (0..longest).map(move |column| f32::from(column == at));
        let ones = lengths.iter().flat_map(|&length| {
            (0..length).flat_map(move |at| (0..self.heads).flat_map(move |_| one(at)))
        });
        let rows = qv.dim(0)? * self.heads;
        let ones = Tensor::from_vec(ones.collect::<Vec<f32>>(), (rows, longest), qv.device())?;
        let ones = ones.to_dtype(qv.dtype())?;
        let out = self.weigh(qv, &ones, lengths, Dropout::none())?; // (N·H, T)
        let padded = composed::pad(&out.reshape((qv.dim(0)?, self.heads * longest))?, lengths)?;
        padded.reshape((lengths.len(), longest, self.heads, longest))?.transpose(1, 2)?.contiguous()
    }

    /// Attends from one new token of each row (a text that is decoded). For each earlier token, the
    /// cache has its query, its value, and the buckets of its query.
    fn step(&self, qv: &Tensor, past: &mut LayerPast, rows: &PastRows<'_>) -> Result<Tensor> {
        past.cache.add_step(self.with_buckets(qv)?)?;
        let (count, width) = qv.dims2()?;
        let (heads, head) = (self.heads, width / 2 / self.heads);
        let (rounds, size) = (self.rotations.rounds, self.chunks.size());
        let Some(cached_rows) = past.cache.kept() else {
            candle_core::bail!("a step has no token")
        };
        let cached = cached_rows.joined()?;
        let all = &cached.rows;
        let hashes = all.narrow(1, width, all.dim(1)? - width)?.to_device(&Device::Cpu)?;
        let hashes = hashes.to_dtype(DType::F32)?.to_vec2::<f32>()?;
        let of_row = |row| cached.visible_to(row, rows.read, rows.history);
        let tokens = (0..count).map(|row| of_row(row).map(|token| token as usize).collect());
        let (keys, mask) = self.met(tokens, &hashes)?;
        let groups = count * heads * rounds;
        let device = qv.device();
        let index = Tensor::from_vec(keys, groups * 2 * size, device)?;
        let part = |first: usize| {
            let part = all.narrow(1, first, width / 2)?.contiguous()?.reshape(((), head))?;
            let zero = Tensor::zeros((1, head), part.dtype(), device)?;
            Tensor::cat(&[part, zero], 0)
        };
        let keys = normalised(&part(0)?)?.index_select(&index, 0)?;
        let keys = keys.reshape((groups, 2 * size, head))?;
        let values = part(width / 2)?.index_select(&index, 0)?.reshape((groups, 2 * size, head))?;
        let query = qv.narrow(1, 0, width / 2)?.contiguous()?.reshape((count * heads, 1, head))?;
        let query = query.broadcast_as((count * heads, rounds, head))?.contiguous()?;
        let query = query.reshape((groups, 1, head))?.to_dtype(keys.dtype())?;
        let scores = wide(&query.times(&keys.transpose(1, 2)?.contiguous()?)?)?;
        let mask = Tensor::from_vec(mask, (groups, 1, 2 * size), device)?;
        let scores = (&scores + mask.to_dtype(scores.dtype())?)?;
        let largest = scores.max_keepdim(D::Minus1)?;
        let weights = scores.broadcast_sub(&largest)?.exp()?;
        let sums = weights.sum_keepdim(D::Minus1)?;
        let weights = weights.broadcast_div(&sums)?.to_dtype(values.dtype())?;
        let out = weights.times(&values)?; // (R·H·rounds, 1, Dh)
        let in_rounds = |x: Tensor, w: usize| {
            x.reshape((count * heads, rounds, w))?.transpose(0, 1)?.contiguous()
        };
        let logits = in_rounds((sums.log()? + largest)?, 1)?;
        let out = weighed(&in_rounds(out, head)?, &logits)?; // (R·H, Dh)
        out.reshape((count, width / 2))?.to_dtype(qv.dtype())
    }

    fn read(&self, qv: &Tensor, past: &mut LayerPast, texts: &Texts<'_>) -> Result<Tensor> {
        past.cache.add_text(self.with_buckets(qv)?)?;
        self.run(qv, texts.lengths, Dropout::none())
    }
}

impl Reformer {
    /// Expected number of chunks in all heads and rounds, for a sequence of `length` tokens whose
    /// queries are normally distributed.
    fn expected_chunks(&self, length: usize) -> f64 {
        let shares = self.rotations.shares();
        shares.iter().map(|shares| self.chunks.expected(length, shares)).sum()
    }

    /// Number of digits with which the cache stores the index of a bucket; see [`DIGIT`].
    fn digits(&self) -> usize {
        (1..).find(|&digits| DIGIT.pow(digits) >= self.rotations.buckets as u64).unwrap_or(1)
            as usize
    }

    /// Finds the keys that the last token of each row (a text that is decoded) meets, in each head
    /// and round. `tokens` has the indices of each row's tokens, and `buckets` has the digits of
    /// the buckets of all tokens. There are two results, which have values for each row, head and
    /// round: the indices of 2·C keys, where C is the size of a chunk, and the numbers that are
    /// added to the scores of these keys. If there are fewer keys, an index after the last key
    /// fills the empty places.
    ///
    /// # Shapes
    /// R rows, `buckets (M, H·rounds·digits)` of M tokens and H heads → both results
    /// `(R, H, rounds, 2·C)`.
    fn met(
        &self,
        tokens: impl Iterator<Item = Vec<usize>>,
        buckets: &[Vec<f32>],
    ) -> Result<(Vec<u32>, Vec<f32>)> {
        let (heads, rounds, size) = (self.heads, self.rotations.rounds, self.chunks.size());
        let (empty, digits) = ((buckets.len() * heads) as u32, self.digits());
        let (mut keys, mut mask) = (Vec::new(), Vec::new());
        for tokens in tokens {
            let Some((&query_token, _)) = tokens.split_last() else {
                candle_core::bail!("a row has no token of its own");
            };
            for (head, round) in (0..heads).flat_map(|h| (0..rounds).map(move |r| (h, r))) {
                let start = (head * rounds + round) * digits;
                let bucket = |token: usize| &buckets[token][start..start + digits];
                let same: Vec<usize> =
                    tokens.iter().copied().filter(|&t| bucket(t) == bucket(query_token)).collect();
                // The first chunk that the token meets is the one before its own.
                let first = ((same.len() - 1) / size).saturating_sub(1) * size;
                for place in 0..2 * size {
                    let key = same.get(first + place);
                    keys.push(key.map_or(empty, |&token| (token * heads + head) as u32));
                    mask.push(match key {
                        Some(&token) if token == query_token => ITSELF,
                        Some(_) => 0.0,
                        None => HIDDEN,
                    });
                }
            }
        }
        Ok((keys, mask))
    }

    /// Appends the digits of the buckets of each row's query to the row: `(N, 2·D)` →
    /// `(N, 2·D + H·rounds·digits)`. Digits are exact in every type, whereas the index of a bucket
    /// can be too large to be exact.
    fn with_buckets(&self, qv: &Tensor) -> Result<Tensor> {
        let (rows, digits) = (self.rotations.buckets_of_rows(qv)?, self.digits());
        let (count, width) = (rows.len(), self.heads * self.rotations.rounds * digits);
        let of_bucket = |bucket: u32| {
            (0..digits as u32).map(move |at| (u64::from(bucket) / DIGIT.pow(at) % DIGIT) as f32)
        };
        let buckets: Vec<f32> = rows.into_iter().flatten().flat_map(of_bucket).collect();
        let buckets = Tensor::from_vec(buckets, (count, width), qv.device())?;
        Tensor::cat(&[&qv.contiguous()?, &buckets.to_dtype(qv.dtype())?], 1)
    }
}
