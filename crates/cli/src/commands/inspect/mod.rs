//! `taper inspect`: parts and costs of a model.

mod states;

use std::path::Path;

use anyhow::{Result, bail};
use candle_core::Device;
use serde::Serialize;
use taper_data::TokenizerKind;
use taper_model::{
    Architecture, AttentionKind, ImageEncoder, ModelConfig, RecurrentConfig, UnprojectedAttention,
};
use taper_ops::ParameterStore;
use taper_trainer::Parent;

use crate::arguments::Inspect;
use crate::text::print_line;
use taper_run::RunFolder;
use taper_run::checks::computation::describe_operations;
use taper_run::checks::cost::Cost;
use taper_run::checks::device;
use taper_run::config::{RunConfig, trained_with};
use taper_run::numbers::{bytes, grouped, scaled};
use taper_run::require_unedited;
use taper_run::shapes::published_shapes;
use taper_run::tasks::{
    Stacks, Vocabularies, counted_parameters, counted_tokens, entry, inputs, layer_cost, outline,
    usual_tokens, vocabularies,
};

/// Runs the command.
pub(crate) fn run(arguments: &Inspect) -> Result<()> {
    if let (Some(target), Some(split)) = (&arguments.target, &arguments.state_gradients) {
        return states::run(arguments, target, split);
    }
    let mut parent = None;
    let (config, sizes) = match (&arguments.shape, &arguments.target) {
        (Some(name), _) => published(name)?,
        (None, Some(target)) => of_target(target, arguments, &mut parent)?,
        (None, None) => bail!("name a run, a recipe or a --shape"),
    };
    let outline = outline(&config, sizes)?;
    let device = match arguments.shape {
        Some(_) => Device::Cpu,
        None => device::open(&config.device)?,
    };
    let length = arguments.tokens.unwrap_or(usual_tokens(&config));
    let among = (arguments.processes.get(), length);
    let cost = Cost::of_sequences(&config, sizes, &device, among);
    let layers = Layer::each(&config, arguments.tokens)?;
    if arguments.json {
        return print_json(&config, &device, &outline, (&cost, &layers), sizes, parent.as_ref());
    }
    let name_width = outline.all().map(|parameter| parameter.name().len()).max().unwrap_or(0);
    for parameter in outline.all() {
        print_line(&format!(
            "{:name_width$}  {:>14}  {:>12}",
            parameter.name(),
            shape(parameter.shape()),
            grouped(parameter.len() as u64)
        ))?;
    }
    print_line("")?;
    for line in summary(&config, sizes, &cost, &layers) {
        print_line(&line)?;
    }
    if arguments.processes.get() > 1 {
        print_line(&format!(
            "processes    {}: memory is given for one; the moments are divided among all",
            arguments.processes
        ))?;
    }
    if arguments.shape.is_none() {
        print_line(&format!("operations   {}", describe_operations(&device, &config.dtype)))?;
    }
    if let Some(Parent { path, step, sha256 }) = &parent {
        print_line(&format!(
            "parent       first weights from {}, step {step}, sha256 {sha256}",
            path.display()
        ))?;
    }
    Ok(())
}

/// Returns the configuration of a published shape, and the size of its vocabulary as source and as
/// target.
fn published(name: &str) -> Result<(RunConfig, Vocabularies)> {
    let shapes = published_shapes();
    let Some(shape) = shapes.iter().find(|shape| shape.name == name) else {
        let names: Vec<&str> = shapes.iter().map(|shape| shape.name).collect();
        bail!("--shape {name}: expected {}", names.join(", "));
    };
    Ok((shape.config.clone(), (shape.vocabulary, shape.vocabulary)))
}

