//! Settings of a model of CTranslate2, such as widths, layers and heads. They are found from the
//! attributes of its layers and the shapes of its tensors.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use taper_model::positions::sinusoids;
use taper_model::{
    ActivationKind, FeedForwardKind, ModelConfig, NormKind, NormPlacement, ParallelFeedForward,
    Positions, QueryKeyNorm, RotaryPairs, RotaryScaling, SinusoidFrequencies, Tied,
};

use crate::folders::weights::{Attribute, Weights};

pub(super) const EMBEDDING: &str = "decoder.embeddings.weight";
pub(super) const OF_SOURCE: &str = "encoder.embeddings_0.weight";
pub(super) const OUTPUT: &str = "decoder.projection.weight";
pub(super) const OUTPUT_BIAS: &str = "decoder.projection.bias";
const POSITIONS: &str = "decoder.position_encodings.encodings";

/// Values of `max_positions` for models without a table of positions: for a translation model, and
/// for a language model.
const LONGEST: [usize; 2] = [512, 2048];

/// Attributes that are ignored, because they do not change the results of a model. The first two
/// say how alignments are read from a decoder. `embeddings_merge` says how several embeddings of a
/// source would be merged. `multi_query_attention` follows from `num_heads_kv`. The last one only
/// adds a constant to the scores before softmax.
const WITHOUT_PART: [&str; 5] = [
    "alignment_layer",
    "alignment_heads",
    "embeddings_merge",
    "multi_query_attention",
    "alibi_use_positive_positions",
];

/// Attributes by the part of their names after the last dot. Each has the same value in all stacks
/// (encoder and decoder) and layers.
pub(super) struct Attributes(BTreeMap<String, Attribute>);

impl Attributes {
    /// Collects the attributes of all layers.
    ///
    /// # Errors
    /// When layers have different values of an attribute.
    pub(super) fn new(all: &BTreeMap<String, Attribute>) -> Result<Self> {
        let mut values = BTreeMap::new();
        for (name, &value) in all {
            let last = name.rsplit('.').next().unwrap_or(name);
            if WITHOUT_PART.contains(&last) {
                continue;
            }
            if let Some(other) = values.insert(last.to_owned(), value)
                && other != value
            {
                bail!(
                    "{name} is {value}, but {other} in another layer: layers of the models here \
                     have one value"
                );
            }
        }
        Ok(Self(values))
    }

    fn number(&mut self, name: &str) -> Option<f64> {
        self.0.remove(name).map(|value| match value {
            Attribute::Integer(value) => value.into(),
            Attribute::Float(value) => value.into(),
        })
    }

    fn count(&mut self, name: &str) -> Result<Option<usize>> {
        let count = |number: f64| {
            let is_count = number >= 1.0 && number.fract() == 0.0;
            is_count.then_some(number as usize).with_context(|| format!("{name} is {number}"))
        };
        self.number(name).map(count).transpose()
    }

    pub(super) fn flag(&mut self, name: &str) -> bool {
        self.number(name).is_some_and(|number| number != 0.0)
    }

    /// Refuses attributes that nothing has read, unless their value is 0.
    ///
    /// # Errors
    /// When there is an attribute that was not read and is not 0; the message names it.
    pub(super) fn finish(self) -> Result<()> {
        let is_on = |value: &Attribute| {
            !matches!(value, Attribute::Integer(0)) && *value != Attribute::Float(0.0)
        };
        match self.0.iter().find(|(_, value)| is_on(value)) {
            Some((name, value)) => {
                bail!("{name} is {value}, which the models here have no setting for")
            }
            None => Ok(()),
        }
    }
}

