//! Tests operations on tensors without rows or columns, forward and backward: results are empty,
//! gradients of weights are zero, and what cannot be computed is an error.

mod common;

use candle_core::{DType, Device, Result, Tensor};
use common::{adjoint, check, random, values};
use std::sync::Arc;
use taper_ops::{
    CrossEntropySpec, Dropout, Factors, Gradients, LinearSpec, LowRankSpec, ParameterStore,
    Products, Tape, Turns, composed, linear, low_rank, rotary, sequence_sums,
    smoothed_cross_entropy,
};

#[test]
fn sums_over_empty_last_sequences_have_gradients() -> Result<()> {
    let inputs = |tokens: usize, rank: usize| {
        [random(&[tokens, 12], 1), random(&[rank, 4], 2), random(&[rank, 4], 3)]
    };
    let lengths: Arc<[usize]> = [3, 0].into();
    check(
        "sums",
        &inputs(3, 2),
        &|tape, x| sequence_sums(tape, &x[0], [&x[1], &x[2]], &lengths, Products::F32),
        &|x| composed::sequence_sums(&x[0], [&x[1], &x[2]], &lengths),
    );
    for (lengths, rank) in [(&[0][..], 2), (&[0, 0], 2), (&[3, 2], 0)] {
        let (x, tape) = (inputs(lengths.iter().sum(), rank), Tape::new());
        let weights = [x[1].as_tensor(), x[2].as_tensor()];
        let out = sequence_sums(Some(&tape), &x[0], weights, &lengths.into(), Products::F32)?;
        assert_eq!(values(&out), vec![0.0; lengths.len() * rank * 8], "{lengths:?}, rank {rank}");
        let gradients = tape.differentiate(&out, &adjoint(&out))?;
        for x in &x {
            let gradient = gradients.get(x)?.expect("reached");
            assert_eq!(values(&gradient), vec![0.0; x.elem_count()], "{lengths:?}, rank {rank}");
        }
    }
    Ok(())
}

const ADAPTER: LowRankSpec = LowRankSpec {
    scale: 1.5,
    input_dropout: Dropout::none(),
    dropout: Dropout::none(),
    products: Products::F32,
};

#[test]
fn adapters_of_layers_without_rows_or_inputs_have_gradients() {
    for (rows, inputs) in [(0, 5), (3, 0), (0, 0)] {
        let x = [
            random(&[rows, inputs], 1),
            random(&[rows, 7], 2),
            random(&[2, inputs], 3),
            random(&[4, 2], 4),
            random(&[3, inputs], 5),
            random(&[3, 3], 6),
        ];
        let factors: Vec<Factors> = x[2..]
            .chunks_exact(2)
            .map(|pair| Factors {
                down: pair[0].as_tensor().clone(),
                up: pair[1].as_tensor().clone(),
            })
            .collect();
        let tape = Tape::new();
        let out = low_rank(Some(&tape), &x[0], &x[1], &factors, &ADAPTER).unwrap();
        assert_eq!(values(&out), values(&x[1]), "{rows} rows of {inputs}");
        let gradients = tape.differentiate(&out, &adjoint(&out)).unwrap();
        for input in &x[2..] {
            let gradient = gradients.get(input).unwrap().expect("reached");
            assert_eq!(values(&gradient), vec![0.0; input.elem_count()], "{rows} rows of {inputs}");
        }
    }
}

/// Makes a store of parameters with these shapes.
fn store(shapes: &[&[usize]]) -> Result<(ParameterStore, Vec<Tensor>)> {
    let mut store = ParameterStore::new(&Device::Cpu);
    let mut add = |(number, shape): (usize, &&[usize])| {
        store.add(&number.to_string(), shape, vec![0.5; shape.iter().product()])
    };
    let tensors = shapes.iter().enumerate().map(&mut add).collect::<Result<_>>()?;
    Ok((store, tensors))
}

const LOSS: CrossEntropySpec =
    CrossEntropySpec { smoothing: 0.1, r_drop: 0.0, scale: 1.0, products: Products::F32 };

