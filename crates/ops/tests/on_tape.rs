//! Tests operations that are composed of Candle's and recorded on the tape. Their gradients must
//! equal those of the fused operations, and finite differences.
#![allow(clippy::disallowed_methods, reason = "Candle's own products")]

mod common;

use candle_core::{D, DType, Device, Result, Tensor, Var};
use common::{Fused, check, random, values};
use taper_ops::{
    Activation, AttentionShape, AttentionSpec, Dropout, Gradients, LinearSpec, ParameterStore,
    Tape, composed,
};

fn spec() -> AttentionSpec {
    AttentionSpec {
        causal: true,
        dropout: Dropout::new(0.3, 5),
        ..AttentionSpec::new(AttentionShape::with_heads(2, 3), [3, 2])
    }
}

/// Compares composed attention between two fused layers with fused attention.
#[test]
fn attention_in_candle_between_fused_layers() {
    let inputs =
        [random(&[5, 4], 1), random(&[18, 4], 2), random(&[3, 6], 3), random(&[2, 3, 3], 4)];
    let layer = LinearSpec::default();
    let first =
        |tape: Option<&Tape>, v: &[Var]| taper_ops::linear(tape, &v[0], &v[1], None, None, &layer);
    let last = |tape: Option<&Tape>, x: &Tensor, v: &[Var]| {
        taper_ops::linear(tape, x, &v[2], None, None, &layer)
    };
    let in_candle = |tape: Option<&Tape>, v: &[Var]| {
        let qkv = first(tape, v)?;
        let attended = composed::on_tape(tape, "attention", &[&qkv, &v[3]], |inputs| {
            composed::self_attention(&inputs[0], Some(&inputs[1]), &spec())
        })?;
        last(tape, &attended, v)
    };
    let in_full = |v: &[Var]| {
        let qkv = composed::linear(&v[0], &v[1], None, None, &layer)?;
        let attended = composed::self_attention(&qkv, Some(&v[3]), &spec())?;
        composed::linear(&attended, &v[2], None, None, &layer)
    };
    check("attention in Candle", &inputs, &in_candle, &in_full);

    let fused = |tape: Option<&Tape>, v: &[Var]| {
        let attended = taper_ops::self_attention(tape, &first(tape, v)?, Some(&v[3]), &spec())?;
        last(tape, &attended, v)
    };
    let gradients = |operation: Fused<'_>| {
        let tape = Tape::new();
        let out = operation(Some(&tape), &inputs).unwrap();
        let adjoints = tape.differentiate(&out, &out.ones_like().unwrap()).unwrap();
        inputs.each_ref().map(|x| values(&adjoints.get(x).unwrap().unwrap()))
    };
    for (ours, fused) in
        gradients(&in_candle).iter().flatten().zip(gradients(&fused).iter().flatten())
    {
        assert!((ours - fused).abs() < 1e-9 * (1.0 + fused.abs()), "{ours}, fused {fused}");
    }
}

/// Computes attention with a squared ReLU instead of the softmax. There is no fused operation for
/// it.
fn squared_relu_attention(qkv: &Tensor) -> Result<Tensor> {
    let width = qkv.dim(1)? / 3;
    let part = |i: usize| qkv.narrow(1, i * width, width)?.contiguous(); // (N, D)
    let scores = part(0)?.matmul(&part(1)?.t()?)?.relu()?.sqr()?; // (N, N)
    let total = (scores.sum_keepdim(D::Minus1)? + 1.0)?;
    scores.broadcast_div(&total)?.matmul(&part(2)?)
}

#[test]
fn a_new_attention_has_the_gradients_of_finite_differences() {
    let inputs = [random(&[4, 9], 1)];
    check(
        "squared ReLU attention",
        &inputs,
        &|tape, v| composed::on_tape(tape, "new", &[&v[0]], |x| squared_relu_attention(&x[0])),
        &|v| squared_relu_attention(&v[0]),
    );
}

