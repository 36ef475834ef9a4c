//! Tests linear attention, with and without random features. Results are compared with the composed
//! operation (the same, composed of Candle's operations) and with finite differences. Results in
//! f32 and with bf16 products are compared with f64. The bits must not depend on the other
//! sequences of a batch, or on the number of threads. Every matrix kernel is tested.

mod common;

use candle_core::{DType, Device, Result, Tensor, Var};
use common::{
    Rows, adjoint, again_through_every_kernel, check, check_threads_and_neighbours, random,
    relative, scalar, values,
};
use taper_ops::{
    LinearAttentionSpec, Products, Tape, composed, linear_attention, linear_attention_after,
};

const HEADS: usize = 2;
/// Width of a head.
const WIDTH: usize = 5;
/// Lengths below, at and above multiples of a chunk (64 tokens), and of a group of eight chunks.
/// The operation processes a sequence in chunks, and keeps its state before each group.
const LENGTHS: [usize; 6] = [700, 0, 64, 1, 1025, 512];

fn spec(lengths: &[usize], causal: bool) -> LinearAttentionSpec {
    LinearAttentionSpec { heads: HEADS, lengths: lengths.into(), causal, products: Products::F32 }
}

/// Feature maps: `elu(x) + 1`, and random features, once with few vectors and once with more than
/// the 32 that a kernel processes together.
fn kinds() -> Vec<(&'static str, Option<Tensor>)> {
    let vectors = |count| Some(random(&[count, WIDTH], 2).as_tensor().detach());
    vec![("elu", None), ("7 features", vectors(7)), ("40 features", vectors(40))]
}

fn input(tokens: usize) -> Var {
    random(&[tokens, 3 * HEADS * WIDTH], 1)
}

/// Computes the result and the gradient with respect to the input.
fn both(
    qkv: &Var,
    vectors: Option<&Tensor>,
    spec: &LinearAttentionSpec,
) -> Result<(Tensor, Tensor)> {
    let tape = Tape::new();
    let out = linear_attention(Some(&tape), qkv, vectors, spec)?;
    let gradients =
        tape.differentiate(&out, &adjoint(&out.to_dtype(DType::F64)?).to_dtype(qkv.dtype())?)?;
    Ok((out, gradients.get(qkv)?.expect("reached")))
}

#[test]
fn every_element_has_its_gradient() {
    for (name, vectors) in kinds() {
        for causal in [false, true] {
            let spec = spec(&[68, 0, 3], causal);
            check(
                &format!("{name}, causal {causal}"),
                &[input(71)],
                &|tape, x| linear_attention(tape, &x[0], vectors.as_ref(), &spec),
                &|x| Ok(composed::linear_attention(&x[0], vectors.as_ref(), &spec)?.0),
            );
        }
    }
}

/// Compares sequences of several groups of chunks with the composed operation and, along one
/// direction, with finite differences.
#[test]
fn long_sequences_have_the_gradients_of_the_composed_operation() -> Result<()> {
    let qkv = input(LENGTHS.iter().sum());
    for (name, vectors) in kinds() {
        for causal in [false, true] {
            let (vectors, spec) = (vectors.as_ref(), spec(&LENGTHS, causal));
            let (out, gradient) = both(&qkv, vectors, &spec)?;
            let theirs = composed::linear_attention(&qkv, vectors, &spec)?.0;
            let error = relative(&out, &theirs);
            assert!(error < 1e-12, "{name}, causal {causal}: {error}");
            let theirs = scalar(&theirs)?.backward()?;
            let error = relative(&gradient, theirs.get(&qkv).expect("reached"));
            assert!(error < 1e-11, "{name}, causal {causal}, gradient: {error}");

            let direction = random(&[qkv.dim(0)?, qkv.dim(1)?], 3);
            let at = |step: f64| -> Result<f64> {
                let moved = (qkv.as_tensor() + (direction.as_tensor() * step)?)?.detach();
                scalar(&linear_attention(None, &moved, vectors, &spec)?)?.to_scalar()
            };
            let difference = (at(1e-6)? - at(-1e-6)?) / 2e-6;
            let along = (gradient * direction.as_tensor())?.sum_all()?.to_scalar::<f64>()?;
            assert!(
                (along - difference).abs() < 1e-6 * (1.0 + difference.abs()),
                "{name}, causal {causal}: {along}, finite difference {difference}"
            );
        }
    }
    Ok(())
}

