//! Compares every fused operation with the same operation composed of Candle's, and with finite
//! differences, in f64.

#[path = "../common/mod.rs"]
mod common;

mod attention;
mod low_rank;

use attention::attention;
use candle_core::{DType, Device, Tensor, Var};
use common::{check, has_fused_multiply_adds, random, scalar};
use std::sync::Arc;
use taper_ops::{
    Activation, AttentionShape, AttentionSpec, CrossEntropySpec, Dropout, EmbeddingSpec, GatedSpec,
    Kernel, LinearSpec, NormSpec, NormedColumns, Pairs, Products, Rotations, Tape, Turns, composed,
};

#[test]
fn norms() {
    let inputs = [random(&[5, 19], 1), random(&[19], 2), random(&[19], 3)];
    for spec in [NormSpec::layer(1e-5), NormSpec::rms(1e-5)] {
        check(
            &format!("{spec:?}"),
            &inputs,
            &|tape, v| taper_ops::norm(tape, &v[0], &v[1], Some(&v[2]), &spec),
            &|v| composed::norm(&v[0], &v[1], Some(&v[2]), &spec),
        );
        check(
            &format!("{spec:?} without bias"),
            &inputs[..2],
            &|tape, v| taper_ops::norm(tape, &v[0], &v[1], None, &spec),
            &|v| composed::norm(&v[0], &v[1], None, &spec),
        );
    }
}

fn with_biases(v: &[Var]) -> [NormedColumns<'_>; 2] {
    [
        NormedColumns { columns: 8, weight: &v[1], bias: Some(&v[2]) },
        NormedColumns { columns: 6, weight: &v[3], bias: Some(&v[4]) },
    ]
}

fn without_biases(v: &[Var]) -> [NormedColumns<'_>; 2] {
    [
        NormedColumns { columns: 8, weight: &v[1], bias: None },
        NormedColumns { columns: 6, weight: &v[2], bias: None },
    ]
}

/// Tests groups of two widths, next to columns that are not normalised.
#[test]
fn norms_of_columns() {
    for spec in [NormSpec::layer(1e-5), NormSpec::rms(1e-5)] {
        let x = random(&[5, 19], 1);
        let [short, long] = [4, 6].map(|width| [random(&[width], 2), random(&[width], 3)]);
        check(
            &format!("{spec:?} of columns"),
            &[x.clone(), short[0].clone(), short[1].clone(), long[0].clone(), long[1].clone()],
            &|tape, v| taper_ops::norm_columns(tape, &v[0], &with_biases(v), &spec),
            &|v| composed::norm_columns(&v[0], &with_biases(v), &spec),
        );
        check(
            &format!("{spec:?} of columns without bias"),
            &[x, short[0].clone(), long[0].clone()],
            &|tape, v| taper_ops::norm_columns(tape, &v[0], &without_biases(v), &spec),
            &|v| composed::norm_columns(&v[0], &without_biases(v), &spec),
        );
    }
    let wide = NormedColumns { columns: 6, weight: &random(&[4], 1), bias: None };
    let error = taper_ops::norm_columns(None, &random(&[2, 8], 1), &[wide], &NormSpec::rms(1e-5));
    assert!(error.unwrap_err().to_string().contains("groups [(6, 4)]"));
}

#[test]
fn gates() {
    let x = [random(&[6, 14], 1)];
    for activation in ACTIVATIONS {
        for rate in [0.0, 0.4] {
            let spec = GatedSpec { activation, dropout: Dropout::new(rate, 77) };
            check(
                &format!("gate of {activation:?}, dropout {rate}"),
                &x,
                &|tape, v| taper_ops::gated(tape, &v[0], &spec),
                &|v| composed::gated(&v[0], &spec),
            );
        }
    }
    let odd = taper_ops::gated(None, &random(&[2, 3], 1), &GatedSpec::default()).unwrap_err();
    assert!(odd.to_string().contains("no two halves"), "{odd}");
}

const ACTIVATIONS: [Activation; 8] = [
    Activation::Identity,
    Activation::Relu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Swish,
    Activation::QuickGelu,
    Activation::Tanh,
    Activation::Sigmoid,
];

