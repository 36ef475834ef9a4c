//! Attention of a Transformer-XL (Dai et al. 2019, sections 3.2 and 3.3), written with Candle's own
//! operations. A text is cut into segments. The tokens of a segment see their own segment and a
//! memory of earlier tokens, with relative positions.
//!
//! ```text
//! A_ij = ((q_i + u)·k_j + (q_i + v)·(W_R R_{i-j})) / √d
//! ```
//!
//! Here A_ij is the score of query i with key j, where j is one of the tokens `j ≤ i` of the
//! segment or of the `memory` tokens before the segment. `R_{i-j}` is the sinusoidal encoding of
//! the distance i − j, with all sines before all cosines. `W_R`, `u` and `v` are trained, for each
//! layer. With `same_length`, each token sees `memory` tokens, itself included. Distances beyond
//! `clamp_distance` count as `clamp_distance`. These two settings are for evaluation with a longer
//! memory than in training (section 4.1, and the authors' `--same_length` and `--clamp_len`).
//!
//! **Decision.** A segment is a part of a sequence. Its memory is the output of the layer below for
//! the tokens before the segment, computed within the same pass, and no gradient flows through it.
//! So all segments of a sequence go through a layer at once. The context of a token reaches back by
//! one memory per layer, as in the paper. The alternative is to keep states from one update to the
//! next. To resume a training, these states would then be needed too, besides weights, the
//! optimizer's moments and the position in the data: they cannot be computed again, since the
//! weights that made them are gone.

use super::rows::{padded_rows, wide};
use crate::config::SinusoidFrequencies;
use crate::cost::PartCost;
use crate::layers::attention::{LayerPast, Mechanism, PastRows, Site, Texts, Within};
use crate::layers::positions::sinusoids;
use crate::layers::weight::Weight;
use crate::{Builder, Pass};
use candle_core::{D, Result, Tensor};
use taper_ops::composed::CountedProduct;
use taper_ops::rng::name_key;
use taper_ops::{Dropout, composed};

/// Number added to the scores of keys that a query must not see.
const HIDDEN: f64 = -3.0e4;

#[derive(Debug)]
pub(super) struct TransformerXl {
    segments: Segments,
    /// `W_R (D, D)`, `u (H, Dh)` and `v (H, Dh)`, for H heads of the width Dh. D is the width of
    /// all heads together.
    weights: [Weight; 3],
    dropout: f64,
    site: u64,
}

/// Settings of the computation, without its parameters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segments {
    pub(super) heads: usize,
    /// Number of tokens in a segment.
    pub(super) segment: usize,
    pub(super) memory: usize,
    /// True if each token sees `memory` tokens, itself included.
    pub(super) same_length: bool,
    /// The largest distance; 0 for no bound.
    pub(super) clamp: usize,
}

/// Weights and values of B padded sequences, each cut into n segments of C tokens, with a memory of
/// M tokens, for H heads of the width Dh.
struct Attended {
    /// `(B, H, n, C, M + C)`; the keys of the memory come first.
    weights: Tensor,
    /// `(B, H, n, M + C, Dh)`; the values of the memory come first.
    values: Tensor,
}

impl Segments {
    fn new(site: &Site<'_>) -> Self {
        let config = site.config.attention(site.causal);
        Self {
            heads: site.config.heads,
            segment: config.segment,
            memory: config.memory,
            same_length: config.same_length,
            clamp: config.clamp_distance,
        }
    }

    /// Divides a sequence of this length into segments. Returns the number of tokens in a segment,
    /// the number of segments, and the number of tokens in the memory.
    fn cut(self, length: usize) -> (usize, usize, usize) {
        let segment = self.segment.min(length.max(1));
        let count = length.div_ceil(segment);
        (segment, count, self.memory.min(count.saturating_sub(1) * segment))
    }

    /// Number of floating-point operations for a sequence padded to whole segments: scores by
    /// content and by distance, the weighted sums, and the projection of each distance.
    fn flops(self, width: usize, length: usize) -> f64 {
        let (segment, count, memory) = self.cut(length);
        let (visible, d) = ((segment + memory) as f64, width as f64);
        6.0 * (d * (count * segment) as f64) * visible + 2.0 * visible * (d * d)
    }

    /// Number of scalars kept for the backward pass of a sequence padded to whole segments.
    ///
    /// - For each token: queries, keys and values (padded, and again split into segments); the
    ///   result; the copies of keys and values in the memory.
    /// - For each token, visible key and head: scores by content and by distance; the results of
    ///   softmax and of dropout.
    /// - For each token and visible key, for all heads together: a mask.
    /// - For each distance: its projection.
    fn kept(self, width: usize, drops: bool, length: usize) -> f64 {
        let (segment, count, memory) = self.cut(length);
        let padded = count * segment;
        let (visible, scores) = ((memory + segment) as f64, if drops { 12.0 } else { 10.0 });
        let (d, h) = (width as f64, self.heads as f64);
        let of_rows = if memory > 0 { 25.0 } else { 21.0 } * d + 4.0 * h;
        let of_token = of_rows + visible * (scores * h + 1.0);
        let of_memory = (7 * count + 4) as f64 * memory as f64 * d;
        let added = if padded > length { 3.0 * d * (2 * padded - length) as f64 } else { 0.0 };
        padded as f64 * of_token + of_memory + 5.0 * visible * d + added
    }

