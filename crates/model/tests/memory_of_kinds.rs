//! Tests of the memory that attention keeps for its backward pass. For every kind of attention, the
//! formula is compared with what the allocator counts, in f32 on a CPU.

use std::alloc::System;
use std::sync::Arc;

use candle_core::{Device, Tensor, Var};
use taper_model::{
    AttentionConfig, AttentionKind, ModelConfig, Pass, Positions, UnprojectedAttention,
};
use taper_ops::allocator::{Explaining, counted};
use taper_ops::composed;
use taper_ops::rng::Counter;

#[global_allocator]
static ALLOCATOR: Explaining<System> = Explaining(System);

/// Number of tokens of a chunk, of a segment and of a memory in all settings of these tests. It is
/// also the number of sums of keys of a Linformer.
const CHUNK: usize = 32;

fn shape(own: AttentionConfig, causal: bool, dropout: f64) -> ModelConfig {
    let other = AttentionConfig::default();
    let positions = match own.kind {
        AttentionKind::TransformerXl => Positions::None,
        _ => Positions::Sinusoidal,
    };
    let (encoder_attention, decoder_attention) = if causal { (other, own) } else { (own, other) };
    ModelConfig {
        d_model: 64,
        d_ff: 128,
        heads: 4,
        positions,
        encoder_attention,
        decoder_attention,
        ..ModelConfig::default().with_dropout(dropout)
    }
}

/// Returns every kind of attention, with several settings for the kinds that have several forms.
/// The flag is `true` for a decoder and `false` for an encoder; a kind that supports both is listed
/// with both.
fn kinds() -> Vec<(AttentionConfig, bool)> {
    let mut found = Vec::new();
    for kind in AttentionKind::ALL {
        let own = AttentionConfig {
            kind,
            window: 64,
            features: 48,
            rank: CHUNK,
            length: 4096,
            hash_rounds: 2,
            hash_buckets: 8,
            hash_chunk: CHUNK,
            chunk: CHUNK,
            segment: CHUNK,
            memory: CHUNK,
            ..AttentionConfig::default()
        };
        if kind != AttentionKind::TransformerXl {
            found.push((own.clone(), false));
        }
        if kind != AttentionKind::Linformer {
            found.push((own.clone(), true));
        }
        match kind {
            AttentionKind::TransformerXl => {
                found.push((AttentionConfig { memory: 0, ..own.clone() }, true));
                found.push((AttentionConfig { memory: 100, ..own }, true));
            }
            AttentionKind::Hierarchical => {
                found.push((AttentionConfig { chunk: 8, levels: 3, ..own.clone() }, false));
                found.push((AttentionConfig { chunk: 8, levels: 3, ..own }, true));
            }
            AttentionKind::Reformer => {
                found.push((AttentionConfig { hash_rounds: 1, ..own.clone() }, true));
                found.push((AttentionConfig { hash_buckets: 1, hash_rounds: 4, ..own }, true));
            }
            _ => {}
        }
    }
    found
}

/// Returns how many bytes more are in use after `work` than before, while the result of `work`
/// still exists. This is the median of several runs, because another thread can be late to free its
/// memory, or can allocate memory when it is first used.
fn kept<R>(work: impl Fn() -> R) -> f64 {
    let mut bytes = [0; 7].map(|_| {
        let (result, bytes) = counted(&work);
        drop(result);
        bytes.expect("the allocator counts").kept
    });
    bytes.sort_unstable();
    bytes[3] as f64
}

#[test]
fn what_attention_keeps_is_known_by_formula() {
    let mut wrong = Vec::new();
    for (own, causal) in kinds() {
        for (length, dropout) in
            [(96, 0.0), (300, 0.0), (512, 0.1), (1000, 0.0), (1024, 0.0), (2048, 0.1)]
        {
            let config = shape(own.clone(), causal, dropout);
            let attention = UnprojectedAttention::new(&config, causal, 0).unwrap();
            let width = attention.input_width();
            let counter = Counter::new(7);
            let values = (0..length * width).map(|i| counter.normal_at(i as u64) as f32);
            let values = Tensor::from_iter(values, &Device::Cpu).unwrap();
            let input = Var::from_tensor(&values.reshape((length, width)).unwrap()).unwrap();
            let lengths: Arc<[usize]> = [length].into();
            let run = |attends: bool| {
                let pass = Pass::train(1, 1, 0);
                // The input is the result of an operation that is recorded for the backward pass,
                // as it would be after a projection.
                let input = composed::on_tape(pass.tape(), "input", &[&input], |inputs| {
                    inputs[0].affine(1.0, 0.0)
                });
                let input = input.unwrap();
                let out = attends.then(|| attention.attend(&input, &lengths, &pass).unwrap());
                (pass, input, out)
            };
            let bytes = kept(|| run(true)) - kept(|| run(false));
            let ratio = bytes / attention.kept_bytes(length);
            if !(0.95..1.05).contains(&ratio) {
                wrong.push(format!("{own:?}, causal {causal}, {length}, {dropout}: {ratio}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