#[test]
fn linear() {
    for activation in ACTIVATIONS {
        for rate in [0.0, 0.4] {
            let spec =
                LinearSpec { activation, dropout: Dropout::new(rate, 77), ..Default::default() };
            let inputs =
                [random(&[6, 5], 1), random(&[7, 5], 2), random(&[7], 3), random(&[6, 7], 4)];
            check(
                &format!("linear {activation:?} {rate}"),
                &inputs[..3],
                &|tape, v| taper_ops::linear(tape, &v[0], &v[1], Some(&v[2]), None, &spec),
                &|v| composed::linear(&v[0], &v[1], Some(&v[2]), None, &spec),
            );
            check(
                &format!("linear without bias {activation:?} {rate}"),
                &inputs[..2],
                &|tape, v| taper_ops::linear(tape, &v[0], &v[1], None, None, &spec),
                &|v| composed::linear(&v[0], &v[1], None, None, &spec),
            );
            check(
                &format!("linear onto a residual {activation:?} {rate}"),
                &inputs,
                &|tape, v| taper_ops::linear(tape, &v[0], &v[1], Some(&v[2]), Some(&v[3]), &spec),
                &|v| composed::linear(&v[0], &v[1], Some(&v[2]), Some(&v[3]), &spec),
            );
        }
    }
}

#[test]
fn loss() {
    for (smoothing, r_drop) in [(0.0, 0.0), (0.1, 0.0), (0.0, 0.7), (0.1, 3.0)] {
        let targets = [3, 0, 6, 6, 2, 5];
        let spec = CrossEntropySpec { smoothing, r_drop, scale: 0.2, products: Products::F32 };
        let inputs = [random(&[6, 4], 1), random(&[7, 4], 2)];
        let name = format!("cross entropy, smoothing {smoothing}, R-Drop {r_drop}");
        check(
            &name,
            &inputs,
            &|tape, v| Ok(taper_ops::smoothed_cross_entropy(tape, &v[0], &v[1], &targets, &spec)?.0),
            &|v| Ok(composed::smoothed_cross_entropy(&v[0], &v[1], &targets, &spec)?.0),
        );
        let (_, ours) = taper_ops::smoothed_cross_entropy(
            Some(&Tape::new()),
            &inputs[0],
            &inputs[1],
            &targets,
            &spec,
        )
        .unwrap();
        let (_, theirs) =
            composed::smoothed_cross_entropy(&inputs[0], &inputs[1], &targets, &spec).unwrap();
        assert!(
            (ours.nll - theirs.nll).abs() < 1e-9 && (ours.smoothed - theirs.smoothed).abs() < 1e-9
        );
        assert!(
            (ours.divergence - theirs.divergence).abs() < 1e-9
                && (ours.divergence > 0.1) == (r_drop > 0.0)
        );
        assert_eq!(ours.correct, theirs.correct);
        let inputs = [random(&[6, 4], 1), random(&[7, 4], 2), random(&[7], 3)];
        check(
            &format!("{name}, with biases"),
            &inputs,
            &|tape, v| {
                let (x, weight, bias) = (&v[0], &v[1], Some(v[2].as_tensor()));
                Ok(taper_ops::biased_cross_entropy(tape, x, weight, bias, &targets, &spec)?.0)
            },
            &|v| {
                let (x, weight) = composed::with_bias_column(None, &v[0], &v[1], &v[2])?;
                Ok(composed::smoothed_cross_entropy(&x, &weight, &targets, &spec)?.0)
            },
        );
    }
}

