//! Hierarchical attention, composed of Candle's operations, on chunks of padded sequences. A query
//! sees the tokens of its own chunk, but only summaries (means) of the other chunks.

use crate::composed::attention::{HIDDEN, pad, unpad};
use crate::composed::drop;
use crate::composed::{CountedProduct, wide};
use crate::spec::attention::kinds::{HierarchicalSpec, Hierarchy};
use candle_core::{D, Result, Tensor};

/// Padded sequences, divided into `n` chunks of `C` tokens each. These are the chunks of level 1;
/// see [`HierarchicalSpec`] for chunks of higher levels.
struct Chunks {
    /// Query, key and value, `(B, H, n, C, Dh)` each.
    query: Tensor,
    key: Tensor,
    value: Tensor,
}

/// Computes hierarchical attention; see [`crate::hierarchical_attention`].
///
/// # Shapes
/// The shapes of [`crate::hierarchical_attention`].
///
/// # Errors
/// If the shapes disagree.
pub fn hierarchical_attention(qkv: &Tensor, spec: &HierarchicalSpec) -> Result<Tensor> {
    spec.check(qkv)?;
    let hierarchy = spec.hierarchy();
    let chunks = Chunks::new(qkv, spec, &hierarchy)?;
    let weights = drop(&chunks.weights(spec, &hierarchy)?, spec.dropout)?;
    let (batch, heads, count, chunk, head) = chunks.value.dims5()?;
    let groups = batch * heads * count;
    let of_own = weights
        .narrow(4, 0, chunk)?
        .contiguous()?
        .reshape((groups, chunk, chunk))?
        .times(&chunks.value.reshape((groups, chunk, head))?)?;
    let mut out = of_own.reshape((batch * heads, count * chunk, head))?;
    let means = means(&chunks.value, &spec.lengths, &hierarchy)?;
    for (level, means) in (1..).zip(&means) {
        let places = if level < hierarchy.levels { chunk } else { hierarchy.last };
        let weights = weights.narrow(4, level * chunk, places)?.contiguous()?;
        let of_level = if level < hierarchy.levels {
            let siblings = siblings(means, level, count, &hierarchy)?;
            weights.reshape((groups, chunk, chunk))?.times(&siblings)?
        } else {
            let means = means.reshape((batch * heads, places, head))?;
            weights.reshape((batch * heads, count * chunk, places))?.times(&means)?
        };
        out = (out + of_level.reshape((batch * heads, count * chunk, head))?)?;
    }
    let out = out
        .reshape((batch, heads, count * chunk, head))?
        .transpose(1, 2)?
        .contiguous()?
        .reshape((batch * count * chunk, heads * head))?;
    unpad(&out, &spec.lengths, count * chunk)?.to_dtype(qkv.dtype())
}

/// Computes the weight of each token for each query. The weight of a chunk's summary is divided
/// evenly among the tokens of the chunk.
///
/// # Shapes
/// The inputs of [`crate::hierarchical_attention`] → `(B, H, T, T)`, each sequence padded to the
/// longest.
///
/// # Errors
/// If the shapes disagree.
pub fn hierarchical_attention_weights(qkv: &Tensor, spec: &HierarchicalSpec) -> Result<Tensor> {
    spec.check(qkv)?;
    let hierarchy = spec.hierarchy();
    let chunks = Chunks::new(qkv, spec, &hierarchy)?;
    let weights = chunks.weights(spec, &hierarchy)?; // (B, H, n, C, P)
    let (batch, heads, count, chunk, _) = chunks.query.dims5()?;
    let (all, longest) = (count * chunk, spec.lengths.iter().copied().max().unwrap_or(0));
    // For each place (column of the scores), the share of its weight that each token gets. The
    // place of a token gives all of its weight to the token. The place of a summary gives an equal
    // share to each token of the chunk.
    let mut shares = vec![0.0_f64; batch * count * hierarchy.places() * all];
    for (row, &length) in spec.lengths.iter().enumerate() {
        let counts = hierarchy.counts(length);
        for own in 0..length.div_ceil(chunk) {
            let first = (row * count + own) * hierarchy.places();
            let mut share = |place: usize, tokens: std::ops::Range<usize>| {
                let part = 1.0 / tokens.len() as f64;
                tokens.for_each(|token| shares[(first + place) * all + token] = part);
            };
            (own * chunk..length.min((own + 1) * chunk))
                .for_each(|token| share(token - own * chunk, token..token + 1));
            for (level, among, place) in hierarchy.seen(own, &counts) {
                for (place, index) in (place..).zip(among) {
                    let tokens = hierarchy.tokens(level, index, length);
                    let begin = (0..level).fold(index, |begin, _| begin * chunk);
                    share(place, begin..begin + tokens);
                }
            }
        }
    }
    let shares =
        Tensor::from_vec(shares, (batch, 1, count, hierarchy.places(), all), qkv.device())?;
    let shares = shares.to_dtype(weights.dtype())?;
    let shares = shares.broadcast_as((batch, heads, count, hierarchy.places(), all))?;
    let groups = batch * heads * count;
    let shares = shares.contiguous()?.reshape((groups, hierarchy.places(), all))?;
    let weights = weights.reshape((groups, chunk, hierarchy.places()))?.times(&shares)?;
    let weights = weights.reshape((batch, heads, all, all))?;
    weights.narrow(2, 0, longest)?.narrow(3, 0, longest)?.contiguous()
}

