//! Tests low-rank adapters, and layers whose own weights are constants.

use super::common::{check, random, values};
use candle_core::{DType, Tensor, Var};
use taper_ops::{
    Activation, CrossEntropySpec, Dropout, EmbeddingSpec, Factors, LinearSpec, LowRankSpec,
    NormSpec, Products, Tape,
    composed::{self, CountedProduct},
};

fn spec(input: f64, output: f64) -> LowRankSpec {
    LowRankSpec {
        scale: 1.75,
        input_dropout: Dropout::new(input, 5),
        dropout: Dropout::new(output, 77),
        products: Products::F32,
    }
}

/// Factors of adapters for matrices with 4 and 3 rows, of ranks 2 and 3.
fn factors(v: &[Var]) -> Vec<Factors> {
    let one = |down: &Var, up: &Var| Factors {
        down: down.as_tensor().clone(),
        up: up.as_tensor().clone(),
    };
    v.chunks_exact(2).map(|pair| one(&pair[0], &pair[1])).collect()
}

#[test]
fn low_rank() {
    let inputs = [
        random(&[6, 5], 1),
        random(&[6, 7], 2),
        random(&[2, 5], 3),
        random(&[4, 2], 4),
        random(&[3, 5], 5),
        random(&[3, 3], 6),
    ];
    for (input, output) in [(0.0, 0.0), (0.3, 0.0), (0.0, 0.4), (0.3, 0.4)] {
        let spec = spec(input, output);
        check(
            &format!("low rank {input} {output}"),
            &inputs,
            &|tape, v| taper_ops::low_rank(tape, &v[0], &v[1], &factors(&v[2..]), &spec),
            &|v| composed::low_rank(&v[0], &v[1], &factors(&v[2..]), &spec),
        );
    }
    // A layer and its adapters with the same dropout mask on their outputs give the same as a layer
    // with the matrix `W + s · B A`.
    let layer = LinearSpec { dropout: Dropout::new(0.4, 77), ..Default::default() };
    let [x, residual, down, up] =
        [random(&[6, 5], 1), random(&[6, 7], 2), random(&[2, 5], 3), random(&[7, 2], 4)];
    let weight = random(&[7, 5], 7);
    let all = factors(&[down, up]);
    let change = (all[0].up.times(&all[0].down).unwrap() * 1.75).unwrap();
    let changed = (weight.as_tensor() + change).unwrap();
    let whole = composed::linear(&x, &changed, None, Some(&residual), &layer).unwrap();
    let base = composed::linear(&x, &weight, None, Some(&residual), &layer).unwrap();
    let parts = composed::low_rank(&x, &base, &all, &spec(0.0, 0.4)).unwrap();
    for (one, other) in values(&whole).iter().zip(values(&parts)) {
        assert!((one - other).abs() < 1e-12, "{one} {other}");
    }
    let error = taper_ops::low_rank(None, &x, &x, &all, &spec(0.0, 0.0)).unwrap_err();
    assert!(error.to_string().contains("low rank"), "{error}");
}

#[test]
fn activations() {
    for activation in super::ACTIVATIONS {
        for rate in [0.0, 0.4] {
            if activation == Activation::Identity && rate == 0.0 {
                continue;
            }
            let dropout = Dropout::new(rate, 77);
            check(
                &format!("{activation:?} {rate}"),
                &[random(&[5, 6], 1)],
                &|tape, v| taper_ops::activation(tape, &v[0], activation, dropout),
                &|v| composed::activation(&v[0], activation, dropout),
            );
        }
    }
}

