//! Compares operations with the layers, losses and optimizer of candle-nn, an independent
//! implementation.
#![allow(clippy::disallowed_methods, reason = "Candle's own products")]

mod common;

use candle_core::{D, DType, Device, Tensor, Var};
use candle_nn::{Module, Optimizer, ParamsAdamW};
use common::{adjoint, random, scalar, values};
use std::sync::Arc;
use taper_ops::{
    Activation, AdamStep, AttentionShape, AttentionSpec, CrossEntropySpec, Dropout, EmbeddingSpec,
    LinearSpec, NormSpec, ParameterStore, Products, Tape,
};

fn close(name: &str, ours: &Tensor, theirs: &Tensor, bound: f64) {
    assert_eq!(ours.dims(), theirs.dims(), "{name}");
    let wide = |x: &Tensor| values(&x.to_dtype(DType::F64).unwrap());
    for (i, (ours, theirs)) in wide(ours).iter().zip(wide(theirs)).enumerate() {
        assert!(
            (ours - theirs).abs() <= bound * (1.0 + theirs.abs()),
            "{name}: element {i}: {ours}, candle-nn {theirs}"
        );
    }
}

/// Compares the result of an operation on the tape, and the gradient with respect to each input,
/// with those of candle-nn. Candle's autodiff differentiates the operation of candle-nn.
fn agree(
    name: &str,
    inputs: &[Var],
    ours: impl Fn(&Tape, &[Var]) -> Tensor,
    theirs: impl Fn(&[Var]) -> Tensor,
) {
    let tape = Tape::new();
    let (out, reference) = (ours(&tape, inputs), theirs(inputs));
    close(name, &out, &reference, 1e-10);
    let gradients = tape.differentiate(&out, &adjoint(&out)).unwrap();
    let references = scalar(&reference).unwrap().backward().unwrap();
    for input in inputs {
        close(name, &gradients.get(input).unwrap().unwrap(), references.get(input).unwrap(), 1e-9);
    }
}

#[test]
fn an_rms_norm_is_that_of_candle_nn() {
    let spec = NormSpec::rms(1e-5);
    agree(
        "RMS norm",
        &[random(&[5, 19], 1), random(&[19], 2)],
        |tape, v| taper_ops::norm(Some(tape), &v[0], &v[1], None, &spec).unwrap(),
        |v| candle_nn::ops::rms_norm_slow(&v[0], &v[1], 1e-5).unwrap(),
    );
}

#[test]
fn a_layer_norm_is_that_of_candle_nn() {
    agree(
        "layer norm",
        &[random(&[5, 19], 1), random(&[19], 2), random(&[19], 3)],
        |tape, v| {
            taper_ops::norm(Some(tape), &v[0], &v[1], Some(&v[2]), &NormSpec::layer(1e-5)).unwrap()
        },
        |v| {
            let (weight, bias) = (v[1].as_tensor().clone(), v[2].as_tensor().clone());
            // candle-nn's fused layer norm does not support f64.
            candle_nn::ops::layer_norm_slow(&v[0], &weight, &bias, 1e-5).unwrap()
        },
    );
}

#[test]
fn a_linear_layer_with_swish_is_that_of_candle_nn() {
    let spec = LinearSpec { activation: Activation::Swish, ..Default::default() };
    agree(
        "linear",
        &[random(&[6, 5], 1), random(&[7, 5], 2), random(&[7], 3)],
        |tape, v| taper_ops::linear(Some(tape), &v[0], &v[1], Some(&v[2]), None, &spec).unwrap(),
        |v| {
            let (weight, bias) = (v[1].as_tensor().clone(), v[2].as_tensor().clone());
            let out = candle_nn::Linear::new(weight, Some(bias)).forward(&v[0]).unwrap();
            candle_nn::ops::silu(&out).unwrap()
        },
    );
}

