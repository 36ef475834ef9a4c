//! Tests the operations of a Linformer: sums over the tokens of sequences, and attention to these
//! sums. Fused operations are compared with finite differences and with operations composed of
//! Candle's. They run on any number of threads and with every matrix kernel.

mod common;

use candle_core::{DType, Result, Tensor, Var};
use common::{adjoint, again_through_every_kernel, check, random, relative, scalar};
use std::sync::Arc;
use taper_ops::{
    AttentionShape, AttentionSpec, Dropout, Products, Tape, composed, cross_attention,
    sequence_sums,
};

const HEADS: usize = 2;
/// Width of all heads together.
const WIDTH: usize = 6;
const RANK: usize = 3;

/// Makes queries, keys and values in one tensor, and the weights E and F, for sequences of at most
/// `longest` tokens.
fn inputs(tokens: usize, longest: usize, rank: usize) -> [Var; 3] {
    [random(&[tokens, 3 * WIDTH], 1), random(&[rank, longest], 2), random(&[rank, longest], 3)]
}

fn to_sums(lengths: &[usize], rank: usize, dropout: Dropout) -> AttentionSpec {
    AttentionSpec {
        key_lengths: vec![rank; lengths.len()].into(),
        dropout,
        ..AttentionSpec::new(AttentionShape::dividing(WIDTH, HEADS), lengths)
    }
}

fn attend(tape: Option<&Tape>, x: [&Tensor; 3], spec: &AttentionSpec) -> Result<Tensor> {
    let [qkv, keys, values] = x;
    let sums = sequence_sums(tape, qkv, [keys, values], &spec.query_lengths, spec.products)?;
    cross_attention(tape, qkv, &sums, None, spec)
}

fn attend_composed(x: [&Tensor; 3], spec: &AttentionSpec) -> Result<Tensor> {
    let [qkv, keys, values] = x;
    let sums = composed::sequence_sums(qkv, [keys, values], &spec.query_lengths)?;
    composed::cross_attention(&qkv.narrow(1, 0, WIDTH)?, &sums, None, spec)
}

#[test]
fn sums_have_their_gradients() {
    let lengths: Arc<[usize]> = [9, 0, 4, 1].into();
    check(
        "sums",
        &inputs(14, 11, RANK),
        &|tape, x| sequence_sums(tape, &x[0], [&x[1], &x[2]], &lengths, Products::F32),
        &|x| composed::sequence_sums(&x[0], [&x[1], &x[2]], &lengths),
    );
}

#[test]
fn attention_to_sums_has_its_gradients() {
    for dropout in [Dropout::none(), Dropout::new(0.3, 5)] {
        let spec = to_sums(&[9, 0, 4, 1], RANK, dropout);
        check(
            &format!("{dropout:?}"),
            &inputs(14, 11, RANK),
            &|tape, x| attend(tape, [&x[0], &x[1], &x[2]], &spec),
            &|x| attend_composed([&x[0], &x[1], &x[2]], &spec),
        );
    }
}

/// Tests sequences so long that attention is computed in tiles (small blocks of scores) and sums in
/// several pieces. Compares f64, f32 and bf16 products with the composed operation, and three
/// threads with one in f32.
#[test]
fn long_sequences_are_those_of_the_composed_operation() -> Result<()> {
    let (lengths, rank) = ([2050, 5, 300], 130);
    // Values are small: with larger sums, rounding would change the softmax too much.
    let tensors = inputs(lengths.iter().sum(), 2100, rank);
    let tensors = tensors.map(|x| Var::from_tensor(&(x.as_tensor() * 0.1).unwrap()).unwrap());
    let spec = to_sums(&lengths, rank, Dropout::none());
    let theirs = attend_composed([&tensors[0], &tensors[1], &tensors[2]], &spec)?;
    let their_gradients = scalar(&theirs)?.backward()?;
    let run = |tensors: &[Var; 3], spec: &AttentionSpec| -> Result<(Tensor, [Tensor; 3])> {
        let tape = Tape::new();
        let out = attend(Some(&tape), [&tensors[0], &tensors[1], &tensors[2]], spec)?;
        let adjoint = adjoint(&theirs).to_dtype(out.dtype())?;
        let gradients = tape.differentiate(&out, &adjoint)?;
        Ok((out, tensors.each_ref().map(|x| gradients.get(x).unwrap().expect("reached"))))
    };
    let single =
        tensors.each_ref().map(|x| Var::from_tensor(&x.to_dtype(DType::F32).unwrap()).unwrap());
    let rounded = AttentionSpec { products: Products::Bf16, ..spec.clone() };
    for (name, found, bound) in [
        ("f64", run(&tensors, &spec)?, 1e-12),
        ("f32", run(&single, &spec)?, 3e-6),
        ("bf16", run(&single, &rounded)?, 3e-2),
    ] {
        let error = relative(&found.0, &theirs);
        assert!(error < bound, "{name}: {error}");
        for (i, (ours, input)) in found.1.iter().zip(&tensors).enumerate() {
            let error = relative(ours, their_gradients.get(input).expect("reached"));
            assert!(error < bound, "{name}, gradient {i}: {error}");
        }
    }
    let on = |threads| -> Vec<Vec<f32>> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let (out, gradients) = pool.install(|| run(&single, &spec)).unwrap();
        let all = gradients.iter().chain([&out]);
        all.map(|x| x.flatten_all().unwrap().to_vec1().unwrap()).collect()
    };
    assert!(on(1) == on(3));
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |lengths: &[usize], longest: usize| {
        let tensors = inputs(14, longest, RANK);
        let sums = sequence_sums(
            None,
            &tensors[0],
            [&tensors[1], &tensors[2]],
            &lengths.into(),
            Products::F32,
        );
        sums.map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(&[9, 4], 11).contains("13 tokens"));
    assert!(refused(&[9, 5], 8).contains("of at most 9"));
}

#[test]
fn every_kernel_serves() {
    again_through_every_kernel("every_kernel_serves");
}
