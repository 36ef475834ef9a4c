//! Low-rank attention (Wang et al. 2020, "Linformer: Self-Attention with Linear Complexity",
//! section 4). [`taper_ops`] has fused operations for it, each in place of several of Candle's.
//!
//! ```text
//! O = softmax(Q (E K)ᵀ / √d) (F V)
//! ```
//!
//! This is equation 7. The matrices E and F, each `(rank, length)`, make `rank` weighted sums of
//! the keys, and of the values, of all tokens in a sequence. So a query has `rank` scores, whatever
//! the length of the sequence. E and F are trained: each layer has one pair, which its heads share.
//! A sequence shorter than `length` uses the first columns of E and F, as in the authors'
//! implementation. With E = F = I this is full attention.
//!
//! A sum over all keys includes the keys of later tokens. Decoders therefore cannot use this kind.
//! E and F have one column for each position. Therefore no sequence can be longer than `length`.

use crate::layers::attention::{LayerPast, Mechanism, PastRows, Site, Texts, Within};
use crate::layers::weight::Weight;
use crate::{AttentionConfig, Builder};
use candle_core::{Result, Tensor, bail};
use std::sync::Arc;
use taper_ops::composed::CountedProduct;
use taper_ops::rng::name_key;
use taper_ops::{
    AttentionShape, AttentionSpec, Dropout, Products, Tape, composed, computed_pairs,
    cross_attention, kept_by_attention, sequence_sums,
};

#[derive(Debug)]
pub(super) struct Linformer {
    shape: AttentionShape,
    rank: usize,
    length: usize,
    /// E and F.
    sums: [Weight; 2],
    dropout: f64,
    products: Products,
    site: u64,
}

impl Linformer {
    pub(super) fn new(build: &mut Builder, site: &Site<'_>) -> Result<Self> {
        let AttentionConfig { rank, length, .. } = *site.config.attention(site.causal);
        // With a standard deviation of 1/√length, a sum over a whole sequence has about the size of
        // a single key.
        let mut sum = |name| build.embedding(&format!("{}.{name}", site.name), rank, length);
        Ok(Self {
            shape: site.config.attention_shape(),
            rank,
            length,
            sums: [sum("key_sums.weight")?, sum("value_sums.weight")?],
            dropout: site.config.attention_dropout,
            products: site.products,
            site: name_key(site.name),
        })
    }

    fn check(&self, lengths: &[usize]) -> Result<()> {
        match lengths.iter().max() {
            Some(&longest) if longest > self.length => bail!(
                "a sequence of {longest} tokens is longer than the {} that a Linformer has \
                 weights for: raise model.encoder_attention.length before training, or cut the \
                 text",
                self.length
            ),
            _ => Ok(()),
        }
    }
}

/// Describes attention from the tokens of sequences of these lengths to the `rank` sums of keys and
/// values of each sequence.
pub(super) fn to_sums(
    (shape, rank): (AttentionShape, usize),
    lengths: &Arc<[usize]>,
    dropout: Dropout,
    products: Products,
) -> AttentionSpec {
    AttentionSpec {
        key_lengths: vec![rank; lengths.len()].into(),
        dropout,
        products,
        ..AttentionSpec::new(shape, lengths.clone())
    }
}

/// Computes `softmax(Q (E K)ᵀ / √d) (F V)`, where `sums` are E and F: for N tokens of width D,
/// `qkv (N, 3·D)` → `(N, D)`.
pub(super) fn attended(
    tape: Option<&Tape>,
    qkv: &Tensor,
    sums: [&Tensor; 2],
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let sums = sequence_sums(tape, qkv, sums, &spec.query_lengths, spec.products)?;
    cross_attention(tape, qkv, &sums, None, spec)
}

/// Number of operations for the sums of keys and of values, the scores, and the weighted sums.
fn flops(shape: AttentionShape, rank: usize, length: usize) -> f64 {
    let spec = to_sums((shape, rank), &[length].into(), Dropout::none(), Products::F32);
    let pairs = computed_pairs(&spec) as f64;
    let sums = (length * rank) as f64 * shape.key_value_width() as f64;
    4.0 * (sums + pairs * shape.head_width as f64)
}

/// Number of scalars kept for the backward pass: the sums, and what the attention to the sums
/// keeps.
fn kept(shape: AttentionShape, rank: usize, length: usize) -> f64 {
    let spec = to_sums((shape, rank), &[length].into(), Dropout::none(), Products::F32);
    let sums = (2 * rank) as f64 * shape.key_value_width() as f64;
    sums + kept_by_attention(&spec) as f64
}

impl Mechanism for Linformer {
    fn attend(&self, qkv: &Tensor, within: Within<'_>) -> Result<Tensor> {
        let Within { lengths, pass, .. } = within;
        self.check(lengths)?;
        let sums = [self.sums[0].get(pass), self.sums[1].get(pass)];
        let dropout = pass.dropout(self.dropout, self.site);
        let spec = to_sums((self.shape, self.rank), lengths, dropout, self.products);
        attended(pass.tape(), qkv, sums, &spec)
    }

    fn flops(&self, _width: usize, length: usize) -> f64 {
        flops(self.shape, self.rank, length)
    }

    fn kept(&self, _width: usize, length: usize) -> f64 {
        kept(self.shape, self.rank, length)
    }

    /// Computes, for each query, the weight with which the value of each token enters the result.
    /// Each of the `rank` sums contributes its attention weight times the weight of the token in
    /// this sum, which is an element of F. The total can be negative.
    fn weights(&self, qkv: &Tensor, within: Within<'_>) -> Result<Tensor> {
        let Within { lengths, pass, .. } = within;
        self.check(lengths)?;
        let sums = [self.sums[0].get(pass), self.sums[1].get(pass)];
        let spec = to_sums((self.shape, self.rank), lengths, Dropout::none(), Products::F32);
        let width = self.shape.query_width();
        let keys = composed::sequence_sums(qkv, sums, lengths)?.narrow(1, 0, width)?;
        let query = qkv.narrow(1, 0, width)?;
        let weights = composed::attention_weights(&query, &keys.contiguous()?, None, &spec)?;
        let (batch, heads, longest, rank) = weights.dims4()?;
        let of_tokens = sums[1].to_dtype(weights.dtype())?.narrow(1, 0, longest)?.contiguous()?;
        let weights = weights.reshape((batch * heads * longest, rank))?.times(&of_tokens)?;
        let is_real: Vec<f32> = lengths
            .iter()
            .flat_map(|&length| (0..longest).map(move |t| f32::from(t < length)))
            .collect();
        let is_real = Tensor::from_vec(is_real, (batch, 1, 1, longest), weights.device())?;
        weights
            .reshape((batch, heads, longest, longest))?
            .broadcast_mul(&is_real.to_dtype(weights.dtype())?)
    }

    fn step(&self, _: &Tensor, _: &mut LayerPast, _: &PastRows<'_>) -> Result<Tensor> {
        bail!("a Linformer sums keys over the whole sequence: no decoder can have it")
    }

    fn read(&self, _: &Tensor, _: &mut LayerPast, _: &Texts<'_>) -> Result<Tensor> {
        bail!("a Linformer sums keys over the whole sequence: no decoder can have it")
    }
}
