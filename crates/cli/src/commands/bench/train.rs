//! `taper bench train`: measures the speed of training steps. The batches come from a file that
//! other programs can also read, so that the speed of several programs can be compared.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use candle_core::DType;
use safetensors::SafeTensors;
use taper_model::{Batch, Builder, Model, ModelConfig, Sequences, TranslationModel};
use taper_ops::profile::{self, Prediction, Profile};
use taper_ops::{Kernel, Products};
use taper_trainer::{OptimizerConfig, TrainingConfig};

use super::{cores, round};
use crate::arguments::{BenchTrain, Preset};
use crate::text::print_line;
use taper_run::checks::device;
use taper_run::checks::memory;
use taper_run::config::RunConfig;
use taper_run::numbers::bytes;
use taper_run::tasks::{TaskModel, require_task};
use taper_run::training::{Arithmetic, Peak, TimedUpdates};

/// Constant learning rate.
const LEARNING_RATE: f64 = 1e-4;

/// Runs the command.
pub(crate) fn run(arguments: &BenchTrain) -> Result<()> {
    ensure!(arguments.steps != 0, "--steps 0: there is nothing to measure");
    cores::check(&arguments.cores)?;
    taper_ops::allocator::keep_freed_pages();
    let batches = read_batches(&arguments.batches, arguments.vocab)?;
    let device = device::open(&arguments.device)?;
    let dtype = device::dtype(&arguments.dtype, &device)?;
    let config = shape(arguments)?;
    let (builder, vocabulary) = (Builder::seeded(1, &device, dtype), arguments.vocab);
    let model = TranslationModel::new(&config, vocabulary, vocabulary, builder)
        .context("cannot build the model")?;
    let training = training(arguments.r_drop);
    training.check()?;
    let mut updates = TimedUpdates::new(&model, &training, LEARNING_RATE)?;
    if arguments.composed {
        updates = updates.with_composed_operations();
    }
    let mut step = |index: usize| -> Result<(f64, u64)> {
        let batch = std::slice::from_ref(&batches[index % batches.len()]);
        let measured = updates.make(batch)?;
        Ok((measured.loss(), measured.tokens))
    };
    for index in 0..arguments.warmup {
        step(index)?;
    }
    let kernel = (device.is_cpu() && !arguments.composed)
        .then(|| Kernel::best(Products::for_model(dtype, &device)));
    let mut peak = kernel.map(|_| Peak::new(dtype, &device));
    cores::start(&arguments.cores);
    profile::start();
    let (mut loss, mut tokens, mut seconds) = (0.0, 0, 0.0);
    for index in 0..arguments.steps {
        let start = Instant::now();
        let (step_loss, step_tokens) = step(arguments.warmup + index)?;
        device.synchronize().context("cannot wait for the device")?;
        seconds += start.elapsed().as_secs_f64();
        loss = step_loss;
        tokens += step_tokens;
        peak.iter_mut().for_each(Peak::measure);
    }
    let profile = profile::stop();
    let report = Report {
        seconds,
        loss,
        tokens,
        arithmetic: Arithmetic::from_profile(&profile, seconds, peak.as_ref()),
        profile,
        regions: profile::predicted(),
        meeting: if arguments.cores.is_empty() { 0.0 } else { cores::meeting() },
        parameters: model.parameters().len(),
        dtype,
        kernel,
    };
    report.show(arguments)
}

/// Returns the training settings of the measured updates.
fn training(r_drop: f64) -> TrainingConfig {
    TrainingConfig {
        seed: 1,
        label_smoothing: 0.1,
        r_drop,
        clip_norm: 1.0,
        optimizer: OptimizerConfig { beta1: 0.9, beta2: 0.98, epsilon: 1e-9, ..Default::default() },
        ..Default::default()
    }
}

struct Report {
    seconds: f64,
    /// Loss of the last step, in nats per target token.
    loss: f64,
    /// Target tokens of all steps.
    tokens: u64,
    profile: Profile,
    arithmetic: Arithmetic,
    /// Parallel regions of each operation; empty without `--cores`.
    regions: Prediction,
    /// Seconds for threads to begin and end a parallel region; 0 without `--cores`.
    meeting: f64,
    parameters: usize,
    /// Data type of the computation. For `--dtype auto`, it is the type that was chosen.
    dtype: DType,
    /// Matrix kernel of the fused operations; `None` unless they run on the CPU.
    kernel: Option<Kernel>,
}

