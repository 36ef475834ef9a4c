//! What the graph of the composed operations keeps, as GPUs run them, against the estimate of it.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::{DType, Device};
use taper_model::{
    Batch, Builder, LanguageModel, Model, ModelConfig, NormPlacement, Objective, Pass, Positions,
    Sequences, Transformer,
};

/// The system's allocator, counting what is in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(size, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn texts(rows: usize, length: usize) -> Sequences {
    let text = |row: usize| (0..length).map(move |t| 4 + ((row * 7 + t * 3) % 90) as u32);
    Sequences::pack(&(0..rows).map(|row| text(row).collect::<Vec<u32>>()).collect::<Vec<_>>())
}

fn counted(model: &impl Model, batch: &Batch) -> (usize, usize) {
    let run = || {
        let pass = Pass::train(1, 1, 0).composed();
        let before = IN_USE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let output = model.loss(batch, &Objective::default(), 1.0, &pass).unwrap();
        let forward = IN_USE.load(Ordering::Relaxed) - before;
        let mut gradients = taper_ops::Gradients::new(model.parameters()).unwrap();
        pass.backward(&output, model.parameters(), &mut gradients).unwrap();
        (forward, PEAK.load(Ordering::Relaxed) - before)
    };
    run();
    run()
}

#[test]
fn the_estimate_is_what_is_counted() {
    for (rows, length) in [(32, 16), (8, 64), (2, 256)] {
        for dropout in [0.0, 0.1] {
            for (norm, positions) in [
                (NormPlacement::Pre, Positions::Sinusoidal),
                (NormPlacement::Post, Positions::Sinusoidal),
                (NormPlacement::Pre, Positions::Rotary),
                (NormPlacement::Pre, Positions::T5),
            ] {
                let config = ModelConfig {
                    d_model: 64,
                    d_ff: 256,
                    heads: 4,
                    encoder_layers: 4,
                    decoder_layers: 4,
                    norm,
                    positions,
                    embedding_dropout: dropout,
                    attention_dropout: dropout,
                    feed_forward_dropout: dropout,
                    residual_dropout: dropout,
                    ..Default::default()
                };
                let builder = || Builder::seeded(3, &Device::Cpu, DType::F32);
                let text = texts(rows, length);
                let tokens = rows * length;
                let model = Transformer::new(&config, 100, 100, builder()).unwrap();
                let batch = Batch {
                    streams: vec![text.clone(), text.clone()],
                    answers: text.ids.clone(),
                    ..Default::default()
                };
                let (forward, peak) = counted(&model, &batch);
                let kept = model.cost().activation_bytes(&[tokens; 2]) as f64;
                let lm = LanguageModel::new(&config, 100, builder()).unwrap();
                let batch = Batch {
                    streams: vec![text.clone()],
                    answers: text.ids.clone(),
                    ..Default::default()
                };
                let (lf, lp) = counted(&lm, &batch);
                let lk = lm.cost().activation_bytes(&[tokens]) as f64;
                println!(
                    "{rows}x{length} drop {dropout} {norm:?} {positions:?}: mt {:.2} {:.2} kept/token {:.0} scalars/D {:.1}; lm {:.2} {:.2}",
                    forward as f64 / kept,
                    peak as f64 / kept,
                    kept / 4.0 / tokens as f64,
                    forward as f64 / 4.0 / tokens as f64 / 64.0,
                    lf as f64 / lk,
                    lp as f64 / lk,
                );
            }
        }
    }
}