/// Checks that an input that is passed twice, and is also used by fused operations, gets the sum of
/// all gradients.
#[test]
fn an_input_of_several_uses_gets_their_sum() {
    let inputs = [random(&[4, 4], 1), random(&[4, 4], 2)];
    let spec = LinearSpec { activation: Activation::Gelu, ..Default::default() };
    check(
        "several uses",
        &inputs,
        &|tape, v| {
            let x = taper_ops::linear(tape, &v[0], &v[1], None, None, &spec)?;
            let product = composed::on_tape(tape, "product", &[&x, &v[1], &x], |x| {
                x[0].matmul(&x[1])?.mul(&x[2])
            })?;
            taper_ops::linear(tape, &product, &v[1], None, Some(&x), &spec)
        },
        &|v| {
            let x = composed::linear(&v[0], &v[1], None, None, &spec)?;
            let product = x.matmul(&v[1])?.mul(&x)?;
            composed::linear(&product, &v[1], None, Some(&x), &spec)
        },
    );
}

/// Makes a store with two matrices, and returns the gradients of a loss with respect to them.
/// `operation` computes the loss from the tape, a result that is recorded on it, and the matrices.
fn gradients_of(
    operation: impl Fn(&Tape, &Tensor, &[Tensor; 2]) -> Result<Tensor>,
) -> Result<Vec<f32>> {
    let mut store = ParameterStore::new(&Device::Cpu);
    let weights = [
        store.add("first", &[2, 2], vec![1.0, 2.0, 3.0, 4.0])?,
        store.add("second", &[2, 2], vec![0.5, -1.0, 2.0, 1.5])?,
    ];
    let x = Tensor::new(&[[1.0_f32, -1.0]], &Device::Cpu)?;
    let tape = Tape::new();
    let hidden =
        taper_ops::linear(Some(&tape), &x, &weights[0], None, None, &LinearSpec::default())?;
    let loss = operation(&tape, &hidden, &weights)?;
    let mut gradients = Gradients::new(&store)?;
    gradients.zero()?;
    tape.backward(&loss, &store, &mut gradients)?;
    gradients.flat()?.to_vec1()
}

#[test]
fn parameters_get_their_gradients_in_the_flat_buffer() {
    let gradients = gradients_of(|tape, hidden, weights| {
        composed::on_tape(Some(tape), "sum", &[hidden, &weights[1]], |x| {
            x[0].matmul(&x[1])?.sum_all()
        })
    });
    // The hidden row is (-1, -1); the loss is the sum of hidden · second.
    let expected = [-0.5, 0.5, 3.5, -3.5, -1.0, -1.0, -1.0, -1.0];
    assert_eq!(gradients.unwrap(), expected);
}

#[test]
fn what_is_captured_is_not_lost_in_silence() {
    let captured_parameter = gradients_of(|tape, hidden, weights| {
        let first =
            composed::on_tape(Some(tape), "first", &[hidden, &weights[1]], |x| x[0].matmul(&x[1]))?;
        composed::on_tape(Some(tape), "sum", &[&first], |x| x[0].matmul(&weights[1])?.sum_all())
    });
    let message = captured_parameter.unwrap_err().to_string();
    assert!(message.contains("sum: the operation uses parameter second"), "{message}");
    let captured_result = gradients_of(|tape, hidden, weights| {
        composed::on_tape(Some(tape), "sum", &[&weights[1]], |x| hidden.matmul(&x[0])?.sum_all())
    });
    let message = captured_result.unwrap_err().to_string();
    assert!(message.contains("the result of another operation"), "{message}");
}

/// Checks that without a tape Candle has the whole graph, and that with only constants nothing is
/// recorded.
#[test]
fn without_a_tape_it_is_the_operation_itself() {
    let x = random(&[3, 2], 1);
    let out = composed::on_tape(None, "square", &[&x], |x| x[0].sqr()).unwrap();
    let gradient = out.sum_all().unwrap().backward().unwrap().get(&x).unwrap().clone();
    assert_eq!(values(&gradient), values(&(x.as_tensor() * 2.0).unwrap()));
    let index = Tensor::new(&[1_u32, 0], &Device::Cpu).unwrap();
    let out = composed::on_tape(Some(&Tape::new()), "rows", &[&x, &index], |x| {
        x[0].index_select(&x[1], 0)
    });
    assert_eq!(out.unwrap().dims(), [2, 2]);
    assert_eq!(x.dtype(), DType::F64);
}
