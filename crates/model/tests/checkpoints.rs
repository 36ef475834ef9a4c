//! Test of the memory that a pass uses if layers are computed again during the backward pass.

use candle_core::{DType, Device};
use std::alloc::System;
use taper_model::{Batch, Builder, LanguageModel, Model, ModelConfig, Objective, Pass, Sequences};
use taper_ops::Gradients;
use taper_ops::allocator::{Explaining, counted};

#[global_allocator]
static ALLOCATOR: Explaining<System> = Explaining(System);

const TOKENS: usize = 512;

/// Returns two numbers of bytes for a model with `decoder_layers` layers: the largest number that
/// is in use during the forward and backward pass, and the number that is kept by formula. With
/// `checkpoints`, layers are computed again during the backward pass.
fn peak(decoder_layers: usize, checkpoints: bool) -> (f64, f64) {
    let shape = ModelConfig { d_model: 64, d_ff: 256, heads: 2, ..ModelConfig::default() };
    let shape = ModelConfig { decoder_layers, ..shape };
    let model =
        LanguageModel::new(&shape, 8, Builder::seeded(1, &Device::Cpu, DType::F32)).unwrap();
    let ids: Vec<u32> = (0..TOKENS as u32).map(|i| i % 8).collect();
    let texts: Vec<&[u32]> = ids.chunks(64).collect();
    let batch = Batch::new(vec![Sequences::pack(&texts)], ids.clone());
    let mut gradients = Gradients::new(model.parameters()).unwrap();
    let (_, bytes) = counted(|| {
        let pass = Pass::train(1, 1, 0).checkpointed(checkpoints);
        let output = model.loss(&batch, &Objective::default(), 1.0, &pass).unwrap();
        pass.backward(&output, model.parameters(), &mut gradients).unwrap();
    });
    let formula = model.cost().checkpointed(checkpoints).activation_bytes(&[TOKENS], 64);
    (bytes.expect("the allocator counts").most as f64, formula as f64)
}

/// Checks how memory grows with the number of layers. Four times as many layers take about twice
/// the memory if layers are computed again during the backward pass, and about four times the
/// memory if their results are kept.
#[test]
fn memory_grows_with_the_root_of_the_layers() {
    peak(2, true); // Lets threads allocate what they keep for later work.
    let (short, long) = (peak(9, true), peak(36, true));
    let (short_kept, long_kept) = (peak(9, false), peak(36, false));
    let found = format!("{short:?}, {long:?}; kept {short_kept:?}, {long_kept:?}");
    assert!(long.0 < 2.4 * short.0, "{found}");
    assert!(long_kept.0 > 3.4 * short_kept.0, "{found}");
    let (few, all) = (peak(24, true), peak(24, false));
    assert!(3.0 * few.0 < all.0, "24 layers: {few:?}, all kept {all:?}");
    // The formula estimates the bytes that are kept. In addition, a layer needs room for the
    // gradients of its results.
    for (bytes, formula) in [short, long, few, long_kept, all] {
        assert!((0.6..1.5).contains(&(bytes / formula)), "{bytes} bytes, {formula}: {found}");
    }
}