/// Compares biases that are added to logits with biases that are an additional column of the
/// matrix. With the kernel for AVX2, which adds the terms of each sum one after the other, the bits
/// are the same.
#[test]
fn biases_of_logits_are_a_column_of_the_matrix() {
    let (rows, width, classes) = (600, 40, 1100);
    let wide = |shape: &[usize], key| {
        Var::from_tensor(&random(shape, key).to_dtype(DType::F32).unwrap()).unwrap()
    };
    let inputs = [wide(&[rows, width], 1), wide(&[classes, width], 2), wide(&[classes], 3)];
    let targets: Vec<u32> = (0..rows as u32).map(|row| row * 7 % classes as u32).collect();
    let one = Tensor::ones((), DType::F32, &Device::Cpu).unwrap();
    for r_drop in [0.0, 0.5] {
        let spec =
            CrossEntropySpec { smoothing: 0.1, r_drop, scale: 0.01, products: Products::F32 };
        let run = |is_column: bool| {
            let tape = Tape::new();
            let [x, weight, bias] = inputs.each_ref().map(|input| input.as_tensor());
            let (loss, sums) = if is_column {
                let (x, weight) = composed::with_bias_column(Some(&tape), x, weight, bias).unwrap();
                taper_ops::smoothed_cross_entropy(Some(&tape), &x, &weight, &targets, &spec)
            } else {
                let bias = Some(bias);
                taper_ops::biased_cross_entropy(Some(&tape), x, weight, bias, &targets, &spec)
            }
            .unwrap();
            let gradients = tape.differentiate(&loss, &one).unwrap();
            let of = |input: &Var| gradients.get(input).unwrap().unwrap().flatten_all().unwrap();
            let values = inputs.each_ref().map(|input| of(input).to_vec1::<f32>().unwrap());
            (sums, values.concat())
        };
        let ((sums, ours), (column_sums, theirs)) = (run(false), run(true));
        assert_eq!(sums.correct, column_sums.correct);
        let largest = theirs.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let is_exact = Kernel::best(Products::F32) == Kernel::Fma256;
            let bound = if is_exact { 0.0 } else { 1e-5 * theirs.abs() + 1e-6 * largest };
            assert!((ours - theirs).abs() <= bound, "{ours} {theirs}");
        }
    }
}

#[test]
fn embedding() {
    for rate in [0.0, 0.3] {
        let spec = EmbeddingSpec {
            ids: [1, 4, 1, 0].into(),
            positions: [0, 1, 2, 0].into(),
            scale: 2.0,
            dropout: Dropout::new(rate, 3),
        };
        let inputs = [random(&[5, 6], 1), random(&[3, 6], 2)];
        check(
            "embedding",
            &inputs[..1],
            &|tape, v| taper_ops::embedding(tape, &v[0], None, &spec),
            &|v| composed::embedding(&v[0], None, &spec),
        );
        check(
            "embedding with positions",
            &inputs,
            &|tape, v| taper_ops::embedding(tape, &v[0], Some(&v[1]), &spec),
            &|v| composed::embedding(&v[0], Some(&v[1]), &spec),
        );
    }
}

#[test]
fn rotary() {
    let positions: Arc<[u32]> = [0, 1, 2, 0, 1].into();
    let inputs = [random(&[5, 24], 1)];
    let rotations = Rotations { factor: 4.0, original_length: 40.0, slow: 0.5, fast: 4.0 };
    let plain = Turns::default();
    for turns in [
        plain,
        plain.interpolated(3.5),
        plain.ntk(8.0, 4),
        plain.of_pairs(Pairs::Interleaved),
        plain.of_width(2),
        plain.of_width(2).of_pairs(Pairs::Interleaved),
        Turns::with_base(50.0).llama3(rotations),
        plain.yarn(rotations, None).of_pairs(Pairs::Interleaved),
    ] {
        check(
            "rotary",
            &inputs,
            &|tape, v| taper_ops::rotary(tape, &v[0], (&positions, turns), 4, 16),
            &|v| composed::rotary(&v[0], (&positions, turns), 4, 16),
        );
    }
}