/// Tests keys that become ever larger, and keys that become ever smaller. Features of keys are
/// divided by `exp(c)`, where c grows in the forward pass, and shrinks in the backward pass.
#[test]
fn exponents_may_grow_and_shrink() -> Result<()> {
    let (tokens, vectors) = (300, random(&[40, WIDTH], 2).as_tensor().detach());
    let qkv = input(tokens);
    for grows in [true, false] {
        let factor = |row: usize| {
            let row = if grows { row } else { tokens - 1 - row };
            0.5 + 2.5 * row as f64 / tokens as f64
        };
        let factors = Tensor::from_iter((0..tokens).map(factor), &Device::Cpu)?;
        let qkv = Var::from_tensor(&qkv.detach().broadcast_mul(&factors.reshape((tokens, 1))?)?)?;
        let spec = spec(&[tokens], true);
        let (out, gradient) = both(&qkv, Some(&vectors), &spec)?;
        let theirs = composed::linear_attention(&qkv, Some(&vectors), &spec)?.0;
        let error = relative(&out, &theirs);
        assert!(error < 1e-9, "grows {grows}: {error}");
        let theirs = scalar(&theirs)?.backward()?;
        let error = relative(&gradient, theirs.get(&qkv).expect("reached"));
        assert!(error < 1e-9, "grows {grows}, gradient: {error}");
    }
    Ok(())
}

#[test]
fn f32_and_bf16_are_near_f64() -> Result<()> {
    let qkv = input(LENGTHS.iter().sum());
    for (name, vectors) in kinds() {
        for causal in [false, true] {
            let (vectors, spec) = (vectors.as_ref(), spec(&LENGTHS, causal));
            let (exact, exact_gradient) = both(&qkv, vectors, &spec)?;
            let single = Var::from_tensor(&qkv.to_dtype(DType::F32)?)?;
            for (products, bound) in [(Products::F32, 2e-6), (Products::Bf16, 2e-2)] {
                let spec = LinearAttentionSpec { products, ..spec.clone() };
                let (out, gradient) = both(&single, vectors, &spec)?;
                let error = relative(&out, &exact);
                assert!(error < bound, "{name}, causal {causal}, {products:?}: {error}");
                let error = relative(&gradient, &exact_gradient);
                assert!(error < bound, "{name}, causal {causal}, {products:?}, gradient: {error}");
            }
        }
    }
    Ok(())
}

/// Compares, in f32, one thread with three, and each sequence alone with the batch.
#[test]
fn neither_threads_nor_neighbours_change_a_bit() -> Result<()> {
    let qkv = Var::from_tensor(&input(LENGTHS.iter().sum()).to_dtype(DType::F32)?)?;
    for (name, vectors) in kinds() {
        for causal in [false, true] {
            let run = |qkv: &Var, lengths: &[usize]| -> Result<Rows> {
                let tape = Tape::new();
                let out =
                    linear_attention(Some(&tape), qkv, vectors.as_ref(), &spec(lengths, causal))?;
                let gradients = tape.differentiate(&out, &out)?;
                Ok([out.to_vec2()?, gradients.get(qkv)?.expect("reached").to_vec2()?])
            };
            let name = format!("{name}, causal {causal}");
            check_threads_and_neighbours(&name, &qkv, &LENGTHS, run)?;
        }
    }
    Ok(())
}

/// Checks that the sums after a whole sequence can be continued with single tokens.
#[test]
fn steps_go_on_from_the_sums() -> Result<()> {
    let (read, all) = (130, 140);
    let qkv = input(all).as_tensor().detach();
    for (name, vectors) in kinds() {
        let vectors = vectors.as_ref();
        let whole = linear_attention(None, &qkv, vectors, &spec(&[all], true))?;
        let first = qkv.narrow(0, 0, read)?.contiguous()?;
        let (out, mut kept) = linear_attention_after(&first, vectors, &spec(&[read], true))?;
        let (_, theirs) = composed::linear_attention(&first, vectors, &spec(&[read], true))?;
        assert!(relative(&out, &whole.narrow(0, 0, read)?) < 1e-12, "{name}");
        assert!(relative(&kept, &theirs) < 1e-12, "{name}: sums");
        for token in read..all {
            let one = qkv.narrow(0, token, 1)?.contiguous()?;
            let (out, after) = composed::linear_attention_step(&one, vectors, HEADS, Some(&kept))?;
            let error = relative(&out, &whole.narrow(0, token, 1)?);
            assert!(error < 1e-12, "{name}, token {token}: {error}");
            kept = after;
        }
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let qkv = input(4);
    let refused = |vectors: Option<&Tensor>, spec: &LinearAttentionSpec| {
        linear_attention(None, &qkv, vectors, spec).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(None, &spec(&[3], true)).contains("3 tokens in sequences"));
    let heads = LinearAttentionSpec { heads: 4, ..spec(&[4], true) };
    assert!(refused(None, &heads).contains("of 4 heads"));
    let wide = random(&[7, WIDTH + 1], 2);
    assert!(refused(Some(&wide), &spec(&[4], true)).contains("heads of width 5"));
    assert_eq!(values(&linear_attention(None, &qkv.detach(), None, &spec(&[4], true))?).len(), 40);
    Ok(())
}

#[test]
fn every_kernel_serves() {
    again_through_every_kernel("every_kernel_serves");
}