/// Attends from a single query in each of B sequences: the query of the last token.
///
/// # Shapes
/// `query (B, D)`; `key_value (B, T, 2·D)`, with key and value of all tokens side by side, and
/// zeros after the last token → `(B, D)`.
///
/// # Errors
/// If the shapes disagree.
pub fn hierarchical_attention_step(
    query: &Tensor,
    key_value: &Tensor,
    spec: &HierarchicalSpec,
) -> Result<Tensor> {
    let (batch, longest, width) = key_value.dims3()?;
    let (heads, head, hierarchy) = (spec.heads, width / 2 / spec.heads, spec.hierarchy());
    let chunk = hierarchy.chunk;
    let count = longest.div_ceil(chunk);
    let padded = wide(key_value)?.pad_with_zeros(1, 0, count * chunk - longest)?;
    let all = count * chunk;
    let with_means = |index: usize| {
        let same_chunk = padded
            .narrow(2, index * heads * head, heads * head)?
            .reshape((batch, all, heads, head))?
            .transpose(1, 2)?
            .contiguous()?; // (B, H, n·C, Dh)
        let chunks = same_chunk.reshape((batch, heads, count, chunk, head))?;
        let mut parts = vec![same_chunk];
        parts.extend(means(&chunks, &spec.lengths, &hierarchy)?);
        Tensor::cat(&parts, 2)
    };
    let query = wide(query)?.reshape((batch, heads, 1, head))?;
    let query = (query * (head as f64).powf(-0.5))?;
    let scores = query.times(&with_means(0)?.transpose(2, 3)?.contiguous()?)?;
    let keys = scores.dim(D::Minus1)?;
    let mut mask = Vec::with_capacity(batch * keys);
    for &length in spec.lengths.iter() {
        let last_chunk = length.saturating_sub(1) / chunk;
        let of_sequence = mask.len();
        mask.extend(
            (0..all).map(|j| if j / chunk == last_chunk && j < length { 0.0 } else { HIDDEN }),
        );
        let counts = hierarchy.counts(length);
        let mut first = mask.len();
        mask.resize(of_sequence + keys, HIDDEN);
        let mut levels = Vec::new();
        let mut in_level = count;
        for _ in 0..hierarchy.levels {
            levels.push(first);
            first += in_level;
            in_level = in_level.div_ceil(chunk);
        }
        for (level, among, _) in hierarchy.seen(last_chunk, &counts) {
            for index in among {
                let tokens = hierarchy.tokens(level, index, length);
                mask[levels[level - 1] + index] = (tokens as f64).ln();
            }
        }
    }
    let mask = Tensor::from_vec(mask, (batch, 1, 1, keys), query.device())?;
    let weights = softmax(&scores.broadcast_add(&mask.to_dtype(scores.dtype())?)?)?;
    weights.times(&with_means(1)?)?.reshape((batch, heads * head))
}

impl Chunks {
    /// Splits queries, keys and values, `(N, 3·D)`, into chunks, in f32 or wider.
    fn new(qkv: &Tensor, spec: &HierarchicalSpec, hierarchy: &Hierarchy) -> Result<Self> {
        let padded = wide(&pad(qkv, &spec.lengths)?)?; // (B, T, 3·D)
        let (batch, longest, width) = padded.dims3()?;
        let (heads, chunk) = (spec.heads, hierarchy.chunk);
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
        Ok(Self { query: part(0)?, key: part(1)?, value: part(2)? })
    }