/// Returns the configuration of a run or of a recipe (a TOML file with all settings of a training),
/// and the sizes of its vocabularies. If another run gave the run its first weights, sets `parent`
/// to that run.
fn of_target(
    target: &Path,
    arguments: &Inspect,
    parent: &mut Option<Parent>,
) -> Result<(RunConfig, Vocabularies)> {
    if target.is_dir() {
        let folder = RunFolder::open(target)?;
        let config = folder.load_config(&arguments.overrides.set)?;
        if let Some(state) = folder.last_state()? {
            let written = folder.load_config(&[])?;
            if let Some(trained) = trained_with(&state, &written)? {
                require_unedited(&folder, &written, &trained)?;
            }
            *parent = state.parent;
        }
        if !config.task.has_tokenizers(target) {
            bail!("{}: the run has no tokenizer.json", target.display());
        }
        let tokenizers = config.task.load_tokenizers(target)?;
        Ok((config, vocabularies(&tokenizers)))
    } else {
        let config = RunConfig::load(target, &arguments.overrides.set)?;
        let tokenizer = &config.data.tokenizer;
        if !config.task.reads_text() {
            Ok((config, (0, 0)))
        } else if tokenizer.path.is_some() || tokenizer.kind == TokenizerKind::Char {
            let tokenizers = config.task.train_tokenizers(&config.data)?;
            Ok((config, vocabularies(&tokenizers)))
        } else {
            // Before training, the vocabulary is as large as the recipe allows.
            let size = tokenizer.vocabulary_size;
            Ok((config, (size, size)))
        }
    }
}

/// Cost of a layer for one sequence. The layer belongs to the stack that computes the output, which
/// is the decoder or the encoder, depending on the task.
#[derive(Serialize)]
struct Layer {
    /// Number of equal layers that this entry stands for.
    count: usize,
    /// Kind of self-attention; `None` for layers other than a Transformer's.
    attention: Option<AttentionKind>,
    /// Number of experts; 0 for an ordinary feed-forward layer.
    experts: usize,
    /// Number of parameters of one layer.
    parameters: u64,
    /// Number of tokens of the sequence.
    tokens: usize,
    /// FLOPs of one layer's forward pass: `attention_flops` and everything around attention.
    forward_flops: u64,
    /// FLOPs of self-attention without its projections. Full attention counts every pair of tokens,
    /// as papers do; other kinds count the pairs that they compute.
    attention_flops: u64,
    /// FLOPs of attention as a CPU computes it, which skips about half of the pairs under a causal
    /// mask; `None` without attention.
    computed_attention_flops: Option<u64>,
    /// Bytes that attention, without its projections, keeps for the backward pass of this sequence;
    /// `None` without attention.
    attention_bytes: Option<u64>,
}

impl Layer {
    /// Returns one entry for each group of equal layers.
    fn each(config: &RunConfig, tokens: Option<usize>) -> Result<Vec<Self>> {
        let (causal, shape) = (entry(config.task).stacks.answers_by_decoder(), &config.model);
        let layers = if causal { shape.decoder_layers } else { shape.encoder_layers };
        let groups = shape.groups(causal, layers);
        groups.into_iter().map(|group| Self::from_config(config, group, tokens)).collect()
    }

    fn from_config(
        config: &RunConfig,
        (layer, count): (usize, usize),
        tokens: Option<usize>,
    ) -> Result<Self> {
        let tokens = tokens.unwrap_or_else(|| counted_tokens(config));
        let cost = layer_cost(config, layer);
        let (causal, shape) = (entry(config.task).stacks.answers_by_decoder(), &config.model);
        let attention = (shape.architecture == Architecture::Transformer)
            .then(|| shape.attention(causal).kind_of(layer));
        let unprojected = match attention {
            Some(_) => Some(UnprojectedAttention::new(shape, causal, layer)?),
            None => None,
        };
        let attention_bytes =
            unprojected.as_ref().map(|attention| attention.kept_bytes(tokens) as u64);
        let computed_attention_flops =
            unprojected.as_ref().map(|attention| attention.forward_flops(tokens) as u64);
        let attention_flops = match (attention, computed_attention_flops) {
            (None | Some(AttentionKind::Full), _) | (_, None) => cost.pair_flops_of(tokens),
            (Some(_), Some(computed)) => computed,
        };
        let around = cost.flops_around_attention.saturating_mul(tokens as u64);
        let forward_flops = around.saturating_add(attention_flops);
        let parameters = cost.parameters;
        let experts = if attention.is_some() && shape.experts.are_in(layer) {
            shape.experts.count
        } else {
            0
        };
        Ok(Self {
            count,
            attention,
            experts,
            parameters,
            tokens,
            forward_flops,
            attention_flops,
            computed_attention_flops,
            attention_bytes,
        })
    }
}