#[test]
fn impossible_shapes_are_errors() {
    let (x, weight) = (random(&[2, 3], 1), random(&[4, 5], 2));
    let (tape, spec) = (
        Tape::new(),
        CrossEntropySpec { smoothing: 0.1, r_drop: 0.0, scale: 1.0, products: Products::F32 },
    );
    let tape = Some(&tape);
    assert!(taper_ops::linear(tape, &x, &weight, None, None, &LinearSpec::default()).is_err());
    assert!(
        taper_ops::smoothed_cross_entropy(tape, &x, &random(&[4, 3], 2), &[1, 4], &spec)
            .unwrap_err()
            .to_string()
            .contains("target 4")
    );
    let paired = CrossEntropySpec { r_drop: 1.0, ..spec };
    let odd = taper_ops::smoothed_cross_entropy(
        tape,
        &random(&[3, 3], 1),
        &random(&[4, 3], 2),
        &[0, 1, 2],
        &paired,
    );
    assert!(odd.unwrap_err().to_string().contains("3 rows are no pairs"));
    let spec = attention(&[2], &[3], false, false, 0.0);
    assert!(
        taper_ops::self_attention(tape, &random(&[2, 18], 1), None, &spec)
            .unwrap_err()
            .to_string()
            .contains("lengths sum to")
    );
    let lookup = EmbeddingSpec {
        ids: [9].into(),
        positions: [0].into(),
        scale: 1.0,
        dropout: Dropout::none(),
    };
    assert!(
        taper_ops::embedding(tape, &weight, None, &lookup)
            .unwrap_err()
            .to_string()
            .contains("id 9")
    );
}

/// Checks that an input of several operations gets the sum of the gradients that these operations
/// compute for it. The same must hold if the input is recomputed in the backward pass.
#[test]
fn adjoints_add_up() {
    let inputs = [random(&[4, 6], 1), random(&[6, 6], 2), random(&[6], 3), random(&[6], 4)];
    let spec = LinearSpec { activation: Activation::Swish, ..Default::default() };
    check(
        "a residual block",
        &inputs,
        &|tape, v| {
            let x = taper_ops::linear(tape, &v[0], &v[1], None, None, &spec)?;
            let normal = taper_ops::norm(tape, &x, &v[2], Some(&v[3]), &NormSpec::layer(1e-5))?;
            taper_ops::linear(tape, &normal, &v[1], Some(&v[3]), Some(&x), &spec)
        },
        &|v| {
            let x = composed::linear(&v[0], &v[1], None, None, &spec)?;
            let normal = composed::norm(&x, &v[2], Some(&v[3]), &NormSpec::layer(1e-5))?;
            composed::linear(&normal, &v[1], Some(&v[3]), Some(&x), &spec)
        },
    );
}

/// Checks that the tape refuses inputs if gradients through them would be lost. Without a tape,
/// Candle's graph must be complete.
#[test]
fn no_gradient_is_lost_in_silence() {
    let (x, weight) = (random(&[4, 6], 1), random(&[3, 6], 2));
    let squared = x.sqr().unwrap();
    let tape = Tape::new();
    let error =
        taper_ops::linear(Some(&tape), &squared, &weight, None, None, &LinearSpec::default())
            .unwrap_err();
    assert!(error.to_string().contains("does not know"), "{error}");
    let out =
        taper_ops::linear(None, &squared, &weight, None, None, &LinearSpec::default()).unwrap();
    let gradients = scalar(&out).unwrap().backward().unwrap();
    assert!(gradients.get(&x).is_some() && gradients.get(&weight).is_some());
}

