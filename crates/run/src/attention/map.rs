//! Attention of every layer and head on one text.

use std::borrow::Cow;

use anyhow::{Context, Result, bail};
use candle_core::{DType, Device};
use serde::Serialize;
use taper_data::Tokenizer;
use taper_model::AttentionRecord;
use taper_plots::Language;

use super::rollout;
use crate::finite::require_finite;

/// Attention weights: one row for each query (token that attends), one column for each key (token
/// attended to).
pub type Weights = Vec<Vec<f32>>;

/// Kind of attention, by the tokens that attend and the tokens attended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionPart {
    /// Tokens of an encoder attend to each other.
    Encoder,
    /// Tokens of a decoder attend to themselves and the tokens before them.
    Decoder,
    /// Tokens of a decoder attend to tokens of an encoder.
    Cross,
}

impl AttentionPart {
    /// Kind of the attention layer with the full name `name`, such as
    /// `decoder.layers.0.self_attention`, and the index of the layer, from 0. `None` if the name is
    /// not that of an attention layer.
    fn of_layer(name: &str) -> Option<(Self, usize)> {
        // Architectures older than the Transformer have a single attention layer, from the decoder
        // to the source, and its name has no number.
        let layer = name.split('.').find_map(|part| part.parse().ok()).unwrap_or(0);
        match (name.starts_with("encoder."), name.ends_with(".self_attention")) {
            (true, true) => Some((Self::Encoder, layer)),
            (false, true) => Some((Self::Decoder, layer)),
            (false, false) => Some((Self::Cross, layer)),
            (true, false) => None,
        }
    }

    /// Full name of the attention layer of this kind in the layer with the index `layer`, from 0.
    #[must_use]
    pub fn layer_name(self, layer: usize) -> String {
        match self {
            Self::Encoder => format!("encoder.layers.{layer}.self_attention"),
            Self::Decoder => format!("decoder.layers.{layer}.self_attention"),
            Self::Cross => format!("decoder.layers.{layer}.cross_attention"),
        }
    }

    /// Name of the kind in data and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Encoder => "encoder",
            Self::Decoder => "decoder",
            Self::Cross => "cross",
        }
    }

    /// Title of the kind on a page.
    #[must_use]
    pub const fn title(self, language: Language) -> &'static str {
        let chinese = match self {
            Self::Encoder => "编码器",
            Self::Decoder => "解码器",
            Self::Cross => "交叉",
        };
        language.choose(self.name(), chinese)
    }
}

/// One layer of attention on a text.
#[derive(Debug, Clone, Serialize)]
pub struct AttentionLayer {
    /// Kind of attention.
    pub part: AttentionPart,
    /// Layer in its stack, counted from 1.
    pub layer: usize,
    /// Tokens that attend. In attention from a decoder to an encoder, each query is named by the
    /// token that it predicts; otherwise, by the token that is read.
    pub queries: Vec<String>,
    /// Tokens attended to.
    pub keys: Vec<String>,
    /// Attention weights of each head.
    pub heads: Vec<Weights>,
}

impl AttentionLayer {
    /// Attention weights of the head with the number `head`, counted from 1, or their mean over the
    /// heads if `head` is `None`.
    ///
    /// # Errors
    /// When there is no such head; the message has the numbers of those that exist.
    pub fn weights(&self, head: Option<usize>) -> Result<Cow<'_, Weights>> {
        let Some(number) = head else { return Ok(Cow::Owned(self.mean())) };
        let weights = number.checked_sub(1).and_then(|index| self.heads.get(index));
        weights.map(Cow::Borrowed).with_context(|| {
            format!(
                "attention {}, layer {} has heads 1 to {}, not {number}",
                self.part.name(),
                self.layer,
                self.heads.len()
            )
        })
    }

    /// Mean of the attention weights over the heads.
    #[must_use]
    pub fn mean(&self) -> Weights {
        let share = 1.0 / self.heads.len().max(1) as f32;
        let mut mean = vec![vec![0.0; self.keys.len()]; self.queries.len()];
        for head in &self.heads {
            for (sums, weights) in mean.iter_mut().zip(head) {
                sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += share * weight);
            }
        }
        mean
    }
}

/// Attention of a model on a text.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AttentionMap {
    /// Text that was read; for a translation model, the source.
    pub text: String,
    /// Translation of the text; empty if the model does not translate.
    pub translation: String,
    /// Attention layers in order, grouped by kind of attention.
    pub layers: Vec<AttentionLayer>,
}

impl AttentionMap {
    /// Kinds of attention that the model has, in the order of `layers`.
    #[must_use]
    pub fn parts(&self) -> Vec<AttentionPart> {
        let mut parts: Vec<AttentionPart> = self.layers.iter().map(|layer| layer.part).collect();
        parts.dedup();
        parts
    }

