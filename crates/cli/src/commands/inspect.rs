//! `taper inspect`: what a model is made of and what it costs.

use anyhow::{Result, bail};
use candle_core::Device;
use taper_data::{Task, TokenizerKind, TokenizerPair};
use taper_model::Model;
use taper_trainer::Parent;

use crate::arguments::Inspect;
use crate::text::print_line;
use taper_run::RunFolder;
use taper_run::checks::computation::describe_operations;
use taper_run::checks::cost::{Cost, bytes, grouped, scaled};
use taper_run::checks::device;
use taper_run::config::{RunConfig, trained_with};
use taper_run::require_unedited;
use taper_run::tasks::{Vocabularies, build_any, vocabularies};

/// Runs the command.
pub(crate) fn run(arguments: &Inspect) -> Result<()> {
    let target = &arguments.target;
    let mut parent = None;
    let (config, sizes) = if target.is_dir() {
        let folder = RunFolder::open(target)?;
        let config = folder.load_config(&arguments.overrides.set)?;
        if let Some(state) = folder.last_state()? {
            let written = folder.load_config(&[])?;
            if let Some(trained) = trained_with(&state, &written)? {
                require_unedited(&folder, &written, &trained)?;
            }
            parent = state.parent;
        }
        if !TokenizerPair::exists(target) {
            bail!("{}: the run has no tokenizer.json", target.display());
        }
        let tokenizers = TokenizerPair::load(target)?;
        (config, vocabularies(&tokenizers))
    } else {
        let config = RunConfig::load(target, &arguments.overrides.set)?;
        let tokenizer = &config.data.tokenizer;
        if tokenizer.path.is_some() || tokenizer.kind == TokenizerKind::Char {
            let tokenizers = config.task.train_tokenizers(&config.data)?;
            (config, vocabularies(&tokenizers))
        } else {
            // Before training, the vocabulary is as large as the recipe allows.
            let size = tokenizer.vocabulary_size;
            (config, (size, size))
        }
    };
    let model = build_any(&config, sizes)?;
    let device = device::open(&config.device)?;
    let cost = Cost::of(&config, sizes, &device);
    if arguments.json {
        return print_json(&config, &device, model.as_ref(), &cost, sizes, parent.as_ref());
    }
    let name_width = model
        .parameters()
        .parameters()
        .iter()
        .map(|parameter| parameter.name().len())
        .max()
        .unwrap_or(0);
    for parameter in model.parameters().parameters() {
        print_line(&format!(
            "{:name_width$}  {:>14}  {:>12}",
            parameter.name(),
            shape(parameter.shape()),
            grouped(parameter.len() as u64)
        ))?;
    }
    print_line("")?;
    for line in summary(&config, sizes, &cost) {
        print_line(&line)?;
    }
    print_line(&format!("operations   {}", describe_operations(&device, &config.dtype)))?;
    if let Some(Parent { path, step, sha256 }) = &parent {
        print_line(&format!(
            "parent       first weights from {}, step {step}, sha256 {sha256}",
            path.display()
        ))?;
    }
    Ok(())
}

/// What the model is and costs, as its task has it.
fn summary(config: &RunConfig, (source, target): Vocabularies, cost: &Cost) -> [String; 5] {
    let shape = &config.model;
    let translates = config.task == Task::Translation;
    let layers = match translates {
        true => format!("{} encoder, {} decoder", shape.encoder_layers, shape.decoder_layers),
        false => shape.decoder_layers.to_string(),
    };
    let (forward, training) =
        (scaled(cost.decoder_flops_per_token), scaled(cost.training_flops_per_token_pair));
    [
        format!(
            "layers       {layers}; width {}, feed-forward {}, {} heads",
            shape.d_model, shape.d_ff, shape.heads
        ),
        match translates {
            true => format!("vocabulary   {source} source, {target} target"),
            false => format!("vocabulary   {target}"),
        },
        format!("parameters   {}", grouped(cost.parameters)),
        match translates {
            true => format!(
                "FLOPs        forward: {} a source token, {forward} a target token; training: {training} a pair of them",
                scaled(cost.encoder_flops_per_token)
            ),
            false => format!("FLOPs        a token: {forward} forward, {training} in training"),
        },
        format!(
            "memory       {} for weights, gradients and moments; about {} for a batch of {} tokens{}",
            bytes(cost.training_state_bytes),
            bytes(cost.activation_bytes),
            config.data.batching.planned_tokens(),
            if translates { " a side" } else { "" }
        ),
    ]
}

fn print_json(
    config: &RunConfig,
    device: &Device,
    model: &dyn Model,
    cost: &Cost,
    (source, target): Vocabularies,
    parent: Option<&Parent>,
) -> Result<()> {
    let parameters: Vec<_> = model
        .parameters()
        .parameters()
        .iter()
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
        "operations": describe_operations(device, &config.dtype),
        "parent": parent,
        "parameters": parameters,
    });
    print_line(&serde_json::to_string_pretty(&record)?)
}

/// `512 x 2048`.
fn shape(dimensions: &[usize]) -> String {
    dimensions.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ")
}
