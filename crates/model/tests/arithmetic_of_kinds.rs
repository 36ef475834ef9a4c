//! Tests of the number of operations in the products of each kind of attention. The number that the
//! formula gives is compared with the number that is counted while attention runs, and with the
//! numbers that torch counts for other implementations
//! (`scripts/golden/attention/attention_flops.py`).

mod common;

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use common::golden;
use taper_model::{
    AttentionConfig, AttentionKind, ModelConfig, Pass, Positions, UnprojectedAttention,
};
use taper_ops::profile;
use taper_ops::rng::Counter;

fn attention(
    own: &AttentionConfig,
    causal: bool,
    (d_model, heads): (usize, usize),
) -> UnprojectedAttention {
    let other = AttentionConfig::default();
    let positions = match own.kind {
        AttentionKind::TransformerXl => Positions::None,
        _ => Positions::Sinusoidal,
    };
    let (encoder_attention, decoder_attention) =
        if causal { (other, own.clone()) } else { (own.clone(), other) };
    let model = ModelConfig {
        d_model,
        heads,
        positions,
        encoder_attention,
        decoder_attention,
        ..ModelConfig::default()
    };
    UnprojectedAttention::new(&model, causal, 0).unwrap()
}

/// Counts the operations in products while `attention` runs on one sequence of normally distributed
/// numbers. The operations of all threads are counted, and no other test in this file multiplies.
fn counted(attention: &UnprojectedAttention, length: usize) -> f64 {
    let (width, counter) = (attention.input_width(), Counter::new(7));
    let values = (0..length * width).map(|i| counter.normal_at(i as u64) as f32);
    let input = Tensor::from_iter(values, &Device::Cpu).unwrap();
    let input = input.reshape((length, width)).unwrap();
    let lengths: Arc<[usize]> = [length].into();
    profile::start();
    attention.attend(&input, &lengths, &Pass::evaluate()).unwrap();
    profile::stop().flops as f64
}

/// Returns every kind of attention, some of them with several settings. The sizes of chunks,
/// segments and windows are proportional to `size`.
fn kinds(size: usize) -> Vec<AttentionConfig> {
    let of = |kind| AttentionConfig {
        kind,
        window: 4 * size,
        features: size + size / 2,
        rank: size,
        length: 4096,
        hash_rounds: 2,
        hash_buckets: 8,
        hash_chunk: size,
        chunk: size,
        segment: size,
        memory: size,
        ..AttentionConfig::default()
    };
    let mut found = AttentionKind::ALL.map(of).to_vec();
    let random = AttentionConfig { block: size, window: 2, random: 2, ..of(AttentionKind::Sparse) };
    found.push(AttentionConfig { global_first: 1, ..random });
    found.push(AttentionConfig { dilation: 3, ..of(AttentionKind::Sparse) });
    found.push(AttentionConfig { memory: 0, ..of(AttentionKind::TransformerXl) });
    found.push(AttentionConfig { memory: 3 * size, ..of(AttentionKind::TransformerXl) });
    let levels = AttentionConfig { chunk: size / 4, levels: 9, ..of(AttentionKind::Hierarchical) };
    found.push(levels);
    found.push(AttentionConfig { hash_rounds: 1, ..of(AttentionKind::Reformer) });
    found.push(AttentionConfig { hash_buckets: 1, hash_rounds: 3, ..of(AttentionKind::Reformer) });
    found
}

#[test]
fn products_are_as_many_as_the_formula_says() {
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for (size, widths) in [(16, (32, 2)), (64, (96, 4))] {
        for own in kinds(size) {
            for causal in [false, true] {
                match own.kind {
                    AttentionKind::TransformerXl if !causal => continue,
                    AttentionKind::Linformer if causal => continue,
                    _ => {}
                }
                let attention = attention(&own, causal, widths);
                for length in [1, 50, 256, 1000, 1024, 4096] {
                    let ratio = counted(&attention, length) / attention.forward_flops(length);
                    checked += 1;
                    // The formula of a Reformer uses the expected number of chunks. In a short
                    // sequence there are few chunks, so their number can differ more from the
                    // expected one.
                    let hashes = own.kind == AttentionKind::Reformer && causal;
                    let bound = if hashes && length < 256 { 0.5 } else { 0.05 };
                    let is_right = (ratio - 1.0).abs() <= bound;
                    if !is_right {
                        wrong.push(format!("{own:?}, causal {causal}, {length}: {ratio}"));
                    }
                }
            }
        }
    }
    assert!(checked > 250, "{checked}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn products_are_as_many_as_others_have() {
    let reference = golden("attention/attention-flops");
    let own = AttentionConfig {
        features: 48,
        rank: 40,
        length: 4096,
        hash_rounds: 3,
        hash_buckets: 8,
        hash_chunk: 32,
        chunk: 32,
        segment: 32,
        memory: 96,
        ..AttentionConfig::default()
    };
    let kinds = [
        ("full", AttentionKind::Full),
        ("performer", AttentionKind::Performer),
        ("linformer", AttentionKind::Linformer),
        ("reformer", AttentionKind::Reformer),
        ("transformer_xl", AttentionKind::TransformerXl),
        ("hierarchical", AttentionKind::Hierarchical),
    ];
    let mut checked = 0;
    for (name, kind) in kinds {
        let causal = kind == AttentionKind::TransformerXl;
        let attention = attention(&AttentionConfig { kind, ..own.clone() }, causal, (64, 4));
        for length in [256, 1024, 4096] {
            let flops = &reference[&format!("{name}.{length}")];
            let flops: f64 =
                flops.to_dtype(DType::F64).unwrap().sum_all().unwrap().to_scalar().unwrap();
            let ratio = attention.forward_flops(length) / flops;
            assert!((0.95..1.05).contains(&ratio), "{name}, {length}: {ratio}");
            checked += 1;
        }
    }
    assert_eq!(checked, reference.len());
}