    /// Attention layer `number`, counted from 1, of the kind `part`. `None` stands for the last
    /// layer or, for attention from a decoder to an encoder, the last but one, whose attention
    /// aligns words best.
    ///
    /// # Errors
    /// When there is no such layer; the message lists those that exist.
    pub fn layer(&self, part: AttentionPart, number: Option<usize>) -> Result<&AttentionLayer> {
        let of_part: Vec<&AttentionLayer> =
            self.layers.iter().filter(|layer| layer.part == part).collect();
        // Layers without attention weights, such as linear ones, are missing, so there can be gaps
        // between the numbers of layers.
        let from_the_end = if part == AttentionPart::Cross { 2 } else { 1 };
        let usual = of_part.len().saturating_sub(from_the_end);
        let found_layer = match number {
            Some(number) => of_part.iter().find(|layer| layer.layer == number),
            None => of_part.get(usual),
        };
        found_layer.copied().with_context(|| {
            let (count, name) = (of_part.len(), part.name());
            let Some(number) = number.filter(|_| count > 0) else {
                let parts: Vec<&str> = self.parts().into_iter().map(AttentionPart::name).collect();
                return format!("the model has no attention {name}: it has {}", parts.join(", "));
            };
            let numbers: Vec<String> = of_part.iter().map(|one| one.layer.to_string()).collect();
            match of_part[count - 1].layer == count {
                true => format!("attention {name} has layers 1 to {count}, not {number}"),
                false => format!(
                    "attention {name} has weights in layer {}, not in {number}",
                    numbers.join(", ")
                ),
            }
        })
    }

    /// Rollout (Abnar and Zuidema 2020): share of each token (column) in the state of each token
    /// (row) after all layers, as a layer with a single head. `part` is the attention of an encoder
    /// or of a decoder to its own tokens. Layers without attention weights, such as linear ones, do
    /// not count.
    ///
    /// # Errors
    /// When `part` is attention from a decoder to an encoder, or the model does not have it.
    pub fn rollout(&self, part: AttentionPart) -> Result<AttentionLayer> {
        let last = self.layer(part, None)?;
        if part == AttentionPart::Cross {
            bail!(
                "attention can be rolled out over layers of self-attention only: choose encoder or \
                 decoder"
            );
        }
        let of_part = self.layers.iter().filter(|layer| layer.part == part);
        let wide = |layer: &AttentionLayer| -> Vec<Vec<f64>> {
            let mean = layer.mean();
            mean.into_iter().map(|row| row.into_iter().map(f64::from).collect()).collect()
        };
        let flow = rollout(of_part.map(wide)).context("no layers")?;
        let narrow = flow.into_iter().map(|row| row.into_iter().map(|x| x as f32).collect());
        Ok(AttentionLayer { heads: vec![narrow.collect()], ..last.clone() })
    }
}

/// Converts the attention records of one sequence to layers. `labels` returns the names of the
/// queries and keys for a kind of attention.
///
/// # Errors
/// When there are no layers, or a weight is not finite.
pub(super) fn layers(
    records: Vec<AttentionRecord>,
    labels: impl Fn(AttentionPart) -> (Vec<String>, Vec<String>),
) -> Result<Vec<AttentionLayer>> {
    let mut layers = Vec::with_capacity(records.len());
    for AttentionRecord { layer, weights } in records {
        let Some((part, number)) = AttentionPart::of_layer(&layer) else { continue };
        let (queries, keys) = labels(part);
        let weights = weights.to_dtype(DType::F32)?.to_device(&Device::Cpu)?.get(0)?; // (H, T, S)
        let heads = weights.to_vec3::<f32>()?;
        require_finite("the attention", heads.iter().flatten().flatten().copied())?;
        layers.push(AttentionLayer { part, layer: number + 1, queries, keys, heads });
    }
    if layers.is_empty() {
        bail!("no layer has attention weights: the model's attention is linear, or it has none");
    }
    layers.sort_by_key(|layer| (layer.part, layer.layer));
    Ok(layers)
}

/// Tokens with these ids, in readable form: bytes are decoded to text, spaces become `▁`, and line
/// ends, tabs and control characters become visible signs.
#[must_use]
pub fn shown_tokens(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    let sign = |character: char| match character {
        '\n' => '⏎',
        '\t' => '⇥',
        other if other.is_control() => '\u{FFFD}',
        other => other,
    };
    let shown = |id: &u32| {
        let token = tokenizer.token(*id).unwrap_or_default();
        let text = tokenizer.decode(&[*id]).unwrap_or_default();
        let is_readable = !text.is_empty() && !text.contains('\u{FFFD}');
        let is_spelled = token.replace('▁', "") == text.trim();
        let shown = if is_readable && !is_spelled { text.replace(' ', "▁") } else { token };
        shown.chars().map(sign).collect()
    };
    ids.iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_without_weights_leave_gaps() {
        let of = |part, layer| AttentionLayer {
            part,
            layer,
            queries: vec!["a".to_owned()],
            keys: vec!["a".to_owned()],
            heads: vec![vec![vec![1.0]]],
        };
        let (decoder, cross) = (AttentionPart::Decoder, AttentionPart::Cross);
        let layers = vec![of(decoder, 2), of(cross, 1), of(cross, 3), of(cross, 4)];
        let map = AttentionMap { layers, ..AttentionMap::default() };
        assert_eq!(map.layer(decoder, None).expect("the last").layer, 2);
        assert_eq!(map.rollout(decoder).expect("one layer").layer, 2);
        assert_eq!(map.layer(cross, None).expect("the last but one").layer, 3);
        let error = map.layer(cross, Some(2)).expect_err("no weights").to_string();
        assert!(error.contains("weights in layer 1, 3, 4, not in 2"), "{error}");
        let error = map.layer(AttentionPart::Encoder, None).expect_err("none").to_string();
        assert!(error.contains("no attention encoder: it has decoder, cross"), "{error}");
    }
}
