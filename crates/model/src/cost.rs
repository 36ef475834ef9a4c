//! Costs of models by formula: parameters, arithmetic and memory, which are known before memory is
//! allocated.
//!
//! A [`Builder`](crate::Builder) counts costs while a model is built: parameters as they are added,
//! and the products of each linear layer. Every other part states its cost in the code that builds
//! it. The memory check, the command `inspect` and reports use the sum, and derive nothing
//! themselves.

use std::ops::{Add, Mul};

use taper_ops::keeps_scores;

/// Bytes of one f32.
const F32: f64 = 4.0;

/// At the peak of a pass, the composed operations (made of Candle's operations, as on a GPU) hold
/// this many values for each scalar that [`PartCost`] counts in `kept` or `forgotten`. Candle's
/// graph holds the result of every step of an operation and, during the backward pass, also the
/// gradients of the last steps. The number was counted with dropout and rotary positions; without
/// these two it is a third less (`trainer/tests/composed_memory.rs`).
const COMPOSED: f64 = 9.0;
/// Number of values that the composed operations hold for each attention score. These are the raw,
/// masked and shifted scores, their exponentials, the weights, the dropout mask, and the weights
/// after dropout; during the backward pass, also as many gradients as are needed at a time. The
/// fused operations, which run on the CPU and each do the work of several Candle operations, keep
/// scores of short sequences only.
const COMPOSED_SCORES: f64 = 14.0;

/// Sequence length, in tokens, for which a cost per token is computed if it depends on the length.
const USUAL_LENGTH: usize = 1024;

/// Cost of a part of a model. Numbers are in f64, which is exact for every model that fits into a
/// machine, and does not overflow for larger models.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PartCost {
    /// Number of trained scalars.
    pub(crate) parameters: f64,
    /// Number of forward operations per token: two for each weight by which the token's vector is
    /// multiplied.
    pub(crate) flops: f64,
    /// Part of `flops` that a layer spends between its projections. It is 0 for attention with a
    /// score for each pair of tokens, whose arithmetic `pair_flops` counts.
    pub(crate) mixing_flops: f64,
    /// Number of forward operations for each pair of a query and a visible key.
    pub(crate) pair_flops: f64,
    /// Scalars per token that the fused operations keep for the backward pass.
    pub(crate) kept: f64,
    /// Scalars per token that the composed operations keep, but the fused operations do not.
    pub(crate) forgotten: f64,
    /// Part of `kept` that is not kept if layers are recomputed in the backward pass.
    pub(crate) saved: f64,
    /// Scores for each pair of a query and a key: one for each head of each layer.
    pub(crate) scores: f64,
    /// Part of `scores` that belongs to attention which sees only part of its sequence.
    pub(crate) masked_scores: f64,
    /// Number of classes that the output heads predict. An output head is a layer that predicts
    /// classes, such as the tokens of a vocabulary. Their logits are not in `kept`, because they
    /// exist for only some rows at a time.
    pub(crate) classes: f64,
    /// Scalars in the matrices of the output heads.
    pub(crate) classifier: f64,
}

impl PartCost {
    /// Cost of a parameter of this shape.
    pub(crate) fn parameter(shape: &[usize]) -> Self {
        Self { parameters: shape.iter().map(|&size| size as f64).product(), ..Self::default() }
    }

    /// Cost per token of the product `x Wᵀ`, whose result is kept for the backward pass. The
    /// parameters in W are not included.
    pub(crate) fn product(inputs: usize, outputs: usize) -> Self {
        let (inputs, outputs) = (inputs as f64, outputs as f64);
        Self { flops: 2.0 * inputs * outputs, kept: outputs, ..Self::default() }
    }

    /// Cost of the scores of all heads, whose widths sum to `width`, and of the weighted sums of
    /// values. Both need a multiplication and an addition for each element.
    pub(crate) fn scores(width: usize) -> Self {
        Self { pair_flops: 4.0 * width as f64, ..Self::default() }
    }

    /// Cost of `scalars` scalars per token that are kept for the backward pass.
    pub(crate) fn kept(scalars: usize) -> Self {
        Self::default().keeping(scalars)
    }

    /// Correction of a cost: if the pass recomputes layers, `scalars` of the scalars that are
    /// counted as kept are not kept.
    pub(crate) fn saved(scalars: f64) -> Self {
        Self { saved: scalars, ..Self::default() }
    }

    /// Adds `heads` scores for each pair of a query and a key to this cost: one for each head.
    pub(crate) fn with_heads(self, heads: usize) -> Self {
        Self { scores: self.scores + heads as f64, ..self }
    }

    /// Counts all scores as scores of masked attention.
    pub(crate) fn masked(self) -> Self {
        Self { masked_scores: self.scores, ..self }
    }

    /// Cost per token of what is computed between the projections of a layer, in a sequence of
    /// [`USUAL_LENGTH`] tokens. `flops_and_kept` returns the arithmetic and the kept scalars for a
    /// sequence of a given length.
    pub(crate) fn per_token(flops_and_kept: impl Fn(usize) -> (f64, f64)) -> Self {
        let (flops, kept) = flops_and_kept(USUAL_LENGTH);
        let (flops, kept) = (flops / USUAL_LENGTH as f64, kept / USUAL_LENGTH as f64);
        Self { flops, mixing_flops: flops, kept, ..Self::default() }
    }

