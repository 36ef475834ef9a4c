//! Low-rank attention (Wang et al. 2020, "Linformer: Self-Attention with Linear Complexity", section
//! 4), in plain Candle.
//!
//! ```text
//! O = softmax(Q (E K)ᵀ / √d) (F V)
//! ```
//!
//! (equation 7): E and F, `(rank, length)`, make `rank` sums of keys and of values of all tokens of
//! a sequence, so that a query has `rank` scores however long the sequence is. They are trained, a
//! pair for each layer, shared by its heads; of a shorter sequence they have the first columns, as
//! in the authors' implementation. With E = F = I it is full attention.
//!
//! A sum over all keys has what follows in it, and each position has weights of its own: no decoder
//! can have this kind, and no sequence may be longer than E.

use super::super::positions::PreparedPositions;
use super::super::weight::Weight;
use super::{Kind, LayerPast, PastRows, Site, Texts};
use crate::cost::PartCost;
use crate::{AttentionConfig, Builder, Pass};
use candle_core::{D, Result, Tensor, bail};
use std::sync::Arc;
use taper_ops::composed::CountedProduct;
use taper_ops::rng::name_key;
use taper_ops::{Dropout, composed};

#[derive(Debug)]
pub(super) struct Linformer {
    heads: usize,
    rank: usize,
    length: usize,
    /// E and F.
    sums: [Weight; 2],
    dropout: f64,
    site: u64,
}

impl Linformer {
    pub(super) fn new(build: &mut Builder, site: &Site<'_>) -> Result<Self> {
        let AttentionConfig { rank, length, .. } = *site.config.attention(site.causal);
        // With deviation 1/√length, sums over whole sequences are as large as keys.
        let mut sum = |name| build.embedding(&format!("{}.{name}", site.name), rank, length);
        Ok(Self {
            heads: site.config.heads,
            rank,
            length,
            sums: [sum("key_sums.weight")?, sum("value_sums.weight")?],
            dropout: site.config.attention_dropout,
            site: name_key(site.name),
        })
    }

