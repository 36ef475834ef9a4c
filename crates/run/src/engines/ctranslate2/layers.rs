//! Variables of a model in CTranslate2: the parameters of the model of a run (a trained model with
//! its files) under CTranslate2's names, and attributes, which describe the layers.

use anyhow::{Context, Result};
use taper_model::positions::sinusoids;
use taper_model::{
    ActivationKind, FeedForwardKind, ModelConfig, NormKind, NormPlacement, ParallelFeedForward,
    Positions, RotaryPairs, RotaryScaling,
};
use taper_ops::{Parameter, ParameterStore};

use super::binary::{Attribute, Values, Variables};
use crate::config::RunConfig;
use crate::tasks::entry;

/// Name and revision of CTranslate2's specification of a translation model.
const TRANSLATION: (&str, u32) = ("TransformerSpec", 7);
/// Name and revision of CTranslate2's specification of a language model.
const LANGUAGE_MODEL: (&str, u32) = ("TransformerDecoderSpec", 8);

/// Modules of a layer: for each, the name in a run and the name in CTranslate2.
const MODULES: &[(&str, &str)] = &[
    ("self_attention_norm", "self_attention/layer_norm"),
    ("self_attention.qkv", "self_attention/linear_0"),
    ("self_attention.out", "self_attention/linear_1"),
    ("cross_attention_norm", "attention/layer_norm"),
    ("cross_attention.q", "attention/linear_0"),
    ("cross_attention.kv", "attention/linear_1"),
    ("cross_attention.out", "attention/linear_2"),
    ("feed_forward_norm", "ffn/layer_norm"),
    ("feed_forward.up", "ffn/linear_0"),
    ("feed_forward.down", "ffn/linear_1"),
];

/// Ending of the name of a table of learned positions in a run.
const POSITIONS: &str = ".positions.weight";

/// Names of embedding matrices and of the output layer's parameters in CTranslate2.
const DECODER_EMBEDDING: &str = "decoder/embeddings/weight";
const ENCODER_EMBEDDING: &str = "encoder/embeddings_0/weight";
const OUTPUT: &str = "decoder/projection/weight";
const OUTPUT_BIAS: &str = "decoder/projection/bias";

/// Smallest number of rows (positions) in a table of sinusoids. CTranslate2 cannot process
/// sequences with more tokens than the table has rows.
const LEAST_POSITIONS: usize = 1024;

/// Output bias of tokens that are never written. Every number type can represent this bias. Its
/// exponential is 0, and so is the probability of the tokens.
const NEVER: f32 = -1e4;

/// Variables of the model of a run, which must be a model that [`super::limits`] does not refuse.
/// `never_written` has the ids of tokens that the model must not write.
///
/// # Errors
/// When a parameter has no counterpart in CTranslate2.
pub(super) fn variables<'a>(
    config: &RunConfig,
    parameters: &'a ParameterStore,
    never_written: &[u32],
) -> Result<Variables<'a>> {
    let model = &config.model;
    let translates = entry(config.task).translates;
    let mut variables = Variables::new(if translates { TRANSLATION } else { LANGUAGE_MODEL });
    let bias = add_parameters(&mut variables, model, parameters)?;
    if !never_written.is_empty() {
        let (rows, values) = output_bias(parameters, bias, never_written)?;
        variables.tensor(OUTPUT_BIAS.to_owned(), vec![rows], Values::Floats(values));
    }
    if model.tied.ties_output() {
        variables.alias(OUTPUT.to_owned(), DECODER_EMBEDDING);
    }
    if translates {
        if model.tied.ties_embeddings() {
            variables.alias(ENCODER_EMBEDDING.to_owned(), DECODER_EMBEDDING);
        }
        stack(&mut variables, model, ("encoder", model.encoder_layers), OF_SELF);
        variables.attribute("encoder/embeddings_merge".to_owned(), Attribute::Choice(0));
        // Word alignments are taken from the last decoder layer but one, whose attention aligns
        // best. The 0 below stands for the mean of all heads.
        let layer = model.decoder_layers.saturating_sub(2) as i16;
        variables.attribute("decoder/alignment_layer".to_owned(), Attribute::Short(layer));
        variables.attribute("decoder/alignment_heads".to_owned(), Attribute::Short(0));
    }
    let attentions = if translates { OF_BOTH } else { OF_SELF };
    stack(&mut variables, model, ("decoder", model.decoder_layers), attentions);
    if let Some(scale) = model.output_scale {
        variables.attribute("decoder/scale_outputs".to_owned(), Attribute::Float(scale as f32));
    }
    let stacks: &[&str] = if translates { &["decoder", "encoder"] } else { &["decoder"] };
    positions(&mut variables, model, stacks);
    Ok(variables)
}