    /// Computes the attention weights, and gathers the values to which they belong. The columns of
    /// `qkv (N, 5·D)` are query, key and value, and then the key and value that the next segment
    /// sees as memory. If the next segment sees the same key and value, `qkv` is only `(N, 3·D)`.
    /// `parameters` are `W_R`, `u` and `v`.
    fn attended(
        self,
        qkv: &Tensor,
        parameters: [&Tensor; 3],
        lengths: &[usize],
    ) -> Result<Attended> {
        let width = parameters[0].dim(0)?;
        let padded = wide(&composed::pad(qkv, lengths)?)?;
        let (batch, longest, columns) = padded.dims3()?;
        let (heads, head) = (self.heads, width / self.heads);
        let (segment, count, memory) = self.cut(longest);
        let padded = padded.pad_with_zeros(1, 0, count * segment - longest)?;
        let segments = |part: usize| {
            padded
                .narrow(2, part * width, width)?
                .reshape((batch, count, segment, heads, head))?
                .permute((0, 3, 1, 2, 4))?
                .contiguous() // (B, H, n, C, Dh)
        };
        // For each segment, the positions of the tokens of its memory.
        let before: Vec<u32> = (0..count)
            .flat_map(|i| i * segment..i * segment + memory)
            .map(|place| place as u32)
            .collect();
        let before = Tensor::from_vec(before, count * memory, padded.device())?;
        let with_memory = |part: usize| -> Result<Tensor> {
            let segments = segments(part)?;
            if memory == 0 {
                return Ok(segments);
            }
            let part = if columns == 5 * width { part + 2 } else { part };
            let remembered = padded
                .narrow(2, part * width, width)?
                .pad_with_zeros(1, memory, 0)?
                .contiguous()?
                .index_select(&before, 1)?
                .reshape((batch, count, memory, heads, head))?
                .permute((0, 3, 1, 2, 4))?;
            Tensor::cat(&[remembered.contiguous()?, segments], 3)
        };
        let (query, keys, values) = (segments(0)?, with_memory(1)?, with_memory(2)?);
        let visible = memory + segment;
        let [u, v] = [parameters[1], parameters[2]].map(|bias| {
            query.broadcast_add(&bias.to_dtype(query.dtype())?.reshape((1, heads, 1, 1, head))?)
        });
        let groups = batch * heads * count;
        let by_content = u?
            .reshape((groups, segment, head))?
            .times(&keys.reshape((groups, visible, head))?.transpose(1, 2)?.contiguous()?)?
            .reshape((batch, heads, count, segment, visible))?;
        let by_distance = self.by_distance(&v?, parameters[0], visible)?;
        let scores = ((by_content + by_distance)? * (head as f64).powf(-0.5))?;
        let mask = self.mask(lengths, longest);
        let mask = Tensor::from_vec(mask, (batch, 1, count, segment, visible), scores.device())?;
        let scores = scores.broadcast_add(&mask.to_dtype(scores.dtype())?)?;
        Ok(Attended { weights: softmax(&scores)?, values })
    }

    /// Computes the scores by distance, `(q + v)·(W_R R)`, of `queries` with the `visible` keys of
    /// their segment: those of the memory, and those of the segment itself.
    ///
    /// # Shapes
    /// `queries (B, H, n, C, Dh)` as in [`Attended`], `matrix (D, D)` → `(B, H, n, C, visible)`.
    fn by_distance(self, queries: &Tensor, matrix: &Tensor, visible: usize) -> Result<Tensor> {
        let (batch, heads, count, segment, head) = queries.dims5()?;
        // In the product, column `c` has the score for the distance `visible - 1 - c`. For the last
        // token of a segment, this is the distance of the key with the index `c`. For a token that
        // is `n` places before the last, it is the distance of the key with the index `c - n`.
        // Padding and reshaping therefore shift the row of this token to the left by `n` places.
        let distances = self.distances(matrix, visible, queries.dtype())?; // (H, Dh, visible)
        queries
            .transpose(0, 1)?
            .contiguous()?
            .reshape((heads, batch * count * segment, head))?
            .times(&distances)?
            .reshape((heads * batch * count, segment, visible))?
            .pad_with_zeros(2, 1, 0)?
            .reshape((heads * batch * count, visible + 1, segment))?
            .narrow(1, 1, visible)?
            .contiguous()?
            .reshape((heads, batch, count, segment, visible))?
            .transpose(0, 1)?
            .contiguous()
    }