    /// E and F, and what is between the projections.
    pub(super) fn cost(site: &Site<'_>) -> PartCost {
        let (width, heads) = (site.config.d_model, site.config.heads);
        let AttentionConfig { rank, length, .. } = *site.config.attention(site.causal);
        let drops = site.config.attention_dropout > 0.0;
        PartCost::table(2 * rank, length)
            + PartCost::of_sequence(|length| {
                (flops(width, rank, length), kept((width, heads), (rank, drops), length))
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

/// Sums of keys and of values, scores, and the sums that they weigh.
fn flops(width: usize, rank: usize, length: usize) -> f64 {
    8.0 * (length * rank) as f64 * width as f64
}

/// Of a sequence: of a token, queries, keys and values, padded and apart, and what it gives; in each
/// head its scores with the sums, and what softmax and dropout make of them; columns of the
/// matrices, and the sums.
fn kept((width, heads): (usize, usize), (rank, drops): (usize, bool), length: usize) -> f64 {
    let [d, h, rank] = [width, heads, rank].map(|number| number as f64);
    let scores = if drops { 7.0 } else { 5.0 };
    let of_token = 16.0 * d + 2.0 * h + scores * h * rank + 2.0 * rank;
    length as f64 * of_token + 5.0 * rank * d
}

/// `softmax(Q (E K)ᵀ / √d)`, and what it weighs.
#[derive(Debug)]
pub(super) struct Attended {
    /// `(B, H, T, rank)`, before dropout.
    weights: Tensor,
    /// `F V`, `(B, H, rank, Dh)`.
    values: Tensor,
}

impl Attended {
    /// Of sequences of these lengths; `sums` are E and F, `(rank, length)`.
    pub(super) fn new(
        qkv: &Tensor,
        sums: [&Tensor; 2],
        lengths: &[usize],
        heads: usize,
    ) -> Result<Self> {
        let padded = composed::pad(qkv, lengths)?; // (B, T, 3·D), zero behind each sequence
        let (batch, longest, width) = padded.dims3()?;
        let (width, head) = (width / 3, width / 3 / heads);
        let query = padded
            .narrow(2, 0, width)?
            .reshape((batch, longest, heads, head))?
            .transpose(1, 2)?
            .contiguous()?; // (B, H, T, Dh)
        let summed = |index: usize| -> Result<Tensor> {
            let rank = sums[index].dim(0)?;
            let weights = sums[index].to_dtype(qkv.dtype())?.narrow(1, 0, longest)?;
            // All sequences side by side, so that it is one product.
            let rows = padded.narrow(2, (index + 1) * width, width)?.transpose(0, 1)?;
            let rows = rows.contiguous()?.reshape((longest, batch * width))?;
            let all = weights.contiguous()?.times(&rows)?; // (rank, B·D)
            all.reshape((rank, batch, heads, head))?.permute((1, 2, 0, 3))?.contiguous()
        };
        let keys = summed(0)?.transpose(2, 3)?.contiguous()?; // (B, H, Dh, rank)
        let scores = (query.times(&keys)? * (head as f64).powf(-0.5))?;
        let largest = scores.max_keepdim(D::Minus1)?.detach();
        let weights = scores.broadcast_sub(&largest)?.exp()?;
        let weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
        Ok(Self { weights, values: summed(1)? })
    }

    /// `(N, D)`.
    pub(super) fn result(&self, lengths: &[usize], dropout: Dropout) -> Result<Tensor> {
        let out = composed::drop(&self.weights, dropout)?.times(&self.values)?;
        let (batch, heads, longest, head) = out.dims4()?;
        let out = out.transpose(1, 2)?.contiguous()?; // (B, T, H, Dh)
        composed::unpad(&out.reshape((batch * longest, heads * head))?, lengths, longest)
    }
}

impl Kind for Linformer {
    fn attend(
        &self,
        qkv: &Tensor,
        lengths: &Arc<[usize]>,
        _: &PreparedPositions,
        pass: &Pass,
    ) -> Result<Tensor> {
        self.check(lengths)?;
        let [keys, values] = &self.sums;
        let inputs = [qkv, keys.get(pass), values.get(pass)];
        composed::on_tape(pass.tape(), "linformer", &inputs, |inputs| {
            let sums = [&inputs[1], &inputs[2]];
            let attended = Attended::new(&inputs[0], sums, lengths, self.heads)?;
            attended.result(lengths, pass.dropout(self.dropout, self.site))
        })
    }

    fn flops(&self, width: usize, length: usize) -> f64 {
        flops(width, self.rank, length)
    }

    fn kept(&self, width: usize, length: usize) -> f64 {
        kept((width, self.heads), (self.rank, self.dropout > 0.0), length)
    }

    /// Of the value of each token, with the weights of the sums that it is in; these may be
    /// negative.
    fn weights(
        &self,
        qkv: &Tensor,
        lengths: &Arc<[usize]>,
        _: &PreparedPositions,
        pass: &Pass,
    ) -> Result<Tensor> {
        self.check(lengths)?;
        let sums = [self.sums[0].get(pass), self.sums[1].get(pass)];
        let weights = Attended::new(qkv, sums, lengths, self.heads)?.weights;
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

    fn step(
        &self,
        _: &Tensor,
        _: &mut LayerPast,
        _: &PastRows<'_>,
        _: &PreparedPositions,
    ) -> Result<Tensor> {
        bail!("a Linformer sums keys over the whole sequence: no decoder can have it")
    }

    fn read(
        &self,
        _: &Tensor,
        _: &mut LayerPast,
        _: &Texts<'_>,
        _: &PreparedPositions,
    ) -> Result<Tensor> {
        bail!("a Linformer sums keys over the whole sequence: no decoder can have it")
    }
}