impl Report {
    /// Prints the report, as JSON or as text for a person.
    fn show(&self, arguments: &BenchTrain) -> Result<()> {
        match arguments.json {
            true => print_line(&self.json(arguments).to_string()),
            false => self.print(arguments),
        }
    }

    fn json(&self, arguments: &BenchTrain) -> serde_json::Value {
        let steps = arguments.steps as f64;
        let rounded = |share: Option<f64>| share.map(|share| round(share, 4));
        let Arithmetic { gflops, peak_gflops, share_of_peak, operations } = &self.arithmetic;
        let shares: Vec<_> = operations
            .iter()
            .map(|one| {
                serde_json::json!({
                    "name": one.name,
                    "share": round(one.share, 4),
                    "of_peak": rounded(one.of_peak),
                })
            })
            .collect();
        serde_json::json!({
            "program": format!("taper {}", env!("CARGO_PKG_VERSION")),
            "preset": format!("{:?}", arguments.preset).to_lowercase(),
            "dtype": self.dtype.as_str(),
            "r_drop": arguments.r_drop,
            "device": arguments.device,
            "operations": if self.kernel.is_some() { "fused" } else { "composed" },
            "kernel": self.kernel.map(Kernel::name),
            "threads": rayon::current_num_threads(),
            "parameters": self.parameters,
            "steps": arguments.steps,
            "target_tokens_per_s": round(self.tokens as f64 / self.seconds, 1),
            "s_per_step": round(self.seconds / steps, 4),
            "gflops": round(*gflops, 1),
            "peak_gflops": peak_gflops.map(|peak| round(peak, 1)),
            "share_of_peak": rounded(*share_of_peak),
            "peak_memory_mib": memory::peak().map(|bytes| bytes >> 20),
            "last_loss": round(self.loss, 6),
            "time": shares,
            "cores": self.cores(arguments).json(),
        })
    }

    fn print(&self, arguments: &BenchTrain) -> Result<()> {
        let steps = arguments.steps as f64;
        let memory = memory::peak().map_or_else(|| "unknown".to_owned(), bytes);
        for line in [
            format!(
                "speed        {:.0} target tokens/s, {:.3} s a step",
                self.tokens as f64 / self.seconds,
                self.seconds / steps
            ),
            format!(
                "arithmetic   {:.0} GFLOP/s in matrix products ({})",
                self.arithmetic.gflops,
                self.kernel.map_or_else(
                    || "composed operations".to_owned(),
                    |kernel| format!("{} kernel", kernel.name())
                )
            ),
            format!("memory       {memory} at most"),
            format!("loss         {:.6} in the last step", self.loss),
        ] {
            print_line(&line)?;
        }
        if let (Some(peak), Some(share)) =
            (self.arithmetic.peak_gflops, self.arithmetic.share_of_peak)
        {
            print_line(&format!(
                "peak         {:.1} % of the {peak:.0} GFLOP/s that multiply-adds on registers have \
                 on {} threads",
                100.0 * share,
                rayon::current_num_threads()
            ))?;
            print_line("                      time  of peak     lost")?;
        }
        for one in &self.arithmetic.operations {
            let percent = |share: f64| format!("{:>7.1} %", 100.0 * share);
            let rest = one.of_peak.zip(one.lost()).map_or_else(String::new, |(of_peak, lost)| {
                format!("{}{}", percent(of_peak), percent(lost))
            });
            print_line(&format!("  {:<16}{}{rest}", one.name, percent(one.share)))?;
        }
        self.cores(arguments).print()
    }

    fn cores<'a>(&'a self, arguments: &'a BenchTrain) -> cores::Table<'a> {
        cores::Table {
            cores: &arguments.cores,
            profile: &self.profile,
            regions: &self.regions,
            seconds: self.seconds,
            steps: arguments.steps,
            meeting: self.meeting,
        }
    }
}

/// Returns the shape of the model in a recipe (a TOML file with the settings of a training), or of
/// a preset.
fn shape(arguments: &BenchTrain) -> Result<ModelConfig> {
    let (shape, rate) = match &arguments.recipe {
        Some(recipe) => {
            let config = RunConfig::load(recipe, &[])?;
            require_task(&config, TranslationModel::TASK)?;
            (config.model, None)
        }
        None => {
            let (shape, rate) = of_preset(arguments.preset);
            (shape, Some(rate))
        }
    };
    Ok(match arguments.dropout.or(rate) {
        Some(rate) => with_dropout(shape, rate),
        None => shape,
    })
}

