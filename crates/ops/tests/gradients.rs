//! Every fused operation against its composed oracle and against finite differences, in f64.

use candle_core::{DType, Device, Result, Tensor, Var};
use std::sync::Arc;
use taper_ops::rng::{Counter, mix};
use taper_ops::{Activation, Attention, Dropout, Embedding, composed};

fn random(shape: &[usize], key: u64) -> Var {
    let counter = Counter::new(mix(11, &[key]));
    let values: Vec<f64> = (0..shape.iter().product::<usize>() as u64).map(|i| counter.normal_at(i)).collect();
    Var::from_tensor(&Tensor::from_vec(values, shape, &Device::Cpu).unwrap()).unwrap()
}

fn values(x: &Tensor) -> Vec<f64> {
    x.flatten_all().unwrap().to_vec1().unwrap()
}

/// A scalar that weighs every element of a result differently, so that no gradient can hide.
fn scalar(out: &Tensor) -> Result<Tensor> {
    let count = out.elem_count();
    let weights: Vec<f64> = (0..count).map(|i| (i as f64 * 0.7).sin() + 0.3).collect();
    (out.flatten_all()? * Tensor::from_vec(weights, count, out.device())?)?.sum_all()
}

type Op<'a> = &'a dyn Fn(&[Var]) -> Result<Tensor>;

/// Compares values and gradients of the fused operation with the composed one and with central differences.
fn check(name: &str, inputs: &[Var], fused: Op<'_>, oracle: Op<'_>) {
    let (ours, theirs) = (fused(inputs).unwrap(), oracle(inputs).unwrap());
    for (i, (ours, theirs)) in values(&ours).iter().zip(values(&theirs)).enumerate() {
        assert!((ours - theirs).abs() < 1e-9 * (1.0 + theirs.abs()), "{name}: element {i}: {ours}, composed {theirs}");
    }
    let ours = scalar(&ours).unwrap().backward().unwrap();
    let theirs = scalar(&theirs).unwrap().backward().unwrap();
    for (number, input) in inputs.iter().enumerate() {
        let gradient = values(ours.get(input).unwrap_or_else(|| panic!("{name}: input {number} got no gradient")));
        let composed = values(theirs.get(input).unwrap());
        let start = values(input);
        for i in 0..start.len() {
            assert!(
                (gradient[i] - composed[i]).abs() < 1e-8 * (1.0 + composed[i].abs()),
                "{name}: gradient {i} of input {number}: {}, composed {}",
                gradient[i],
                composed[i]
            );
            let at = |step: f64| {
                let mut moved = start.clone();
                moved[i] += step;
                input.set(&Tensor::from_vec(moved, input.dims(), &Device::Cpu).unwrap()).unwrap();
                scalar(&fused(inputs).unwrap()).unwrap().to_scalar::<f64>().unwrap()
            };
            let step = 1e-5;
            let difference = (at(step) - at(-step)) / (2.0 * step);
            assert!(
                (gradient[i] - difference).abs() < 1e-6 * (1.0 + difference.abs()),
                "{name}: gradient {i} of input {number}: {}, finite difference {difference}",
                gradient[i]
            );
        }
        input.set(&Tensor::from_vec(start, input.dims(), &Device::Cpu).unwrap()).unwrap();
    }
}

#[test]
fn layer_norm() {
    let inputs = [random(&[5, 19], 1), random(&[19], 2), random(&[19], 3)];
    check("layer norm", &inputs, &|v| taper_ops::layer_norm(&v[0], &v[1], &v[2], 1e-5), &|v| {
        composed::layer_norm(&v[0], &v[1], &v[2], 1e-5)
    });
}