/// Sets the fields of `model` to describe a model with a decoder and, if `translates`, an encoder.
///
/// # Errors
/// When an attribute or a tensor is missing, or has no counterpart in Taper; the message names it.
pub(super) fn describe(
    attributes: &mut Attributes,
    weights: &Weights,
    translates: bool,
    model: &mut ModelConfig,
) -> Result<()> {
    let rows = |name: &str| weights.shape(name).and_then(|shape| shape.first().copied());
    let is_there = |name: &str| weights.has(&format!("decoder.layer_0.{name}"));
    let width = weights.shape(EMBEDDING).and_then(|shape| shape.get(1).copied());
    model.d_model = width.with_context(|| format!("has no tensor {EMBEDDING}"))?;
    model.decoder_layers = layers(weights, "decoder");
    model.encoder_layers =
        if translates { layers(weights, "encoder") } else { model.decoder_layers };
    let inner = rows("decoder.layer_0.ffn.linear_0.weight");
    model.d_ff = inner.context("has no tensor decoder.layer_0.ffn.linear_0.weight")?;
    heads(attributes, weights, model)?;
    model.output_scale = attributes.number("scale_outputs").filter(|&scale| scale != 0.0);
    model.norm = match attributes.flag("pre_norm") {
        true => NormPlacement::Pre,
        false => NormPlacement::Post,
    };
    model.parallel_feed_forward = match () {
        () if is_there("shared_layer_norm.weight") => ParallelFeedForward::SharedNorm,
        () if is_there("input_layer_norm.weight") => ParallelFeedForward::OwnNorm,
        () => ParallelFeedForward::None,
    };
    let norms = ["self_attention.layer_norm", "shared_layer_norm", "input_layer_norm"];
    model.norm_kind = match norms.iter().any(|norm| is_there(&format!("{norm}.bias"))) {
        true => NormKind::Layer,
        false => NormKind::Rms,
    };
    if is_there("self_attention.q_norm.weight") {
        model.query_key_norm = QueryKeyNorm::PerHead;
    }
    model.feed_forward = match is_there("ffn.linear_0_noact.weight") {
        true => FeedForwardKind::Gated,
        false => FeedForwardKind::Plain,
    };
    model.activation = match attributes.number("activation").unwrap_or_default() {
        0.0 => ActivationKind::Relu,
        1.0 => ActivationKind::GeluTanh,
        2.0 => ActivationKind::Swish,
        3.0 => ActivationKind::Gelu,
        4.0 => ActivationKind::QuickGelu,
        other => bail!("activation is {other}, which the models here do not have"),
    };
    model.scale_embeddings = is_scaled(attributes, model.d_model)?;
    model.embedding_norm = weights.has("decoder.layernorm_embedding.weight");
    let of_attention = is_there("self_attention.linear_0.bias");
    let of_result = is_there("self_attention.linear_1.bias");
    model.biases = is_there("ffn.linear_0.bias");
    model.query_key_value_biases = (of_attention != model.biases).then_some(of_attention);
    model.attention_output_biases = (of_result != model.biases).then_some(of_result);
    model.output_bias = weights.has(OUTPUT_BIAS);
    model.tied = tied(weights, translates)?;
    positions(attributes, weights, translates, model)
}

/// Sets the number and the width of attention heads; `model.d_model` must already be set.
fn heads(attributes: &mut Attributes, weights: &Weights, model: &mut ModelConfig) -> Result<()> {
    model.heads = attributes.count("num_heads")?.context("has no attribute num_heads")?;
    // Converters do not write the width of heads if the engine can read it from the shapes of
    // tensors.
    let of_tensors = weights.shape("decoder.layer_0.self_attention.linear_1.weight");
    let of_tensors = of_tensors.and_then(|shape| shape.get(1)).map(|columns| columns / model.heads);
    let width = attributes.count("head_dim")?.or(of_tensors);
    model.head_width = width.filter(|width| width * model.heads != model.d_model);
    let shared = attributes.count("num_heads_kv")?;
    model.key_value_heads = shared.filter(|&shared| shared != model.heads);
    let usual = (model.attention_shape().head_width as f64).powf(-0.5);
    let scale = attributes.number("queries_scale");
    model.attention_scale = scale.filter(|scale| (scale / usual - 1.0).abs() > 1e-6);
    Ok(())
}