/// Returns the shape of a preset, with its dropout.
pub(super) fn preset_shape(preset: Preset) -> ModelConfig {
    let (shape, rate) = of_preset(preset);
    with_dropout(shape, rate)
}

/// Returns the shape of a preset, and its dropout rate.
fn of_preset(preset: Preset) -> (ModelConfig, f64) {
    let (layers, d_model, heads, d_ff, rate) = match preset {
        Preset::Tiny => (4, 128, 4, 256, 0.3),
        Preset::Small => (4, 256, 4, 1024, 0.3),
        Preset::Base => (6, 512, 8, 2048, 0.1),
        Preset::Big => (6, 1024, 16, 4096, 0.3),
    };
    let stacks =
        ModelConfig { encoder_layers: layers, decoder_layers: layers, ..ModelConfig::default() };
    (ModelConfig { d_model, d_ff, heads, ..stacks }, rate)
}

fn with_dropout(shape: ModelConfig, rate: f64) -> ModelConfig {
    ModelConfig { ..shape.with_dropout(rate) }
}

/// Reads the tensors `src.N` and `tgt.N` of a safetensors file, for N = 0, 1, …, and packs each
/// pair of tensors as a batch.
///
/// # Errors
/// When the file is unreadable, or a tensor is invalid.
pub(super) fn read_batches(path: &Path, vocabulary: usize) -> Result<Vec<Batch>> {
    let bytes = std::fs::read(path).with_context(|| format!("{}: cannot read", path.display()))?;
    let tensors = SafeTensors::deserialize(&bytes)
        .with_context(|| format!("{}: not a safetensors file", path.display()))?;
    let mut batches = Vec::new();
    while let Ok(source) = tensors.tensor(&format!("src.{}", batches.len())) {
        let number = batches.len();
        let named = |name: &str| format!("{}: {name}.{number}", path.display());
        let target = tensors.tensor(&format!("tgt.{number}")).with_context(|| named("tgt"))?;
        let source = rows(&source, vocabulary).with_context(|| named("src"))?;
        let target = rows(&target, vocabulary).with_context(|| named("tgt"))?;
        ensure!(
            source.len() == target.len(),
            "{}: {} sentences, but {} in src.{number}",
            named("tgt"),
            target.len(),
            source.len()
        );
        ensure!(!source.is_empty(), "{}: no sentences", named("src"));
        ensure!(
            !source.iter().any(Vec::is_empty) && !target.iter().any(|row| row.len() < 2),
            "{}: a sentence is empty, or a target has no begin and end symbols",
            path.display()
        );
        let inputs: Vec<Vec<u32>> =
            target.iter().map(|row| row[..row.len() - 1].to_vec()).collect();
        let answers = target.iter().flat_map(|row| row[1..].iter().copied()).collect();
        let streams = vec![Sequences::pack(&source), Sequences::pack(&inputs)];
        batches.push(Batch::new(streams, answers));
    }
    if batches.is_empty() {
        bail!("{}: no batch; expected tensors src.0, tgt.0, src.1, …", path.display());
    }
    Ok(batches)
}

/// Returns the rows of an int32 matrix, without the zeros at their ends.
fn rows(tensor: &safetensors::tensor::TensorView<'_>, vocabulary: usize) -> Result<Vec<Vec<u32>>> {
    let &[_, width] = tensor.shape() else {
        bail!("expected a matrix, got shape {:?}", tensor.shape())
    };
    ensure!(tensor.dtype() == safetensors::Dtype::I32, "expected int32, got {:?}", tensor.dtype());
    let mut ids = Vec::new();
    for bytes in tensor.data().chunks_exact(4) {
        let id = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        match u32::try_from(id) {
            Ok(id) if (id as usize) < vocabulary => ids.push(id),
            _ => bail!("id {id} is not in a vocabulary of {vocabulary}"),
        }
    }
    let trimmed = |row: &[u32]| {
        row[..row.iter().rposition(|&id| id != 0).map_or(0, |last| last + 1)].to_vec()
    };
    Ok(ids.chunks_exact(width.max(1)).map(trimmed).collect())
}