    /// Adds `scalars` scalars per token that are kept for the backward pass.
    pub(crate) fn keeping(self, scalars: usize) -> Self {
        Self { kept: self.kept + scalars as f64, ..self }
    }

    /// Returns this cost for a part whose fused operations keep nothing: all scalars that were
    /// counted as kept are kept only by the composed operations.
    pub(crate) fn unkept(self) -> Self {
        Self { kept: 0.0, forgotten: self.forgotten + self.kept, ..self }
    }

    /// Correction of a cost: of the scalars per token that were counted as kept, the fused
    /// operations do not keep `scalars`.
    pub(crate) fn freed(scalars: usize) -> Self {
        let scalars = scalars as f64;
        Self { kept: -scalars, forgotten: scalars, ..Self::default() }
    }

    /// Adds `scalars` scalars per token that only the composed operations keep.
    pub(crate) fn forgetting(self, scalars: usize) -> Self {
        Self { forgotten: self.forgotten + scalars as f64, ..self }
    }

    /// Returns the cost of a part that runs `times` times for each token.
    pub(crate) fn times_a_token(self, times: f64) -> Self {
        Self {
            flops: times * self.flops,
            kept: times * self.kept,
            forgotten: times * self.forgotten,
            ..self
        }
    }

    /// Returns the cost of a part that runs only once per sequence. Only its parameters count,
    /// since its other costs are negligible per token.
    pub(crate) fn once(self) -> Self {
        Self { parameters: self.parameters, ..Self::default() }
    }
}

impl Add for PartCost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            parameters: self.parameters + other.parameters,
            flops: self.flops + other.flops,
            mixing_flops: self.mixing_flops + other.mixing_flops,
            pair_flops: self.pair_flops + other.pair_flops,
            kept: self.kept + other.kept,
            forgotten: self.forgotten + other.forgotten,
            saved: self.saved + other.saved,
            scores: self.scores + other.scores,
            masked_scores: self.masked_scores + other.masked_scores,
            classes: self.classes + other.classes,
            classifier: self.classifier + other.classifier,
        }
    }
}

impl Mul<usize> for PartCost {
    type Output = Self;

    fn mul(self, times: usize) -> Self {
        let times = times as f64;
        Self {
            parameters: times * self.parameters,
            flops: times * self.flops,
            mixing_flops: times * self.mixing_flops,
            pair_flops: times * self.pair_flops,
            kept: times * self.kept,
            forgotten: times * self.forgotten,
            saved: times * self.saved,
            scores: times * self.scores,
            masked_scores: times * self.masked_scores,
            classes: times * self.classes,
            classifier: times * self.classifier,
        }
    }
}

/// Cost of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cost {
    /// Number of trained scalars.
    pub parameters: u64,
    /// Cost of one token in each stream that the model reads, in the order of the streams. A stream
    /// is one kind of input, such as the source sentences or the target sentences.
    pub streams: Vec<StreamCost>,
    /// Number of classes of the model's output heads, such as tokens of a vocabulary.
    pub classes: u64,
    /// Number of scalars in the matrices of the model's output heads.
    pub classifier: u64,
}

/// Cost of one layer of a stack, by formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerCost {
    /// Number of trained scalars.
    pub parameters: u64,
    /// Forward arithmetic of the matrix products for one token. For self-attention without pairwise
    /// scores, this includes the token's share of the arithmetic for a sequence of 1,024 tokens.
    pub forward_flops: u64,
    /// `forward_flops` without the arithmetic between the projections of self-attention or of a
    /// state-space layer.
    pub flops_around_attention: u64,
    /// Forward arithmetic of self-attention for each pair of a query and a key.
    pub pair_flops: u64,
}

impl LayerCost {
    pub(crate) fn from_part(part: PartCost) -> Self {
        Self {
            parameters: part.parameters as u64,
            forward_flops: part.flops as u64,
            flops_around_attention: (part.flops - part.mixing_flops) as u64,
            pair_flops: part.pair_flops as u64,
        }
    }

    /// Forward arithmetic of self-attention over all pairs of tokens in a sequence of `tokens`
    /// tokens.
    #[must_use]
    pub fn pair_flops_of(&self, tokens: usize) -> u64 {
        let tokens = tokens as u64;
        self.pair_flops.saturating_mul(tokens).saturating_mul(tokens)
    }

    /// Forward arithmetic for a sequence of `tokens` tokens. All pairs of tokens count, as in a
    /// dense implementation, even those that a causal mask hides.
    #[must_use]
    pub fn forward_flops_of(&self, tokens: usize) -> u64 {
        let of_tokens = self.forward_flops.saturating_mul(tokens as u64);
        of_tokens.saturating_add(self.pair_flops_of(tokens))
    }
}