#[test]
fn an_embedding_is_that_of_candle_nn() {
    let ids = [3_u32, 0, 3, 8];
    agree(
        "embedding",
        &[random(&[9, 4], 1)],
        |tape, v| {
            let spec = EmbeddingSpec {
                ids: ids.into(),
                positions: Arc::default(),
                scale: 1.0,
                dropout: Dropout::none(),
            };
            taper_ops::embedding(Some(tape), &v[0], None, &spec).unwrap()
        },
        |v| {
            let ids = Tensor::new(&ids, &Device::Cpu).unwrap();
            candle_nn::Embedding::new(v[0].as_tensor().clone(), 4).forward(&ids).unwrap()
        },
    );
}

#[test]
fn attention_of_one_sequence_is_a_softmax_of_candle_nn() {
    let (length, heads, width) = (7, 2, 6);
    let spec = AttentionSpec::new(AttentionShape::dividing(width, heads), [length]);
    agree(
        "attention",
        &[random(&[length, 3 * width], 1)],
        |tape, v| taper_ops::self_attention(Some(tape), &v[0], None, &spec).unwrap(),
        |v| {
            let part = |i: usize| {
                let part = v[0].narrow(1, i * width, width).unwrap().contiguous().unwrap();
                let split = part.reshape((length, heads, width / heads)).unwrap();
                split.transpose(0, 1).unwrap().contiguous().unwrap() // (H, T, Dh)
            };
            let scores = part(0).matmul(&part(1).t().unwrap().contiguous().unwrap()).unwrap();
            let scores = (scores / ((width / heads) as f64).sqrt()).unwrap();
            let weights = candle_nn::ops::softmax(&scores, D::Minus1).unwrap();
            let out = weights.matmul(&part(2)).unwrap(); // (H, T, Dh)
            out.transpose(0, 1).unwrap().contiguous().unwrap().reshape((length, width)).unwrap()
        },
    );
}

#[test]
fn the_cross_entropy_is_that_of_candle_nn() {
    let targets = [4_u32, 0, 2, 2, 1];
    let spec = CrossEntropySpec {
        smoothing: 0.0,
        r_drop: 0.0,
        scale: 1.0 / targets.len() as f64,
        products: Products::F32,
    };
    agree(
        "cross entropy",
        &[random(&[5, 4], 1), random(&[6, 4], 2)],
        |tape, v| {
            taper_ops::smoothed_cross_entropy(Some(tape), &v[0], &v[1], &targets, &spec).unwrap().0
        },
        |v| {
            let logits = v[0].matmul(&v[1].t().unwrap()).unwrap();
            let targets = Tensor::new(&targets, &Device::Cpu).unwrap();
            candle_nn::loss::cross_entropy(&logits, &targets).unwrap()
        },
    );
}

#[test]
fn steps_of_adamw_are_those_of_candle_nn() {
    let (rows, columns) = (3, 5);
    let initial: Vec<f32> =
        values(&random(&[rows, columns], 1)).iter().map(|&x| x as f32).collect();
    let mut store = ParameterStore::new(&Device::Cpu);
    let weight = store.add("weight", &[rows, columns], initial.clone()).unwrap();
    let theirs =
        Var::from_tensor(&Tensor::from_vec(initial, (rows, columns), &Device::Cpu).unwrap())
            .unwrap();
    let parameters =
        ParamsAdamW { lr: 0.01, beta1: 0.9, beta2: 0.98, eps: 1e-8, weight_decay: 0.1 };
    let mut optimizer = candle_nn::AdamW::new(vec![theirs.clone()], parameters).unwrap();
    let total = rows * columns;
    let zeros = || Tensor::zeros(total, DType::F32, &Device::Cpu).unwrap();
    let mut moments = [zeros(), zeros()];
    for step in 1..=5 {
        // The loss is the sum of the squares of the parameters.
        let loss = theirs.sqr().unwrap().sum_all().unwrap();
        let gradient = (store.flat().unwrap() * 2.0).unwrap();
        optimizer.backward_step(&loss).unwrap();
        let numbers = AdamStep {
            learning_rate: 0.01,
            beta1: 0.9,
            beta2: 0.98,
            epsilon: 1e-8,
            weight_decay: 0.1,
            decoupled: true,
            step,
            gradient_scale: 1.0,
        };
        taper_ops::adam_step(&store, 0..total, &gradient, &mut moments, &numbers).unwrap();
        close("AdamW", &weight, &theirs, 1e-6);
    }
}