#[test]
fn linear() {
    for activation in [Activation::Identity, Activation::Relu, Activation::Gelu, Activation::Swish] {
        for rate in [0.0, 0.4] {
            let dropout = Dropout::new(rate, 77);
            let inputs = [random(&[6, 5], 1), random(&[7, 5], 2), random(&[7], 3)];
            check(
                &format!("linear {activation:?} {rate}"),
                &inputs,
                &|v| taper_ops::linear(&v[0], &v[1], Some(&v[2]), activation, dropout),
                &|v| composed::linear(&v[0], &v[1], Some(&v[2]), activation, dropout),
            );
            check(
                &format!("linear without bias {activation:?} {rate}"),
                &inputs[..2],
                &|v| taper_ops::linear(&v[0], &v[1], None, activation, dropout),
                &|v| composed::linear(&v[0], &v[1], None, activation, dropout),
            );
        }
    }
}

#[test]
fn residual() {
    for rate in [0.0, 0.3] {
        let inputs = [random(&[4, 9], 1), random(&[4, 9], 2)];
        let dropout = Dropout::new(rate, 5);
        check("residual", &inputs, &|v| taper_ops::residual(&v[0], &v[1], dropout), &|v| composed::residual(&v[0], &v[1], dropout));
    }
}

fn attention(queries: &[usize], keys: &[usize], causal: bool, alibi: bool, rate: f64) -> Attention {
    Attention {
        heads: 2,
        query_lengths: queries.into(),
        key_lengths: keys.into(),
        causal,
        query_start: 0,
        slopes: alibi.then(|| Arc::from([0.5, 0.25])),
        dropout: Dropout::new(rate, 9),
    }
}

#[test]
fn self_attention() {
    for (causal, alibi, rate) in [(false, false, 0.0), (true, false, 0.0), (true, true, 0.3), (false, true, 0.0), (false, false, 0.5)] {
        let spec = attention(&[3, 1, 4], &[3, 1, 4], causal, alibi, rate);
        let inputs = [random(&[8, 18], 1), random(&[2, 5, 5], 2)];
        let name = format!("self-attention, causal {causal}, alibi {alibi}, dropout {rate}");
        check(&name, &inputs[..1], &|v| taper_ops::self_attention(&v[0], None, &spec), &|v| composed::self_attention(&v[0], None, &spec));
        check(&format!("{name}, bias"), &inputs, &|v| taper_ops::self_attention(&v[0], Some(&v[1]), &spec), &|v| {
            composed::self_attention(&v[0], Some(&v[1]), &spec)
        });
    }
}

#[test]
fn cross_attention() {
    for rate in [0.0, 0.4] {
        let spec = attention(&[2, 3, 1], &[4, 1, 3], false, false, rate);
        let inputs = [random(&[6, 6], 1), random(&[8, 12], 2), random(&[2, 3, 4], 3)];
        check("cross-attention", &inputs[..2], &|v| taper_ops::cross_attention(&v[0], &v[1], None, &spec), &|v| {
            composed::cross_attention(&v[0], &v[1], None, &spec)
        });
        check("cross-attention, bias", &inputs, &|v| taper_ops::cross_attention(&v[0], &v[1], Some(&v[2]), &spec), &|v| {
            composed::cross_attention(&v[0], &v[1], Some(&v[2]), &spec)
        });
    }
}

#[test]
fn a_source_without_queries_is_skipped() {
    let spec = attention(&[2, 0, 1], &[4, 1, 3], false, false, 0.0);
    let (query, key_value) = (random(&[3, 6], 1), random(&[8, 12], 2));
    let ours = values(&taper_ops::cross_attention(&query, &key_value, None, &spec).unwrap());
    let theirs = values(&composed::cross_attention(&query, &key_value, None, &spec).unwrap());
    assert!(ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-12));
}