/// Checks that constants get no gradient, and that layers of constants pass on the gradients of
/// earlier layers. The same must hold within parts of the network that the backward pass computes
/// again.
#[test]
fn constants_get_no_gradient_and_pass_it_on() {
    let [table, weight, gain, classes] =
        [random(&[9, 6], 1), random(&[6, 6], 2), random(&[6], 3), random(&[11, 6], 4)]
            .map(|var| var.as_detached_tensor());
    let (down, up) = (random(&[2, 6], 5), random(&[6, 2], 6));
    let relu = LinearSpec { activation: Activation::Relu, ..Default::default() };
    let lookup = EmbeddingSpec {
        ids: [3, 0, 8, 3].into(),
        positions: [].into(),
        scale: 1.0,
        dropout: Dropout::none(),
    };
    let loss =
        CrossEntropySpec { smoothing: 0.1, r_drop: 0.0, scale: 0.2, products: Products::F32 };
    let layer = |tape: Option<&Tape>, x: &Tensor| {
        let normal = taper_ops::norm(tape, x, &gain, None, &NormSpec::rms(1e-5))?;
        taper_ops::linear(tape, &normal, &weight, None, Some(x), &relu)
    };
    let forward = |tape: Option<&Tape>, in_segment: bool| -> candle_core::Result<Tensor> {
        let x = taper_ops::embedding(tape, &table, None, &lookup)?;
        let x = layer(tape, &x)?;
        if let Some(tape) = tape {
            assert!(!tape.knows(&x), "nothing is trained so far");
        }
        let factors = [Factors { down: down.as_tensor().clone(), up: up.as_tensor().clone() }];
        let x = taper_ops::low_rank(tape, &x, &x, &factors, &spec(0.0, 0.0))?;
        let x = match tape.filter(|_| in_segment) {
            Some(tape) => {
                let (first, again) = (tape.for_segment(), tape.for_segment());
                let out = layer(Some(&first), &x)?;
                assert!(first.knows(&out));
                let (layer, input) = ((weight.clone(), gain.clone()), x.clone());
                tape.record_segment("segment", &[&x], &out, first, move || {
                    let (weight, gain) = layer;
                    let spec = NormSpec::rms(1e-5);
                    let normal = taper_ops::norm(Some(&again), &input, &gain, None, &spec)?;
                    let out = taper_ops::linear(
                        Some(&again),
                        &normal,
                        &weight,
                        None,
                        Some(&input),
                        &relu,
                    )?;
                    Ok((again, out))
                })?;
                out
            }
            None => layer(tape, &x)?,
        };
        Ok(taper_ops::smoothed_cross_entropy(tape, &x, &classes, &[1, 4, 10, 0], &loss)?.0)
    };
    let theirs = forward(None, false).unwrap().backward().unwrap();
    for in_segment in [false, true] {
        let tape = Tape::new();
        let out = forward(Some(&tape), in_segment).unwrap();
        let one = Tensor::ones((), candle_core::DType::F64, out.device()).unwrap();
        let ours = tape.differentiate(&out, &one).unwrap();
        for variable in [&down, &up] {
            let ours = values(&ours.get(variable).unwrap().expect("a gradient"));
            let theirs = values(theirs.get(variable).unwrap());
            for (one, other) in ours.iter().zip(theirs) {
                assert!((one - other).abs() < 1e-9, "{one} {other}");
            }
        }
        for constant in [&table, &weight, &gain, &classes] {
            assert!(ours.get(constant).unwrap().is_none());
        }
    }
    // If nothing is trainable, nothing is recorded.
    let tape = Tape::new();
    let x = taper_ops::embedding(Some(&tape), &table, None, &lookup).unwrap();
    assert!(tape.is_empty() && !tape.knows(&x));
}

/// Checks that matrices held in bf16 give the same as their values in the type of the computation.
#[test]
fn matrices_in_bf16_are_their_values() {
    let (x, residual) = (random(&[7, 6], 1), random(&[7, 9], 2));
    let held = |shape: &[usize], key| {
        let values = random(shape, key).as_detached_tensor();
        values.to_dtype(DType::BF16).unwrap()
    };
    let (weight, classes) = (held(&[9, 6], 3), held(&[11, 9], 4));
    let wide = |held: &Tensor| held.to_dtype(DType::F64).unwrap();
    let layer = LinearSpec {
        activation: Activation::GeluTanh,
        dropout: Dropout::new(0.3, 5),
        ..Default::default()
    };
    for r_drop in [0.0, 0.5] {
        let loss = CrossEntropySpec { smoothing: 0.1, r_drop, scale: 0.2, products: Products::F32 };
        let targets = [1, 4, 10, 0, 2, 2].map(|target| target as u32);
        let forward = |tape: &Tape, [weight, classes]: [&Tensor; 2]| {
            let x = taper_ops::linear(Some(tape), &x, weight, None, Some(&residual), &layer)?;
            let pairs = EmbeddingSpec {
                ids: [0, 1, 2, 3, 4, 6].into(),
                positions: [].into(),
                scale: 1.0,
                dropout: Dropout::none(),
            };
            let x = taper_ops::embedding(Some(tape), &x, None, &pairs)?;
            taper_ops::smoothed_cross_entropy(Some(tape), &x, classes, &targets, &loss)
        };
        let all = |matrices: [&Tensor; 2]| {
            let tape = Tape::new();
            let (total, sums) = forward(&tape, matrices).unwrap();
            let gradients = tape.differentiate(&total, &total.ones_like().unwrap()).unwrap();
            let of = |var: &Var| values(&gradients.get(var).unwrap().expect("a gradient"));
            (sums, of(&x), of(&residual))
        };
        let theirs = all([&wide(&weight), &wide(&classes)]);
        assert_eq!(all([&weight, &classes]), theirs);
    }
}