/// Adds the tensors of `parameters` under CTranslate2's names. Returns the output bias without
/// adding it; `None` if the model has no output bias.
fn add_parameters<'a>(
    variables: &mut Variables<'a>,
    model: &ModelConfig,
    parameters: &'a ParameterStore,
) -> Result<Option<&'a Parameter>> {
    let mut bias = None;
    for parameter in parameters.parameters() {
        let (name, shape) = (parameter.name(), parameter.shape());
        let names = names(name, model);
        let names =
            names.with_context(|| format!("{name} has no place in CTranslate2's models"))?;
        if names == [OUTPUT_BIAS] {
            bias = Some(parameter);
        }
        // In CTranslate2, the first row of a position table belongs to the first position. In a
        // run, unused rows can come before it.
        let first = if name.ends_with(POSITIONS) { model.position_offset } else { 0 };
        let shape = [&[(shape[0] - first) / names.len()], &shape[1..]].concat();
        let length: usize = shape.iter().product();
        let first = first * shape[1..].iter().product::<usize>();
        for (part, name) in names.into_iter().enumerate() {
            // CTranslate2 would take a norm without a bias for an RMS norm, so a layer norm without
            // a bias gets a bias of zeros.
            if let Some(norm) = name.strip_suffix("/gamma")
                && model.norm_kind == NormKind::LayerWithoutBias
            {
                let zeros = Values::Floats(vec![0.0; length]);
                variables.tensor(format!("{norm}/beta"), shape.clone(), zeros);
            }
            variables.tensor(name, shape.clone(), Values::Part(parameter, first + part * length));
        }
    }
    Ok(bias)
}

/// Length and values of the output bias: `bias`, or zeros, with a large negative value for each
/// token in `never_written`.
fn output_bias(
    parameters: &ParameterStore,
    bias: Option<&Parameter>,
    never_written: &[u32],
) -> Result<(usize, Vec<f32>)> {
    let rows = parameters.get("output.weight").or_else(|| parameters.get("embedding.weight"));
    let rows = rows.or_else(|| parameters.get("target_embedding.weight"));
    let rows = rows.context("the model has no embedding")?.shape()[0];
    let mut values = match bias {
        Some(bias) => bias.values()?,
        None => vec![0.0; rows],
    };
    for &id in never_written {
        values[id as usize] = NEVER;
    }
    Ok((rows, values))
}

/// Names of the tensors in CTranslate2 that a parameter becomes. If there are several, each gets an
/// equal part of the parameter's rows. `None` if CTranslate2 has no counterpart.
fn names(name: &str, model: &ModelConfig) -> Option<Vec<String>> {
    let (module, kind) = name.rsplit_once('.')?;
    let place = match module {
        "embedding" | "target_embedding" => return Some(vec![DECODER_EMBEDDING.to_owned()]),
        "source_embedding" => return Some(vec![ENCODER_EMBEDDING.to_owned()]),
        "output" => "decoder/projection".to_owned(),
        _ => {
            let (stack, module) = module.split_once('.')?;
            match module {
                "positions" => return Some(vec![format!("{stack}/position_encodings/encodings")]),
                "relative_bias" => return Some(vec![format!("{stack}/layer_0/{RELATIVE_BIAS}")]),
                "embedding_norm" => format!("{stack}/layernorm_embedding"),
                "final_norm" => format!("{stack}/layer_norm"),
                _ => {
                    let (layer, module) = module.strip_prefix("layers.")?.split_once('.')?;
                    if module == "relative_bias" {
                        return Some(vec![format!("{stack}/layer_{layer}/{RELATIVE_BIAS}")]);
                    }
                    let theirs = in_layer(module, model.parallel_feed_forward)?;
                    format!("{stack}/layer_{layer}/{theirs}")
                }
            }
        }
    };
    let kind = match (module.ends_with("norm"), kind) {
        (true, "weight") => "gamma",
        (true, "bias") => "beta",
        (_, kind) => kind,
    };
    let is_gated = model.feed_forward == FeedForwardKind::Gated && place.ends_with("ffn/linear_0");
    // In a run, the first half of the rows of a gated layer's matrix belongs to the part without an
    // activation.
    let parts: &[&str] = if is_gated { &["_noact", ""] } else { &[""] };
    Some(parts.iter().map(|part| format!("{place}{part}/{kind}")).collect())
}

/// Name in CTranslate2 of a module of a layer; `None` if CTranslate2 has no counterpart. Norms have
/// other names if attention and feed-forward layer are computed in parallel.
fn in_layer(module: &str, parallel: ParallelFeedForward) -> Option<&'static str> {
    Some(match (module, parallel) {
        ("self_attention_norm", ParallelFeedForward::SharedNorm) => "shared_layer_norm",
        ("self_attention_norm", ParallelFeedForward::OwnNorm) => "input_layer_norm",
        ("feed_forward_norm", ParallelFeedForward::OwnNorm) => "post_attention_layer_norm",
        _ => MODULES.iter().find(|(ours, _)| *ours == module)?.1,
    })
}

/// Name of the table of T5's relative position biases within a layer in CTranslate2.
const RELATIVE_BIAS: &str = "self_attention/relative_attention_bias";

/// Names of the attention sublayers in a layer of an encoder or a language model.
const OF_SELF: &[&str] = &["self_attention"];
/// Names of the attention sublayers in a layer of a decoder that attends to an encoder.
const OF_BOTH: &[&str] = &["self_attention", "attention"];