    /// Mask `(B, 1, n, C, visible)` that is added to the scores of sequences padded to `longest`
    /// tokens. It is 0 for visible keys, and `HIDDEN` for others.
    fn mask(self, lengths: &[usize], longest: usize) -> Vec<f64> {
        let (segment, count, memory) = self.cut(longest);
        let visible = memory + segment;
        let mut mask = Vec::with_capacity(lengths.len() * count * segment * visible);
        for &length in lengths {
            for (i, query) in (0..count).flat_map(|i| (0..segment).map(move |q| (i, q))) {
                let is_seen = |key: usize| {
                    let place = i * segment + key;
                    // With `same_length`, a token sees only the last `memory` keys up to and
                    // including its own; farther ones are hidden.
                    let is_near = !self.same_length || key + self.memory > memory + query;
                    key <= memory + query && place >= memory && place < memory + length && is_near
                };
                mask.extend((0..visible).map(|key| if is_seen(key) { 0.0 } else { HIDDEN }));
            }
        }
        mask
    }

    /// Computes `W_R R` of the distances below `count`, the farthest first: `(H, Dh, count)`.
    fn distances(self, matrix: &Tensor, count: usize, dtype: candle_core::DType) -> Result<Tensor> {
        let width = matrix.dim(0)?;
        let clamp = if self.clamp == 0 { usize::MAX } else { self.clamp };
        let distances = 0..count.min(clamp.saturating_add(1));
        let codes = sinusoids(distances, width, true, SinusoidFrequencies::Paper);
        let rows: Vec<f32> = (0..count)
            .rev()
            .map(|distance| distance.min(clamp) * width)
            .flat_map(|first| codes[first..first + width].iter().copied())
            .collect();
        let rows = Tensor::from_vec(rows, (count, width), matrix.device())?.to_dtype(dtype)?;
        rows.times(&matrix.to_dtype(dtype)?.t()?)?
            .reshape((count, self.heads, width / self.heads))?
            .permute((1, 2, 0))?
            .contiguous()
    }

    /// Attends within whole sequences of N tokens in all: `(N, 3·D)` or `(N, 5·D)` → `(N, D)`.
    pub(super) fn run(
        self,
        qkv: &Tensor,
        parameters: [&Tensor; 3],
        lengths: &[usize],
        dropout: Dropout,
    ) -> Result<Tensor> {
        let Attended { weights, values } = self.attended(qkv, parameters, lengths)?;
        let (batch, heads, count, segment, visible) = weights.dims5()?;
        let (groups, head) = (batch * heads * count, values.dim(4)?);
        let out = composed::drop(&weights, dropout)?
            .reshape((groups, segment, visible))?
            .times(&values.reshape((groups, visible, head))?)?
            .reshape((batch, heads, count * segment, head))?
            .transpose(1, 2)?
            .contiguous()?
            .reshape((batch * count * segment, heads * head))?;
        composed::unpad(&out, lengths, count * segment)?.to_dtype(qkv.dtype())
    }
}

impl TransformerXl {
    pub(super) fn new(build: &mut Builder, site: &Site<'_>) -> Result<Self> {
        let (width, heads, name) = (site.config.d_model, site.config.heads, site.name);
        let mut bias = |bias: &str| {
            build.constant(&format!("{name}.{bias}_bias"), &[heads, width / heads], 0.0)
        };
        let (content, distance) = (bias("content")?, bias("distance")?);
        let matrix = build.matrix(&format!("{name}.distance.weight"), width, width, 1)?;
        Ok(Self {
            segments: Segments::new(site),
            weights: [matrix, content, distance],
            dropout: site.config.attention_dropout,
            site: name_key(name),
        })
    }

    fn given<'a>(&'a self, pass: &Pass) -> [&'a Tensor; 3] {
        self.weights.each_ref().map(|weight| weight.get(pass))
    }
}

/// Softmax over the last dimension.
fn softmax(scores: &Tensor) -> Result<Tensor> {
    let largest = scores.detach().max_keepdim(D::Minus1)?;
    let weights = scores.broadcast_sub(&largest)?.exp()?;
    weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)
}

impl Mechanism for TransformerXl {
    fn remembers(&self) -> bool {
        self.segments.memory > 0
    }

    fn attend(&self, qkv: &Tensor, within: Within<'_>) -> Result<Tensor> {
        let Within { lengths, pass, .. } = within;
        let [matrix, content, distance] = self.given(pass);
        let inputs = [qkv, matrix, content, distance];
        composed::on_tape(pass.tape(), "segments", &inputs, |inputs| {
            let parameters = [&inputs[1], &inputs[2], &inputs[3]];
            let dropout = pass.dropout(self.dropout, self.site);
            self.segments.run(&inputs[0], parameters, lengths, dropout)
        })
    }