/// Formats the number of all parameters, `parameters`, and the number that papers give for such a
/// model if they count only a part of them.
fn parameters_line(config: &RunConfig, vocabularies: Vocabularies, parameters: u64) -> String {
    let all = grouped(parameters);
    match counted_parameters(config, vocabularies) {
        Some((counted, name)) => format!("parameters   {all}; {} {name}", grouped(counted)),
        None => format!("parameters   {all}"),
    }
}

/// Describes the number of heads. Adds their width if it is set, and the number of heads for keys
/// and values if it is smaller.
fn heads(model: &ModelConfig) -> String {
    let shape = model.attention_shape();
    let width = match model.head_width {
        Some(width) => format!(" of width {width}"),
        None => String::new(),
    };
    let shared = match shape.group() {
        1 => String::new(),
        _ => format!(", {} of keys and values", shape.key_value_heads),
    };
    format!("{} heads{width}{shared}", shape.heads)
}

/// Describes the layers of the model and their sizes.
fn stack_line(config: &RunConfig) -> String {
    let shape = &config.model;
    let stacks = entry(config.task).stacks;
    let layers = match stacks {
        Stacks::EncoderDecoder => {
            format!("{} encoder, {} decoder", shape.encoder_layers, shape.decoder_layers)
        }
        Stacks::TwoEncoders => {
            format!("{} of images, {} of text", shape.encoder_layers, shape.decoder_layers)
        }
        Stacks::Decoder => shape.decoder_layers.to_string(),
        Stacks::Encoder => shape.encoder_layers.to_string(),
    };
    let is_one_encoder = stacks == Stacks::Encoder && config.task.reads_images();
    match shape.image_encoder {
        ImageEncoder::Convolutional if is_one_encoder => {
            format!("layers       {layers} convolutions; first width {}", shape.d_model)
        }
        _ if shape.architecture == Architecture::Recurrent => {
            let RecurrentConfig { cell, width, attention, bidirectional } = &shape.recurrent;
            let ways = if *bidirectional { "both directions" } else { "one direction" };
            format!(
                "layers       {layers}; {} of width {width}, {ways}, {} attention, embeddings \
                     of {}",
                cell.name(),
                attention.name(),
                shape.d_model
            )
        }
        _ if shape.architecture == Architecture::Convolutional => format!(
            "layers       {layers} gated convolutions; width {}, {} tokens each",
            shape.d_model, shape.convolutional.kernel
        ),
        _ => format!(
            "layers       {layers}; width {}, feed-forward {}, {}",
            shape.d_model,
            shape.d_ff,
            heads(shape)
        ),
    }
}

/// Describes the cost of a layer. If `alone` is true, the stack has only one kind of layer, so the
/// kind and the number of layers are omitted.
fn layer_line(layer: &Layer, shape: &ModelConfig, alone: bool) -> String {
    let experts = match layer.experts {
        0 => String::new(),
        count => format!(", {count} experts"),
    };
    let which = match alone {
        true => String::new(),
        false => {
            let kind = layer.attention.map_or(shape.architecture.name(), AttentionKind::name);
            format!("{} x {kind}{experts}: ", layer.count)
        }
    };
    let computed = match layer.computed_attention_flops {
        Some(computed) if computed != layer.attention_flops => {
            format!(" with every pair, {} as it is computed", grouped(computed))
        }
        _ => String::new(),
    };
    let keeps = match layer.attention_bytes {
        Some(kept) => format!(", which keeps {}", bytes(kept)),
        None => String::new(),
    };
    format!(
        "layer        {which}{} parameters; {} tokens take {} FLOPs forward, {} of them for \
         attention{computed}{keeps}",
        grouped(layer.parameters),
        grouped(layer.tokens as u64),
        grouped(layer.forward_flops),
        grouped(layer.attention_flops)
    )
}