    /// Computes the attention weights of each query, one for each of P places: the tokens of its
    /// chunk, then the summaries of each level. The shape is `(B, H, n, C, P)`.
    fn weights(&self, spec: &HierarchicalSpec, hierarchy: &Hierarchy) -> Result<Tensor> {
        let (batch, heads, count, chunk, head) = self.query.dims5()?;
        let scale = (head as f64).powf(-0.5);
        let groups = batch * heads * count;
        let query = (&self.query * scale)?;
        let key = self.key.reshape((groups, chunk, head))?.transpose(1, 2)?.contiguous()?;
        let same_chunk = query.reshape((groups, chunk, head))?.times(&key)?;
        let mut scores = vec![same_chunk.reshape((batch, heads, count, chunk, chunk))?];
        for (level, means) in (1..).zip(&means(&self.key, &spec.lengths, hierarchy)?) {
            let (of_level, places) = if level < hierarchy.levels {
                let keys = siblings(means, level, count, hierarchy)?;
                let keys = keys.transpose(1, 2)?.contiguous()?;
                (query.reshape((groups, chunk, head))?.times(&keys)?, chunk)
            } else {
                let means = means.reshape((batch * heads, hierarchy.last, head))?;
                let keys = means.transpose(1, 2)?.contiguous()?;
                let query = query.reshape((batch * heads, count * chunk, head))?;
                (query.times(&keys)?, hierarchy.last)
            };
            scores.push(of_level.reshape((batch, heads, count, chunk, places))?);
        }
        let scores = Tensor::cat(&scores, 4)?;
        let places = hierarchy.places();
        let mut mask = vec![HIDDEN; batch * count * chunk * places];
        for (row, &length) in spec.lengths.iter().enumerate() {
            let counts = hierarchy.counts(length);
            for index in 0..length.div_ceil(chunk) {
                let first = (row * count + index) * chunk;
                let tokens = (length - index * chunk).min(chunk);
                for (i, mask) in mask[first * places..(first + chunk) * places]
                    .chunks_exact_mut(places)
                    .enumerate()
                {
                    let seen = if spec.causal { tokens.min(i + 1) } else { tokens };
                    mask[..seen].fill(0.0);
                    for (level, among, place) in hierarchy.seen(index, &counts) {
                        for (place, index) in (place..).zip(among) {
                            mask[place] = (hierarchy.tokens(level, index, length) as f64).ln();
                        }
                    }
                }
            }
        }
        let mask = Tensor::from_vec(mask, (batch, 1, count, chunk, places), scores.device())?;
        softmax(&scores.broadcast_add(&mask.to_dtype(scores.dtype())?)?)
    }
}

/// Computes the means of the chunks of each level: `x (B, H, n, C, Dh)`, zero after the end of a
/// sequence → for each level, `(B, H, m, Dh)`, where m is the level's number of chunks.
fn means(x: &Tensor, lengths: &[usize], hierarchy: &Hierarchy) -> Result<Vec<Tensor>> {
    let (batch, heads, _, chunk, head) = x.dims5()?;
    let mut sums = x.sum(3)?;
    let mut means = Vec::new();
    for level in 1..=hierarchy.levels {
        let count = sums.dim(2)?;
        let share = |length: usize, index: usize| {
            1.0 / hierarchy.tokens(level, index, length).max(1) as f64
        };
        let shares = lengths.iter().flat_map(|&length| (0..count).map(move |i| share(length, i)));
        let shares = Tensor::from_vec(shares.collect(), (batch, 1, count, 1), x.device())?;
        means.push(sums.broadcast_mul(&shares.to_dtype(x.dtype())?)?);
        if level < hierarchy.levels {
            let above = count.div_ceil(chunk);
            let padded = sums.pad_with_zeros(2, 0, above * chunk - count)?;
            sums = padded.reshape((batch, heads, above, chunk, head))?.sum(3)?;
        }
    }
    Ok(means)
}

/// Gathers, for each of the `count` chunks of level 1, the means of its neighbours at `level`: the
/// chunks that lie in the same chunk of the next level. `(B, H, m, Dh)` → `(B·H·n, C, Dh)`. If
/// there are fewer than C neighbours, the last mean is repeated.
fn siblings(means: &Tensor, level: usize, count: usize, hierarchy: &Hierarchy) -> Result<Tensor> {
    let (batch, heads, last, head) = means.dims4()?;
    let chunk = hierarchy.chunk;
    let of_chunk = |own: usize| {
        let above = (0..level).fold(own, |own, _| own / chunk);
        (0..chunk).map(move |i| (above * chunk + i).min(last - 1) as u32)
    };
    let index: Vec<u32> = (0..count).flat_map(of_chunk).collect();
    let index = Tensor::from_vec(index, count * chunk, means.device())?;
    means.index_select(&index, 2)?.reshape((batch * heads * count, chunk, head))
}

/// Computes the softmax over the last dimension.
fn softmax(scores: &Tensor) -> Result<Tensor> {
    let largest = scores.detach().max_keepdim(D::Minus1)?;
    let weights = scores.broadcast_sub(&largest)?.exp()?;
    weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)
}