/// Finds which of three matrices are equal, and therefore count as tied: the source embedding, the
/// target embedding, and the output matrix.
fn tied(weights: &Weights, translates: bool) -> Result<Tied> {
    let is_same = |other: &str| -> Result<bool> {
        Ok(weights.has(other) && weights.are_equal(EMBEDDING, other)?)
    };
    Ok(match (translates && is_same(OF_SOURCE)?, is_same(OUTPUT)?) {
        (true, true) => Tied::All,
        (true, false) => Tied::Embeddings,
        (false, true) if translates => Tied::Decoder,
        (false, true) => Tied::All,
        (false, false) => Tied::None,
    })
}

fn layers(weights: &Weights, stack: &str) -> usize {
    (0..)
        .take_while(|layer| weights.has(&format!("{stack}.layer_{layer}.ffn.linear_0.weight")))
        .count()
}

/// Whether embeddings are multiplied by √d_model; `width` is d_model. The attribute
/// `scale_embeddings` is either a flag or the factor itself.
fn is_scaled(attributes: &mut Attributes, width: usize) -> Result<bool> {
    // Instead of `scale_embeddings`, some models have this attribute of the embeddings, which is
    // always a flag.
    let of_embedding = attributes.number("multiply_by_sqrt_depth");
    let root = (width as f64).sqrt();
    match (attributes.0.remove("scale_embeddings"), of_embedding) {
        (Some(Attribute::Integer(flag)), None) => Ok(flag != 0),
        (Some(Attribute::Float(1.0)), None) => Ok(false),
        (Some(Attribute::Float(scale)), None) if (f64::from(scale) / root - 1.0).abs() < 1e-5 => {
            Ok(true)
        }
        (None, Some(flag)) => Ok(flag != 0.0),
        (None, None) => Ok(true),
        (scale, _) => bail!(
            "scale_embeddings is {}: only 1 and √d_model are known here",
            scale.map_or_else(String::new, |scale| scale.to_string())
        ),
    }
}

/// Sets the position encoding in `model`.
fn positions(
    attributes: &mut Attributes,
    weights: &Weights,
    translates: bool,
    model: &mut ModelConfig,
) -> Result<()> {
    let bias = |stack: &str, layer: usize| {
        format!("{stack}.layer_{layer}.self_attention.relative_attention_bias")
    };
    model.max_positions = LONGEST[usize::from(!translates)];
    if attributes.flag("alibi") {
        model.positions = Positions::Alibi;
    } else if let Some(width) = attributes.number("rotary_dim") {
        model.positions = Positions::Rotary;
        let (width, head) = (width as usize, model.attention_shape().head_width);
        model.rotary.width = (width != 0 && width != head).then_some(width);
        rotary(attributes, model)?;
    } else if let Some(buckets) = weights.shape(&bias("decoder", 0)).map(|shape| shape[0]) {
        model.positions = Positions::T5;
        model.relative_buckets = buckets;
        let distance = attributes.count("relative_attention_max_distance")?;
        model.relative_distance = distance.context("has no relative_attention_max_distance")?;
        for (stack, layers) in
            [("encoder", model.encoder_layers), ("decoder", model.decoder_layers)]
        {
            for layer in 1..layers {
                let (first, other) = (bias(stack, 0), bias(stack, layer));
                model.relative_by_layer |=
                    weights.has(&other) && !weights.are_equal(&first, &other)?;
            }
        }
    } else {
        added(weights, translates, model)?;
    }
    Ok(())
}