/// Summarises the model and its cost in lines of text.
fn summary(
    config: &RunConfig,
    vocabularies: Vocabularies,
    cost: &Cost,
    groups: &[Layer],
) -> Vec<String> {
    let translates = entry(config.task).translates;
    let (forward, training) =
        (scaled(cost.decoder_flops_per_token), scaled(cost.training_flops_per_token_pair));
    let mut lines = vec![stack_line(config)];
    let inputs = inputs(config, vocabularies);
    lines.extend(inputs.into_iter().map(|(name, size)| format!("{name:<12} {size}")));
    lines.push(parameters_line(config, vocabularies, cost.parameters + cost.frozen_parameters));
    if cost.frozen_parameters > 0 {
        lines.push(format!(
            "adapters     {} parameters are trained, {} frozen",
            grouped(cost.parameters),
            grouped(cost.frozen_parameters)
        ));
    }
    let alone = matches!(groups, [Layer { experts: 0, .. }]);
    lines.extend(groups.iter().map(|layer| layer_line(layer, &config.model, alone)));
    lines.extend([
        match translates {
            true => format!(
                "FLOPs        forward: {} a source token, {forward} a target token; training: \
                 {training} a pair of them",
                scaled(cost.encoder_flops_per_token)
            ),
            false => format!("FLOPs        a token: {forward} forward, {training} in training"),
        },
        format!(
            "memory       {} for weights, gradients and moments; {} for a batch of {} tokens{} in \
             sequences of {}; {} at most while training",
            bytes(cost.training_state_bytes),
            bytes(cost.activation_bytes),
            config.data.batching.planned_tokens(),
            if translates { " a side" } else { "" },
            cost.sequence_tokens,
            bytes(cost.peak_bytes)
        ),
    ]);
    lines
}

fn print_json(
    config: &RunConfig,
    device: &Device,
    outline: &ParameterStore,
    (cost, layers): (&Cost, &[Layer]),
    (source, target): Vocabularies,
    parent: Option<&Parent>,
) -> Result<()> {
    let parameters: Vec<_> = outline
        .all()
        .map(|parameter| {
            serde_json::json!({
                "name": parameter.name(), "shape": parameter.shape(), "scalars": parameter.len(),
            })
        })
        .collect();
    let record = serde_json::json!({
        "task": config.task,
        "model": config.model,
        "source_vocabulary": source,
        "target_vocabulary": target,
        "cost": cost,
        "layer": layers.first(),
        "layers": layers,
        "operations": describe_operations(device, &config.dtype),
        "parent": parent,
        "parameters": parameters,
    });
    print_line(&serde_json::to_string_pretty(&record)?)
}

/// Formats a shape, such as `512 x 2048`.
fn shape(dimensions: &[usize]) -> String {
    dimensions.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_has_the_same_products_around_attention_of_every_kind() {
        let around = |kind| {
            let mut config = RunConfig::default();
            config.model.decoder_attention.kind = kind;
            let layer = Layer::from_config(&config, (0, 6), Some(4096)).expect("a layer");
            (layer.forward_flops - layer.attention_flops, layer.attention_flops)
        };
        let (full, pairs) = around(AttentionKind::Full);
        let (sparse, visible) = around(AttentionKind::Sparse);
        let (linear, sums) = around(AttentionKind::Linear);
        let (performer, _) = around(AttentionKind::Performer);
        assert!(full == sparse && full == linear && full == performer, "{full} {sparse} {linear}");
        assert!(sums < visible && visible < pairs, "{sums} {visible} {pairs}");
    }
}