/// Cost of one token of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamCost {
    /// Name of the stream: a single word.
    pub name: &'static str,
    /// Forward multiplications and additions of the matrix products: two for each weight by which
    /// the token's vector is multiplied. Attention scores, which grow with the sequence, are not
    /// included; below 100 tokens they are a few per cent.
    pub forward_flops: u64,
    /// Bytes that a training pass with the fused operations, which run on the CPU, keeps until its
    /// backward pass. Attention scores are not included.
    pub activation_bytes: u64,
    /// Bytes of attention scores for one pair of a query and a key: one score for each head of each
    /// layer. The fused operations keep scores only for short sequences. The first entry counts
    /// attention that sees all tokens, and the second counts masked attention.
    pub score_bytes: [u64; 2],
    /// Value of `activation_bytes` if `training.checkpoint_activations` is set.
    pub checkpointed_bytes: u64,
    /// Bytes per token at the peak of a training pass with the composed operations (made of
    /// Candle's operations), which run on a GPU. Attention scores are not included.
    pub composed_bytes: u64,
    /// Bytes of attention scores for one pair of a query and a key at the peak of a training pass
    /// with the composed operations.
    pub pair_bytes: u64,
}

impl Cost {
    /// Returns the cost of passes that recompute layers in the backward pass if `checkpoints` is
    /// true; otherwise this cost, unchanged.
    #[must_use]
    pub fn checkpointed(mut self, checkpoints: bool) -> Self {
        for stream in self.streams.iter_mut().filter(|_| checkpoints) {
            stream.activation_bytes = stream.checkpointed_bytes;
        }
        self
    }

    /// Makes the cost of a model. For each stream, `streams` has the name, and the cost of all
    /// parts that are computed for the stream's tokens.
    pub(crate) fn from_streams(streams: impl Iterator<Item = (&'static str, PartCost)>) -> Self {
        let mut all = PartCost::default();
        let of_stream = |(name, part): (&'static str, PartCost)| {
            all = all + part;
            StreamCost {
                name,
                forward_flops: part.flops as u64,
                activation_bytes: (F32 * part.kept) as u64,
                checkpointed_bytes: (F32 * (part.kept - part.saved)) as u64,
                score_bytes: [part.scores - part.masked_scores, part.masked_scores]
                    .map(|scores| (F32 * scores) as u64),
                composed_bytes: (F32 * COMPOSED * (part.kept + part.forgotten)) as u64,
                pair_bytes: (F32 * COMPOSED_SCORES * part.scores) as u64,
            }
        };
        let streams = streams.map(of_stream).collect();
        let PartCost { parameters, classes, classifier, .. } = all;
        let [parameters, classes, classifier] =
            [parameters, classes, classifier].map(|it| it as u64);
        Self { parameters, streams, classes, classifier }
    }

    /// Forward and backward arithmetic for one token of each stream. The backward pass has two
    /// products for each product of the forward pass.
    #[must_use]
    pub fn training_flops(&self) -> u64 {
        let forward = self.streams.iter().map(|stream| stream.forward_flops);
        forward.fold(0, u64::saturating_add).saturating_mul(3)
    }

    /// Bytes that a training pass of the fused operations keeps for its backward pass. `tokens` has
    /// the number of tokens in each stream; they form sequences of `length` tokens.
    #[must_use]
    pub fn activation_bytes(&self, tokens: &[usize], length: usize) -> u64 {
        let of_scores = |stream: &StreamCost| {
            let [all, masked] = stream.score_bytes;
            let kept = |bytes: u64, is_masked| match keeps_scores(length, length, is_masked) {
                true => bytes.saturating_mul(length as u64),
                false => 0,
            };
            kept(all, false).saturating_add(kept(masked, true))
        };
        let each = self.streams.iter().zip(tokens);
        each.map(|(stream, &tokens)| {
            let of_token = stream.activation_bytes.saturating_add(of_scores(stream));
            of_token.saturating_mul(tokens as u64)
        })
        .fold(0, u64::saturating_add)
    }

    /// Bytes that the loss of the fused operations holds for `rows` predicted rows, in addition to
    /// what the pass keeps. These are logits of some of the rows, and weights that are packed for
    /// the matrix kernels. If the matrices of the output heads are trained (`is_trained`), the
    /// gradient of these matrices is included.
    #[must_use]
    pub fn loss_bytes(&self, rows: usize, is_trained: bool) -> u64 {
        let gradient = if is_trained { self.classifier.saturating_mul(4) } else { 0 };
        taper_ops::loss_bytes(rows, self.classes, self.classifier).saturating_add(gradient)
    }

    /// Upper bound of the bytes at the peak of a training pass of the composed operations, as on a
    /// GPU, in f32. `tokens` has the number of tokens in each stream; they form sequences padded to
    /// `longest` tokens.
    #[must_use]
    pub fn composed_bytes(&self, tokens: &[usize], longest: usize) -> u64 {
        let of_pairs = |stream: &StreamCost| stream.pair_bytes.saturating_mul(longest as u64);
        let each = self.streams.iter().zip(tokens);
        each.map(|(stream, &tokens)| {
            let of_token = stream.composed_bytes.saturating_add(of_pairs(stream));
            of_token.saturating_mul(tokens as u64)
        })
        .fold(0, u64::saturating_add)
    }
}