/// Adds the attributes of a stack (encoder or decoder) and of its layers. `attentions` are the
/// names of the attention sublayers in each layer.
fn stack(
    variables: &mut Variables<'_>,
    model: &ModelConfig,
    (stack, layers): (&str, usize),
    attentions: &[&str],
) {
    let mut set = |name: &str, value| variables.attribute(format!("{stack}/{name}"), value);
    let activation = match model.activation {
        ActivationKind::Relu => 0,
        ActivationKind::GeluTanh => 1,
        ActivationKind::Swish => 2,
        ActivationKind::Gelu => 3,
        ActivationKind::QuickGelu => 4,
    };
    set("num_heads", Attribute::Short(model.heads as i16));
    set("pre_norm", Attribute::Flag(model.norm == NormPlacement::Pre));
    set("activation", Attribute::Choice(activation));
    set("scale_embeddings", Attribute::Flag(model.scale_embeddings));
    if model.positions == Positions::Alibi {
        set("alibi", Attribute::Flag(true));
        set("alibi_use_positive_positions", Attribute::Flag(false));
    }
    let heads = model.attention_shape();
    for layer in 0..layers {
        for attention in attentions {
            let mut set =
                |name: &str, value| set(&format!("layer_{layer}/{attention}/{name}"), value);
            if model.head_width.is_some() {
                set("head_dim", Attribute::Integer(heads.head_width as i32));
            }
            if heads.key_value_heads < model.heads {
                set("num_heads_kv", Attribute::Integer(heads.key_value_heads as i32));
            }
            if let Some(scale) = model.attention_scale {
                set("queries_scale", Attribute::Float(scale as f32));
            }
        }
        let mut set =
            |name: &str, value| set(&format!("layer_{layer}/self_attention/{name}"), value);
        match model.positions {
            Positions::Rotary => rotary(model, &mut set),
            Positions::T5 => {
                let distance = model.relative_distance as i32;
                set("relative_attention_max_distance", Attribute::Integer(distance));
            }
            _ => {}
        }
    }
}

/// Sets the attributes of rotary positions.
fn rotary(model: &ModelConfig, set: &mut dyn FnMut(&str, Attribute)) {
    let (rotary, head) = (&model.rotary, model.attention_shape().head_width);
    let base = match rotary.scaling {
        // CTranslate2 has no NTK scaling, but a larger base has the same effect.
        RotaryScaling::Ntk => rotary.turns(head).base(),
        _ => rotary.base,
    };
    // In CTranslate2, 0 means that the whole width of a head is rotated.
    set("rotary_dim", Attribute::Integer(rotary.width.unwrap_or(0) as i32));
    set("rotary_interleave", Attribute::Flag(rotary.pairs == RotaryPairs::Interleaved));
    set("rotary_base", Attribute::Float(base as f32));
    let kind = match rotary.scaling {
        RotaryScaling::Interpolation => 0,
        RotaryScaling::Llama3 => 2,
        _ => return,
    };
    set("rotary_scaling_type", Attribute::Choice(kind));
    set("rotary_scaling_factor", Attribute::Float(rotary.factor as f32));
    if rotary.scaling == RotaryScaling::Llama3 {
        let length = rotary.original_length.unwrap_or(1);
        set("original_max_position_embeddings", Attribute::Integer(length as i32));
        let slow = rotary.slow_rotations.unwrap_or(1.0);
        set("rotary_low_freq_factor", Attribute::Float(slow as f32));
        let fast = rotary.fast_rotations.unwrap_or(4.0);
        set("rotary_high_freq_factor", Attribute::Float(fast as f32));
    }
}

/// Adds the position tables of the `stacks` (encoder and decoder) if they are not parameters of the
/// model. For T5, adds aliases so that all layers share the biases of the first layer.
fn positions(variables: &mut Variables<'_>, model: &ModelConfig, stacks: &[&str]) {
    let rows = model.max_positions.max(LEAST_POSITIONS);
    let table = match model.positions {
        Positions::Sinusoidal | Positions::SinusoidalHalves => {
            let at = model.position_offset..model.position_offset + rows;
            let halves = model.positions == Positions::SinusoidalHalves;
            sinusoids(at, model.d_model, halves, model.sinusoid_frequencies)
        }
        // Without a table, CTranslate2 would use sinusoids, so a model without positions gets a
        // table of zeros.
        Positions::None => vec![0.0; rows * model.d_model],
        Positions::T5 if model.relative_by_layer => return,
        Positions::T5 => {
            for stack in stacks {
                let first = format!("{stack}/layer_0/{RELATIVE_BIAS}");
                let layers =
                    if *stack == "encoder" { model.encoder_layers } else { model.decoder_layers };
                for layer in 1..layers {
                    variables.alias(format!("{stack}/layer_{layer}/{RELATIVE_BIAS}"), &first);
                }
            }
            return;
        }
        Positions::Learned | Positions::Rotary | Positions::Alibi => return,
    };
    let name = |stack: &str| format!("{stack}/position_encodings/encodings");
    let first = name(stacks[0]);
    variables.tensor(first.clone(), vec![rows, model.d_model], Values::Floats(table));
    for stack in &stacks[1..] {
        variables.alias(name(stack), &first);
    }
}
