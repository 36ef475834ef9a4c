//! `taper inspect`: what a model is made of and what it costs.

use anyhow::{Context, Result, bail};
use candle_core::{DType, Device};
use taper_data::TokenizerPair;
use taper_model::Transformer;
use taper_ops::{Kernel, Products};
use taper_trainer::Parent;

use crate::arguments::Inspect;
use crate::text::print_line;
use taper_run::RunFolder;
use taper_run::checks::cost::{Cost, bytes, grouped, scaled};
use taper_run::checks::device;
use taper_run::checks::memory;
use taper_run::config::{RunConfig, trained_with};
use taper_run::translation::require_unedited;

/// Runs the command.
pub(crate) fn run(arguments: &Inspect) -> Result<()> {
    let target = &arguments.target;
    let mut parent = None;
    let (config, source, output) = if target.is_dir() {
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
        (config, tokenizers.source().vocabulary_size(), tokenizers.target().vocabulary_size())
    } else {
        let config = RunConfig::load(target, &arguments.overrides.set)?;
        if config.data.tokenizer.path.is_some() {
            let tokenizers = TokenizerPair::train(&config.data)?;
            (config, tokenizers.source().vocabulary_size(), tokenizers.target().vocabulary_size())
        } else {
            // Before training, the vocabulary is as large as the recipe allows.
            let size = config.data.tokenizer.vocabulary_size;
            (config, size, size)
        }
    };
    memory::require_weights(&config, source, output)?;
    let seed = config.training.seed;
    let model = Transformer::new(&config.model, source, output, seed, &Device::Cpu, DType::F32)
        .context("cannot build the model")?;
    let device = device::open(&config.device)?;
    let cost = Cost::of(&config, &model, &device);
    if arguments.json {
        return print_json(&config, &device, &model, &cost, (source, output), parent.as_ref());
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
    let shape = &config.model;
    for line in [
        String::new(),
        format!(
            "layers       {} encoder, {} decoder; width {}, feed-forward {}, {} heads",
            shape.encoder_layers, shape.decoder_layers, shape.d_model, shape.d_ff, shape.heads
        ),
        format!("vocabulary   {source} source, {output} target"),
        format!("parameters   {}", grouped(cost.parameters)),
        format!(
            "FLOPs        forward: {} a source token, {} a target token; training: {} a pair of them",
            scaled(cost.encoder_flops_per_token),
            scaled(cost.decoder_flops_per_token),
            scaled(cost.training_flops_per_token_pair)
        ),
        format!(
            "memory       {} for weights, gradients and moments; about {} for a batch of {} tokens a side",
            bytes(cost.training_state_bytes),
            bytes(cost.activation_bytes),
            config.data.batching.planned_tokens()
        ),
        format!("operations   {}", path(&device, &config.dtype)),
    ] {
        print_line(&line)?;
    }
    if let Some(Parent { path, step, sha256 }) = &parent {
        print_line(&format!(
            "parent       first weights from {}, step {step}, sha256 {sha256}",
            path.display()
        ))?;
    }
    Ok(())
}

fn print_json(
    config: &RunConfig,
    device: &Device,
    model: &Transformer,
    cost: &Cost,
    (source, target): (usize, usize),
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
        "model": config.model,
        "source_vocabulary": source,
        "target_vocabulary": target,
        "cost": cost,
        "operations": path(device, &config.dtype),
        "parent": parent,
        "parameters": parameters,
    });
    print_line(&serde_json::to_string_pretty(&record)?)
}

/// Which implementation the operations have on a device.
fn path(device: &Device, dtype: &str) -> String {
    if !device.is_cpu() {
        return format!(
            "{}: composed of Candle's, in {dtype}; products by the device's library",
            device::describe(device)
        );
    }
    let Ok(dtype) = device::dtype(dtype, device) else {
        return format!("cpu: none; products in {dtype} need a GPU");
    };
    let products = Products::of(dtype, device);
    let rounding = match products {
        Products::Bf16 => "operands rounded to bf16",
        Products::F32 => "in f32",
    };
    let kernel = Kernel::best(products);
    let how = match (kernel, products) {
        (Kernel::Tiles, Products::F32) => ", on operands split in three bf16 parts",
        (Kernel::Tiles | Kernel::Dots, _) | (_, Products::F32) => "",
        (_, Products::Bf16) => ", no faster than f32: this processor has no bf16 products",
    };
    let (instructions, name) = (kernel.instructions(), kernel.name());
    format!("cpu: all fused; products {rounding}, by {instructions} ({name}){how}")
}

/// `512 x 2048`.
fn shape(dimensions: &[usize]) -> String {
    dimensions.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ")
}
