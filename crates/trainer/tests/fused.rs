//! Compares training with fused operations and training with plain Candle operations, whose
//! gradients Candle computes.

mod common;

use std::sync::atomic::AtomicBool;

use candle_core::{DType, Device};
use common::{Generated, Task, VOCABULARY, tiny};
use taper_model::{
    Architecture, Builder, CellKind, Model, ModelConfig, NormPlacement, Positions,
    RecurrentAttention, RecurrentConfig, Transformer,
};
use taper_ops::Kernel;
use taper_trainer::{
    DueUpdate, OptimizerConfig, Outcome, Position, Source, TrainingConfig, Updater,
};

const STEPS: u64 = 20;

/// Loss per token of each of the first [`STEPS`] updates of a model with this norm placement and
/// these position encodings. `compute`: type of the operands of matrix products. `composed`:
/// whether plain Candle operations are used.
fn losses(norm: NormPlacement, positions: Positions, compute: DType, composed: bool) -> Vec<f64> {
    let config = ModelConfig {
        d_model: 64,
        d_ff: 96,
        heads: 4,
        encoder_layers: 2,
        decoder_layers: 2,
        norm,
        positions,
        ..ModelConfig::default().with_dropout(0.0)
    };
    losses_of(&config, compute, composed)
}

/// Loss per token of each of the first [`STEPS`] updates of a model with this configuration.
fn losses_of(config: &ModelConfig, compute: DType, composed: bool) -> Vec<f64> {
    let model =
        Transformer::new(config, VOCABULARY, VOCABULARY, Builder::seeded(3, &Device::Cpu, compute))
            .unwrap();
    // Adam divides by the size of a gradient. With a small ε, a gradient that consists only of
    // rounding errors would cause a full step.
    let optimizer_config = OptimizerConfig { epsilon: 1e-4, ..Default::default() };
    let training = TrainingConfig {
        clip_norm: 1.0,
        label_smoothing: 0.1,
        optimizer: optimizer_config,
        ..Default::default()
    };
    let mut updater = Updater::new(model.parameters(), &training).unwrap();
    if composed {
        updater = updater.with_composed_operations();
    }
    let mut source = Generated { rows: 40, ..Generated::new(Task::Reverse) };
    (1..=STEPS)
        .map(|step| {
            let batch = source.batch(Position { epoch: 0, index: step }).unwrap();
            let stop = AtomicBool::new(false);
            let due = DueUpdate { step, learning_rate: 3e-3, loss_limit: f64::INFINITY };
            match updater.update(&model, &training, due, &[batch], &stop).unwrap() {
                Outcome::Made(measured) => measured.loss(),
                other => panic!("step {step}: {other:?}"),
            }
        })
        .collect()
}

/// Largest relative difference between values of two series; NaN if any of them is NaN.
fn difference(ours: &[f64], theirs: &[f64]) -> f64 {
    let apart = ours.iter().zip(theirs).map(|(ours, theirs)| (ours / theirs - 1.0).abs());
    // `total_cmp` orders NaN after infinity, so a NaN is returned as the maximum.
    apart.max_by(f64::total_cmp).unwrap()
}

#[test]
fn fused_training_is_plain_training() {
    for (norm, positions) in [
        (NormPlacement::Pre, Positions::Sinusoidal),
        (NormPlacement::Post, Positions::Learned),
        (NormPlacement::Pre, Positions::T5),
        (NormPlacement::Post, Positions::Rotary),
    ] {
        let (fused, plain) =
            (losses(norm, positions, DType::F32, false), losses(norm, positions, DType::F32, true));
        assert!(
            plain[STEPS as usize - 1] < 0.9 * plain[0],
            "{norm:?} {positions:?}: nothing learned: {plain:?}"
        );
        let error = difference(&fused, &plain);
        assert!(
            error < 1e-5,
            "{norm:?} {positions:?}: losses differ by {error}: {fused:?}, plain {plain:?}"
        );
    }
}

#[test]
fn so_it_is_with_each_architecture() {
    let recurrent = |cell, attention| ModelConfig {
        architecture: Architecture::Recurrent,
        recurrent: RecurrentConfig { cell, width: 48, attention, ..RecurrentConfig::default() },
        ..tiny(0.0)
    };
    for config in [
        recurrent(CellKind::Gru, RecurrentAttention::Additive),
        recurrent(CellKind::Lstm, RecurrentAttention::Dot),
        ModelConfig { architecture: Architecture::Convolutional, ..tiny(0.0) },
    ] {
        let (fused, plain) =
            (losses_of(&config, DType::F32, false), losses_of(&config, DType::F32, true));
        let name = format!("{:?} {:?}", config.architecture, config.recurrent);
        assert!(plain[STEPS as usize - 1] < 0.95 * plain[0], "{name}: nothing learned: {plain:?}");
        let error = difference(&fused, &plain);
        assert!(error < 1e-5, "{name}: losses differ by {error}: {fused:?}, plain {plain:?}");
    }
}

/// Checks matrix products whose operands are rounded to bf16 (8 significant bits). Their losses
/// differ from the losses in f32, but by no more than this rounding explains.
#[test]
fn bf16_products_stay_within_their_rounding() {
    let (bf16, f32) = (
        losses(NormPlacement::Pre, Positions::Sinusoidal, DType::BF16, false),
        losses(NormPlacement::Pre, Positions::Sinusoidal, DType::F32, true),
    );
    let error = difference(&bf16, &f32);
    assert!(error < 1e-2, "losses differ by {error}: {bf16:?}, f32 {f32:?}");
    // In f32, fused and plain training differ by less than this.
    assert!(error > 1e-5, "the products were not rounded: {error}");
}

/// Runs all other tests of this file again with each kernel for matrix products that this machine
/// supports. Each kernel needs a process of its own, because a process chooses its kernel only
/// once.
#[test]
fn every_kernel() {
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_here()) {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let output = again
            .args(["--skip", "every_kernel"])
            .env("TAPER_KERNEL", kernel.name())
            .output()
            .unwrap();
        assert!(output.status.success(), "{kernel:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}