#[test]
fn loss() {
    for smoothing in [0.0, 0.1] {
        let targets = [3, 0, 6, 6, 2];
        let inputs = [random(&[5, 4], 1), random(&[7, 4], 2)];
        check("cross entropy", &inputs, &|v| Ok(taper_ops::smoothed_cross_entropy(&v[0], &v[1], &targets, smoothing, 0.2)?.0), &|v| {
            Ok(composed::smoothed_cross_entropy(&v[0], &v[1], &targets, smoothing, 0.2)?.0)
        });
        let (_, ours) = taper_ops::smoothed_cross_entropy(&inputs[0], &inputs[1], &targets, smoothing, 0.2).unwrap();
        let (_, theirs) = composed::smoothed_cross_entropy(&inputs[0], &inputs[1], &targets, smoothing, 0.2).unwrap();
        assert!((ours.nll - theirs.nll).abs() < 1e-9 && (ours.smoothed - theirs.smoothed).abs() < 1e-9);
        assert_eq!(ours.correct, theirs.correct);
    }
}

#[test]
fn embedding() {
    for rate in [0.0, 0.3] {
        let spec = Embedding { ids: [1, 4, 1, 0].into(), positions: [0, 1, 2, 0].into(), scale: 2.0, dropout: Dropout::new(rate, 3) };
        let inputs = [random(&[5, 6], 1), random(&[3, 6], 2)];
        check("embedding", &inputs[..1], &|v| taper_ops::embedding(&v[0], None, &spec), &|v| composed::embedding(&v[0], None, &spec));
        check("embedding with positions", &inputs, &|v| taper_ops::embedding(&v[0], Some(&v[1]), &spec), &|v| {
            composed::embedding(&v[0], Some(&v[1]), &spec)
        });
    }
}

#[test]
fn rotary() {
    let positions: Arc<[u32]> = [0, 1, 2, 0, 1].into();
    let inputs = [random(&[5, 24], 1)];
    check("rotary", &inputs, &|v| taper_ops::rotary(&v[0], &positions, 2, 8, 2), &|v| composed::rotary(&v[0], &positions, 4, 16));
}

#[test]
fn impossible_shapes_are_errors() {
    let (x, weight) = (random(&[2, 3], 1), random(&[4, 5], 2));
    assert!(taper_ops::linear(&x, &weight, None, Activation::Identity, Dropout::none()).is_err());
    assert!(taper_ops::smoothed_cross_entropy(&x, &random(&[4, 3], 2), &[1, 4], 0.1, 1.0).unwrap_err().to_string().contains("target 4"));
    let spec = attention(&[2], &[3], false, false, 0.0);
    assert!(taper_ops::self_attention(&random(&[2, 12], 1), None, &spec).unwrap_err().to_string().contains("lengths sum to"));
    let lookup = Embedding { ids: [9].into(), positions: [0].into(), scale: 1.0, dropout: Dropout::none() };
    assert!(taper_ops::embedding(&weight, None, &lookup).unwrap_err().to_string().contains("id 9"));
}

#[test]
fn results_do_not_depend_on_threads() {
    let run = |threads: usize| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
            let x = random(&[700, 24], 1).to_dtype(DType::F32).unwrap();
            let weight = Var::from_tensor(&random(&[72, 24], 2).to_dtype(DType::F32).unwrap()).unwrap();
            let table = Var::from_tensor(&random(&[300, 24], 3).to_dtype(DType::F32).unwrap()).unwrap();
            let qkv = taper_ops::linear(&x, &weight, None, Activation::Gelu, Dropout::new(0.1, 1)).unwrap();
            let spec = attention(&[35; 20], &[35; 20], true, false, 0.1);
            let hidden = taper_ops::self_attention(&qkv, None, &spec).unwrap();
            let targets: Vec<u32> = (0..700).map(|i| i % 300).collect();
            let (loss, _) = taper_ops::smoothed_cross_entropy(&hidden, &table, &targets, 0.1, 1.0 / 700.0).unwrap();
            let gradients = loss.backward().unwrap();
            let bits = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>();
            (bits(&loss), bits(gradients.get(&weight).unwrap()), bits(gradients.get(&table).unwrap()))
        })
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(5));
}
