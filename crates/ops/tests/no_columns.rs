//! Tests that operations on tensors without columns return an error or a result, and do not panic,
//! forward and backward.

mod common;

use candle_core::{Result, Tensor, Var};
use common::{adjoint, random};
use taper_ops::{
    Activation, Dropout, EmbeddingSpec, Factors, GatedSpec, LinearSpec, LowRankSpec, NormSpec,
    NormedColumns, Products, Tape,
};

/// Runs an operation and its backward pass; an error is allowed.
fn run(operation: impl FnOnce(&Tape) -> Result<Tensor>) -> Result<()> {
    let tape = Tape::new();
    let out = operation(&tape)?;
    tape.differentiate(&out, &adjoint(&out)).map(drop)
}

fn none(shape: &[usize]) -> Var {
    random(shape, 1)
}

#[test]
fn a_row_without_columns_has_no_norm_and_no_halves() {
    let (x, weight) = (none(&[3, 0]), none(&[0]));
    for spec in [NormSpec::layer(1e-5), NormSpec::rms(1e-5)] {
        let norm = |tape: &Tape| taper_ops::norm(Some(tape), &x, &weight, None, &spec);
        assert!(run(norm).unwrap_err().to_string().contains("0 columns"));
        let parts: [NormedColumns<'_>; 0] = [];
        assert!(run(|tape| taper_ops::norm_columns(Some(tape), &x, &parts, &spec)).is_err());
    }
    let gate = GatedSpec { activation: Activation::Sigmoid, dropout: Dropout::none() };
    assert!(run(|tape| taper_ops::gated(Some(tape), &x, &gate)).is_err());
    let spec = EmbeddingSpec {
        ids: [0, 2].into(),
        positions: [].into(),
        scale: 1.0,
        dropout: Dropout::none(),
    };
    // Rows without columns can be looked up.
    run(|tape| taper_ops::embedding(Some(tape), &x, None, &spec)).unwrap();
}

#[test]
fn products_without_columns_are_empty_or_zero() {
    let spec = LinearSpec::default();
    for (rows, inputs, outputs) in [(3, 0, 2), (3, 2, 0), (0, 2, 2), (0, 0, 0)] {
        let (x, weight) = (none(&[rows, inputs]), none(&[outputs, inputs]));
        let bias = none(&[outputs]);
        let linear =
            |tape: &Tape| taper_ops::linear(Some(tape), &x, &weight, Some(&bias), None, &spec);
        if let Err(error) = run(linear) {
            assert!(!error.to_string().is_empty(), "{rows} {inputs} {outputs}");
        }
        let columns = |tape: &Tape| taper_ops::columns(Some(tape), &[&x, &x], Dropout::none());
        run(columns).unwrap();
        let windows = |tape: &Tape| taper_ops::windows(Some(tape), &x, &[rows].into(), (1, 1));
        run(windows).unwrap();
        let activate =
            |tape: &Tape| taper_ops::activation(Some(tape), &x, Activation::Relu, Dropout::none());
        run(activate).unwrap();
        let (base, down, up) = (none(&[rows, outputs]), none(&[2, inputs]), none(&[outputs, 2]));
        let factors = [Factors { down: down.as_tensor().clone(), up: up.as_tensor().clone() }];
        let low_rank = LowRankSpec {
            scale: 1.0,
            input_dropout: Dropout::none(),
            dropout: Dropout::none(),
            products: Products::F32,
        };
        let adapted = |tape: &Tape| taper_ops::low_rank(Some(tape), &x, &base, &factors, &low_rank);
        let _ = run(adapted);
    }
}