/// Checks that dropout, attention and loss give the same bits on any number of threads, in f32 and
/// with bf16 products. There are so many rows that the products for weight gradients are divided
/// among threads.
#[test]
fn results_do_not_depend_on_threads() {
    for (products, r_drop) in
        [(Products::F32, 0.0), (Products::Bf16, 0.0), (Products::F32, 1.0), (Products::Bf16, 1.0)]
    {
        let run = |threads: usize| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
                let wide = |shape: &[usize], key| {
                    Var::from_tensor(&random(shape, key).to_dtype(DType::F32).unwrap()).unwrap()
                };
                let (x, weight, table) =
                    (wide(&[1100, 24], 1), wide(&[72, 24], 2), wide(&[300, 24], 3));
                let tape = Tape::new();
                let linear = LinearSpec {
                    activation: Activation::Gelu,
                    dropout: Dropout::new(0.1, 1),
                    products,
                };
                let qkv = taper_ops::linear(Some(&tape), &x, &weight, None, None, &linear).unwrap();
                let shape = AttentionShape::with_heads(2, 12);
                let plain = attention(&[50; 22], &[50; 22], true, false, 0.1);
                let spec = AttentionSpec { products, shape, ..plain };
                let hidden = taper_ops::self_attention(Some(&tape), &qkv, None, &spec).unwrap();
                let targets: Vec<u32> = (0..1100).map(|i| i % 300).collect();
                let spec =
                    CrossEntropySpec { smoothing: 0.1, r_drop, scale: 1.0 / 1100.0, products };
                let (loss, _) = taper_ops::smoothed_cross_entropy(
                    Some(&tape),
                    &hidden,
                    &table,
                    &targets,
                    &spec,
                )
                .unwrap();
                let one = Tensor::ones((), DType::F32, &Device::Cpu).unwrap();
                let gradients = tape.differentiate(&loss, &one).unwrap();
                let bits = |x: &Tensor| {
                    x.flatten_all()
                        .unwrap()
                        .to_vec1::<f32>()
                        .unwrap()
                        .into_iter()
                        .map(f32::to_bits)
                        .collect::<Vec<_>>()
                };
                let gradient = |x: &Var| bits(&gradients.get(x).unwrap().unwrap());
                (bits(&loss), gradient(&x), gradient(&weight), gradient(&table))
            })
        };
        let one = run(1);
        assert_eq!(one, run(2));
        assert_eq!(one, run(5));
    }
}

/// Compares the loss that recomputes its logits, if this machine supports it, with the composed
/// one, in f32. Some sizes do not fill whole blocks.
#[test]
fn a_loss_of_many_blocks() {
    let shapes = [
        (3, 5, 4, 0.0),
        (300, 1100, 40, 0.0),
        (513, 700, 64, 0.0),
        (2, 5, 4, 2.0),
        (300, 1100, 40, 2.0),
        (514, 700, 64, 0.5),
    ];
    for (rows, classes, width, r_drop) in shapes {
        let wide = |shape: &[usize], key| {
            Var::from_tensor(&(random(shape, key).to_dtype(DType::F32).unwrap() * 0.3).unwrap())
                .unwrap()
        };
        let (hidden, weight) = (wide(&[rows, width], 1), wide(&[classes, width], 2));
        let targets: Vec<u32> = (0..rows as u32).map(|i| i * 7 % classes as u32).collect();
        let spec = CrossEntropySpec {
            smoothing: 0.1,
            r_drop,
            scale: 1.0 / rows as f64,
            products: Products::F32,
        };
        let tape = Tape::new();
        let (ours, our_sums) =
            taper_ops::smoothed_cross_entropy(Some(&tape), &hidden, &weight, &targets, &spec)
                .unwrap();
        let (theirs, their_sums) =
            composed::smoothed_cross_entropy(&hidden, &weight, &targets, &spec).unwrap();
        assert_eq!(our_sums.correct, their_sums.correct);
        assert!(
            (our_sums.smoothed / their_sums.smoothed - 1.0).abs() < 1e-6
                && (our_sums.nll / their_sums.nll - 1.0).abs() < 1e-6
        );
        assert!((our_sums.divergence - their_sums.divergence).abs() < 1e-6 * their_sums.nll);
        let one = Tensor::ones((), DType::F32, &Device::Cpu).unwrap();
        let ours = tape.differentiate(&ours, &one).unwrap();
        let theirs = theirs.backward().unwrap();
        for input in [&hidden, &weight] {
            let (ours, theirs) = (ours.get(input).unwrap().unwrap(), theirs.get(input).unwrap());
            let norm =
                |x: &Tensor| x.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap().sqrt();
            let error = norm(&(ours - theirs).unwrap()) / norm(theirs);
            // Without fused multiply-adds, every product of two numbers is rounded before it is
            // added.
            let bound = if has_fused_multiply_adds() { 2e-6 } else { 4e-6 };
            assert!(error < bound, "{rows} × {classes}: {error}");
        }
    }
}

#[test]
fn every_kernel() {
    common::again_through_every_kernel("every_kernel");
}