#[test]
fn a_loss_without_rows_has_gradients_of_zero() -> Result<()> {
    let (store, tensors) = store(&[&[7, 4]])?;
    let mut gradients = Gradients::new(&store)?;
    let loss_of = |rows: usize| -> Result<(Tape, Tensor)> {
        let (tape, hidden) = (Tape::new(), Tensor::ones((rows, 4), DType::F32, &Device::Cpu)?);
        let targets = vec![1; rows];
        let loss = smoothed_cross_entropy(Some(&tape), &hidden, &tensors[0], &targets, &LOSS)?.0;
        Ok((tape, loss))
    };
    // The gradient of the first step must not remain in the second.
    for rows in [3, 0] {
        gradients.zero()?;
        let (tape, loss) = loss_of(rows)?;
        tape.backward(&loss, &store, &mut gradients)?;
        let gradient = gradients.flat()?.to_vec1::<f32>()?;
        assert_eq!(gradient.iter().any(|&value| value != 0.0), rows > 0, "{rows}: {gradient:?}");
    }
    let (tape, loss) = loss_of(0)?;
    let gradient = tape.differentiate(&loss, &loss.ones_like()?)?.get(&tensors[0])?;
    assert_eq!(gradient.expect("reached").dims(), [7, 4]);
    Ok(())
}

#[test]
fn parameters_without_values_may_follow_final_gradients() -> Result<()> {
    // Adapters of rank 0 come before or after the output weights.
    for output in [1, 3] {
        let mut shapes: Vec<&[usize]> = vec![&[4, 3], &[0, 3], &[4, 0]];
        shapes.insert(output, &[7, 4]);
        let (store, mut tensors) = store(&shapes)?;
        let output = tensors.remove(output);
        let [weight, down, up] = <[Tensor; 3]>::try_from(tensors).expect("three");
        let (tape, x) = (Tape::new(), Tensor::ones((2, 3), DType::F32, &Device::Cpu)?);
        let base = linear(Some(&tape), &x, &weight, None, None, &LinearSpec::default())?;
        let hidden = low_rank(Some(&tape), &x, &base, &[Factors { down, up }], &ADAPTER)?;
        let loss = smoothed_cross_entropy(Some(&tape), &hidden, &output, &[1, 6], &LOSS)?.0;
        let (mut gradients, mut last) = (Gradients::new(&store)?, store.len());
        let mut when_final = |from: usize, _: &[f32]| {
            assert!(from <= last);
            last = from;
            Ok(())
        };
        tape.backward_watched(&loss, &store, &mut gradients, Some(&mut when_final))?;
        assert_eq!(last, 0);
    }
    Ok(())
}

#[test]
fn heads_without_rows_or_columns_are_rotated() -> Result<()> {
    for (rows, width) in [(3, 0), (0, 8), (0, 0)] {
        let (x, tape) = (random(&[rows, width], 1), Tape::new());
        let positions: Arc<[u32]> = (0..rows as u32).collect();
        let out = rotary(Some(&tape), &x, (&positions, Turns::default()), 8, width)?;
        assert_eq!(out.dims(), [rows, width]);
        tape.differentiate(&out, &adjoint(&out))?;
    }
    Ok(())
}

#[test]
fn layers_without_inputs_are_their_bias_and_layers_without_outputs_are_refused() -> Result<()> {
    let spec = LinearSpec::default();
    let (tape, x, weight, bias) =
        (Tape::new(), random(&[3, 0], 1), random(&[2, 0], 2), random(&[2], 3));
    let out = linear(Some(&tape), &x, &weight, Some(&bias), None, &spec)?;
    assert_eq!(values(&out), values(&bias).repeat(3));
    tape.differentiate(&out, &adjoint(&out))?;
    let error =
        linear(None, &random(&[3, 2], 1).detach(), &random(&[0, 2], 2).detach(), None, None, &spec);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no rows"), "{error}");
    Ok(())
}