    fn flops(&self, width: usize, length: usize) -> f64 {
        self.segments.flops(width, length)
    }

    /// Returns the cost per token. It includes the cost of the memory's keys and values, which
    /// training projects separately.
    fn cost(&self, width: usize) -> PartCost {
        let remembered = if self.remembers() { width.saturating_mul(16 + 3 * 2) } else { 0 };
        PartCost::per_token(|length| (self.flops(width, length), self.kept(width, length)))
            .keeping(remembered)
    }

    fn kept(&self, width: usize, length: usize) -> f64 {
        self.segments.kept(width, self.dropout > 0.0, length)
    }

    fn weights(&self, qkv: &Tensor, within: Within<'_>) -> Result<Tensor> {
        let Within { lengths, pass, .. } = within;
        let weights = self.segments.attended(qkv, self.given(pass), lengths)?.weights;
        let (_, _, count, segment, visible) = weights.dims5()?;
        let (memory, all) = (visible - segment, count * segment);
        let of_segment = |i: usize| {
            // There are no keys before the first token.
            let missing = memory.saturating_sub(i * segment);
            let first = (i * segment).saturating_sub(memory);
            let columns = visible - missing;
            weights.narrow(2, i, 1)?.squeeze(2)?.narrow(3, missing, columns)?.pad_with_zeros(
                3,
                first,
                all - first - columns,
            )
        };
        let joined = Tensor::cat(&(0..count).map(of_segment).collect::<Result<Vec<_>>>()?, 2)?;
        let longest = lengths.iter().copied().max().unwrap_or(0);
        joined.narrow(2, 0, longest)?.narrow(3, 0, longest)?.contiguous() // (B, H, T, T)
    }

    fn step(&self, qkv: &Tensor, past: &mut LayerPast, rows: &PastRows<'_>) -> Result<Tensor> {
        let parameters = self.weights.each_ref().map(Weight::value);
        let (count, width) = (qkv.dim(0)?, parameters[0].dim(0)?);
        past.cache.add_step(qkv.narrow(1, width, 2 * width)?.contiguous()?)?;
        let (all, mut of_rows) = past.tokens(rows, count)?;
        let Segments { heads, segment, memory, same_length, .. } = self.segments;
        for tokens in &mut of_rows {
            let before_segment = (tokens.len().saturating_sub(1) / segment) * segment;
            let seen_by_all = if same_length { tokens.len() } else { before_segment };
            tokens.drain(..seen_by_all.saturating_sub(memory));
        }
        let (longest, head) = (of_rows.iter().map(Vec::len).max().unwrap_or(0), width / heads);
        let padded = padded_rows(&wide(&all)?, &of_rows, longest, true)?; // (R, T, 2·D)
        let part = |index: usize| {
            padded
                .narrow(2, index * width, width)?
                .reshape((count, longest, heads, head))?
                .transpose(1, 2)?
                .contiguous() // (R, H, T, Dh)
        };
        let query = wide(&qkv.narrow(1, 0, width)?.contiguous()?)?;
        let query = query.reshape((count, heads, head))?;
        let [u, v] = [parameters[1], parameters[2]]
            .map(|bias| query.broadcast_add(&bias.to_dtype(query.dtype())?.unsqueeze(0)?));
        let by_content =
            u?.unsqueeze(2)?.times(&part(0)?.transpose(2, 3)?.contiguous()?)?.squeeze(2)?;
        let distances = self.segments.distances(parameters[0], longest, query.dtype())?;
        let by_distance = v?.transpose(0, 1)?.contiguous()?.times(&distances)?.transpose(0, 1)?;
        let scores = ((by_content + by_distance)? * (head as f64).powf(-0.5))?; // (R, H, T)
        let mut mask = Vec::with_capacity(count * longest);
        for tokens in &of_rows {
            let first = longest - tokens.len();
            mask.extend((0..longest).map(|key| if key < first { HIDDEN } else { 0.0 }));
        }
        let mask = Tensor::from_vec(mask, (count, 1, longest), scores.device())?;
        let weights = softmax(&scores.broadcast_add(&mask.to_dtype(scores.dtype())?)?)?;
        let out = weights.unsqueeze(2)?.times(&part(1)?)?;
        out.reshape((count, width))?.to_dtype(qkv.dtype())
    }

    fn read(&self, qkv: &Tensor, past: &mut LayerPast, texts: &Texts<'_>) -> Result<Tensor> {
        let parameters = self.weights.each_ref().map(Weight::value);
        let width = parameters[0].dim(0)?;
        past.cache.add_text(qkv.narrow(1, width, 2 * width)?.contiguous()?)?;
        self.segments.run(qkv, parameters, texts.lengths, Dropout::none())
    }
}