/// Sets the encoding of positions for a model that adds position vectors to embeddings. If the
/// table of these vectors has only zeros, the model has no positions. If it has the values of
/// sinusoids, the positions are sinusoidal. Otherwise, they are learned.
fn added(weights: &Weights, translates: bool, model: &mut ModelConfig) -> Result<()> {
    let shape = weights.shape(POSITIONS);
    let Some(&[rows, width]) = shape else {
        bail!(
            "has no tensor {POSITIONS}: models whose engine computes the positions cannot be imported"
        );
    };
    model.max_positions = rows;
    let values = weights.values(POSITIONS)?;
    let of_source = POSITIONS.replace("decoder", "encoder");
    let is_one = !translates || weights.are_equal(POSITIONS, &of_source)?;
    // Largest allowed difference from a sinusoid. For 16-bit types, this is about the rounding
    // error of the value 1, the largest value of a sinusoid.
    let close = match weights.dtype(POSITIONS) {
        Some("F16") => 5e-4,
        Some("BF16") => 4e-3,
        _ => 2e-5,
    };
    let is =
        |table: &[f32]| table.iter().zip(&values).all(|(one, other)| (one - other).abs() <= close);
    model.position_offset = 0;
    if is_one && values.iter().all(|&value| value == 0.0) {
        model.positions = Positions::None;
        return Ok(());
    }
    for (offset, halves, frequencies) in (0..=2).flat_map(|offset| {
        [true, false].into_iter().flat_map(move |halves| {
            [SinusoidFrequencies::Paper, SinusoidFrequencies::Tensor2Tensor]
                .map(move |frequencies| (offset, halves, frequencies))
        })
    }) {
        if is_one && is(&sinusoids(offset..offset + rows, width, halves, frequencies)) {
            model.positions =
                if halves { Positions::SinusoidalHalves } else { Positions::Sinusoidal };
            (model.sinusoid_frequencies, model.position_offset) = (frequencies, offset);
            return Ok(());
        }
    }
    model.positions = Positions::Learned;
    Ok(())
}

/// Sets the settings of rotary positions.
fn rotary(attributes: &mut Attributes, model: &mut ModelConfig) -> Result<()> {
    let rotary = &mut model.rotary;
    rotary.pairs = match attributes.flag("rotary_interleave") {
        true => RotaryPairs::Interleaved,
        false => RotaryPairs::Halves,
    };
    // Attributes are 32-bit numbers, in which a base such as 10,000 is exact.
    rotary.base = attributes.number("rotary_base").unwrap_or(10_000.0);
    let factor = attributes.number("rotary_scaling_factor").unwrap_or(1.0);
    let original = attributes.count("original_max_position_embeddings")?;
    let [slow, fast] =
        ["rotary_low_freq_factor", "rotary_high_freq_factor"].map(|name| attributes.number(name));
    match attributes.number("rotary_scaling_type") {
        None | Some(-1.0) => {}
        Some(0.0 | 2.0) if factor == 1.0 => {}
        Some(0.0) => (rotary.scaling, rotary.factor) = (RotaryScaling::Interpolation, factor),
        Some(2.0) => {
            (rotary.scaling, rotary.factor) = (RotaryScaling::Llama3, factor);
            rotary.original_length = original;
            (rotary.slow_rotations, rotary.fast_rotations) = (slow, fast);
        }
        Some(other) => bail!("rotary_scaling_type is {other}, which the models here do not have"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scaling_without_a_factor_is_one_only_if_it_has_no_other_settings() {
        let scaled = |kind: i32| {
            let all = [
                ("decoder.rotary_scaling_type", Attribute::Integer(kind)),
                ("decoder.rotary_scaling_factor", Attribute::Float(1.0)),
            ];
            let all = all.map(|(name, value)| (name.to_owned(), value)).into();
            let mut model = ModelConfig::default();
            rotary(&mut Attributes::new(&all)?, &mut model)?;
            anyhow::Ok(model.rotary.scaling)
        };
        for kind in [-1, 0, 2] {
            assert_eq!(scaled(kind).expect("known"), RotaryScaling::None, "{kind}");
        }
        // The scaling "su" has a factor for each frequency, whatever its other factor is.
        let error = scaled(1).expect_err("refused").to_string();
        assert!(error.starts_with("rotary_scaling_type is 1"), "{error}");
    }
}
