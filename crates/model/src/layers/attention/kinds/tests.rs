//! Mechanisms of attention, compared with their equations, with other packages (reference values of
//! `scripts/golden/attention/low_rank_attention.py`), and with finite differences.
#![allow(clippy::disallowed_methods, reason = "Candle's own products")]

use super::hierarchical::Hierarchical;
use super::linear::LinearAttention;
use super::linformer::{attended, to_sums};
use super::performer::RandomFeatures;
use super::reformer::{Chunks, Reformer, Rotations};
use super::transformer_xl::Segments;
use crate::tensors::relative;
use candle_core::{DType, Device, Result, Tensor, Var};
use std::collections::HashMap;
use taper_ops::rng::Counter;
use taper_ops::{
    AttentionShape, AttentionSpec, Dropout, Products, Tape, composed, hierarchical_attention,
    linear_attention,
};

const LENGTHS: [usize; 3] = [70, 1, 150];
const HEADS: usize = 2;

fn random(rows: usize, columns: usize, key: u64) -> Var {
    let counter = Counter::new(key);
    let values: Vec<f64> = (0..(rows * columns) as u64).map(|i| counter.normal_at(i)).collect();
    let x = Tensor::from_vec(values, (rows, columns), &Device::Cpu).unwrap();
    Var::from_tensor(&x).unwrap()
}

fn linear(causal: bool) -> LinearAttention {
    LinearAttention::new(HEADS, causal, Products::F32)
}

fn performer(causal: bool, vectors: &Tensor) -> LinearAttention {
    LinearAttention::performer(HEADS, causal, Products::F32, RandomFeatures::given(vectors))
}

/// If Candle does not track the input, runs the fused operation, which does the work of several
/// Candle operations. Otherwise runs the composed operation, which is made of Candle's operations.
fn run(kind: &LinearAttention, qkv: &Tensor, lengths: &[usize]) -> Result<Tensor> {
    on_tape(kind, None, qkv, lengths)
}

fn on_tape(
    kind: &LinearAttention,
    tape: Option<&Tape>,
    qkv: &Tensor,
    lengths: &[usize],
) -> Result<Tensor> {
    linear_attention(tape, qkv, kind.own_vectors()?.as_ref(), &kind.spec(&lengths.into()))
}

fn inner(left: &Tensor, right: &Tensor) -> f64 {
    left.mul(right).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap()
}

/// Compares linear attention, which is computed by chunks and sums (in plain Candle, and fused),
/// with attention whose weights are computed one by one in plain Rust.
#[test]
fn linear_attention_is_the_equation() {
    let (qkv, head) = (random(221, 18, 1), 3);
    let rows = qkv.to_vec2::<f64>().unwrap();
    let feature = |x: f64| if x > 0.0 { x + 1.0 } else { x.exp() };
    for (causal, input) in [false, true]
        .into_iter()
        .flat_map(|causal| [(causal, qkv.detach()), (causal, qkv.as_tensor().clone())])
    {
        let ours = run(&linear(causal), &input, &LENGTHS).unwrap();
        assert_eq!(ours.track_op(), input.track_op());
        let ours = ours.to_vec2::<f64>().unwrap();
        let mut first = 0;
        for length in LENGTHS {
            for i in 0..length {
                for column in 0..6 {
                    let start = column / head * head;
                    let last = if causal { i + 1 } else { length };
                    let (mut sum, mut total) = (0.0, 1e-6);
                    for j in 0..last {
                        let (query, key) = (&rows[first + i], &rows[first + j]);
                        let products =
                            (start..start + head).map(|d| feature(query[d]) * feature(key[6 + d]));
                        let weight: f64 = products.sum();
                        sum += weight * key[12 + column];
                        total += weight;
                    }
                    let error = (ours[first + i][column] - sum / total).abs();
                    assert!(error < 1e-12, "causal {causal}, token {i} of {length}: {error}");
                }
            }
            first += length;
        }
    }
}

/// Compares the directional derivative `Σ gradient ⊙ direction` with the central difference along
/// `direction`, for each input.
fn check_gradients(name: &str, inputs: &[Var], operation: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let tensors: Vec<&Tensor> = inputs.iter().map(Var::as_tensor).collect();
    let tape = Tape::new();
    let out = composed::on_tape(Some(&tape), "kind", &tensors, &operation).unwrap();
    let adjoint = random(out.dim(0).unwrap(), out.dim(1).unwrap(), 3);
    let gradients = tape.differentiate(&out, &adjoint).unwrap();
    for (index, input) in inputs.iter().enumerate() {
        let (rows, columns) = input.dims2().unwrap();
        let direction = random(rows, columns, 4);
        let expected = inner(&gradients.get(input).unwrap().unwrap(), &direction);
        let at = |step: f64| {
            let mut moved: Vec<Tensor> = inputs.iter().map(|x| x.detach()).collect();
            moved[index] = (&moved[index] + (direction.as_tensor() * step).unwrap()).unwrap();
            inner(&operation(&moved).unwrap(), &adjoint)
        };
        let difference = (at(1e-5) - at(-1e-5)) / 2e-5;
        assert!(
            (expected - difference).abs() < 1e-6 * (1.0 + difference.abs()),
            "{name}, input {index}: {expected}, finite difference {difference}"
        );
    }
}

#[test]
fn gradients_are_finite_differences() {
    let (qkv, vectors) = (random(221, 18, 2), random(7, 3, 5));
    for causal in [false, true] {
        for (name, kind) in [("linear", linear(causal)), ("performer", performer(causal, &vectors))]
        {
            let name = format!("{name}, causal {causal}");
            check_gradients(&name, std::slice::from_ref(&qkv), |x| run(&kind, &x[0], &LENGTHS));
        }
    }
    let inputs = [qkv, random(5, 160, 6), random(5, 160, 7)];
    check_gradients("linformer", &inputs, |x| {
        linformer(None, [&x[0], &x[1], &x[2]], &LENGTHS, HEADS)
    });
}

/// Runs a Linformer on projected queries, keys and values, with the matrices E and F.
fn linformer(
    tape: Option<&Tape>,
    [qkv, key_sums, value_sums]: [&Tensor; 3],
    lengths: &[usize],
    heads: usize,
) -> Result<Tensor> {
    let shape = AttentionShape::dividing(qkv.dim(1)? / 3, heads);
    let sizes = (shape, key_sums.dim(0)?);
    let spec = to_sums(sizes, &lengths.into(), Dropout::none(), Products::F32);
    attended(tape, qkv, [key_sums, value_sums], &spec)
}

/// Reads a file of `tests/golden`, in f64.
fn golden(name: &str) -> HashMap<String, Tensor> {
    let file = crate::tensors::golden(name);
    file.into_iter().map(|(name, x)| (name, x.to_dtype(DType::F64).unwrap())).collect()
}

#[test]
fn performers_of_others_agree() {
    let file = golden("attention/low-rank-attention");
    for (case, causal) in [("performer", false), ("performer_causal", true)] {
        let tensor = |name: &str| &file[&format!("{case}.{name}")];
        let qkv = Var::from_tensor(tensor("qkv")).unwrap();
        let vectors = RandomFeatures::given(tensor("omega"));
        let kind = LinearAttention::performer(4, causal, Products::F32, vectors);
        let length = qkv.dim(0).unwrap();
        let check = |tape: Tape, out: Tensor, path: &str| {
            let gradients = tape.differentiate(&out, tensor("output_gradient")).unwrap();
            let error = relative(&out, tensor("output"));
            assert!(error < 1e-6, "{case}, {path}: {error}");
            let error = relative(&gradients.get(&qkv).unwrap().unwrap(), tensor("grad.qkv"));
            assert!(error < 1e-6, "{case}, {path}, gradient: {error}");
        };
        let tape = Tape::new();
        let out =
            composed::on_tape(Some(&tape), "performer", &[&qkv], |x| run(&kind, &x[0], &[length]));
        check(tape, out.unwrap(), "composed");
        let tape = Tape::new();
        let out = on_tape(&kind, Some(&tape), &qkv, &[length]).unwrap();
        check(tape, out, "fused");
    }
}

#[test]
fn linformers_of_others_agree() {
    let file = golden("attention/low-rank-attention");
    for case in ["linformer", "linformer_short"] {
        let tensor = |name: &str| &file[&format!("{case}.{name}")];
        let names = ["input", "key_sums", "value_sums"];
        let inputs = names.map(|name| Var::from_tensor(tensor(name)).unwrap());
        let tensors = [inputs[0].as_tensor(), inputs[1].as_tensor(), inputs[2].as_tensor()];
        let lengths = [tensors[0].dim(0).unwrap()];
        let project = |x: &Tensor| x.matmul(&tensor("qkv.weight").t()?);
        let check = |tape: Tape, out: Tensor, path: &str| {
            let gradients = tape.differentiate(&out, tensor("output_gradient")).unwrap();
            let error = relative(&out, tensor("output"));
            assert!(error < 1e-6, "{case}, {path}: {error}");
            for (input, name) in tensors.iter().zip(names) {
                let gradient = gradients.get(input).unwrap().unwrap();
                let error = relative(&gradient, tensor(&format!("grad.{name}")));
                assert!(error < 1e-6, "{case}, {path}, gradient of {name}: {error}");
            }
        };
        let tape = Tape::new();
        let out = composed::on_tape(Some(&tape), "linformer", &tensors, |x| {
            linformer(None, [&project(&x[0])?, &x[1], &x[2]], &lengths, 4)
        });
        check(tape, out.unwrap(), "composed");
        let tape = Tape::new();
        let qkv = composed::on_tape(Some(&tape), "qkv", &tensors[..1], |x| project(&x[0])).unwrap();
        let out = linformer(Some(&tape), [&qkv, tensors[1], tensors[2]], &lengths, 4);
        check(tape, out.unwrap(), "fused");
    }
}

/// Compares a Linformer with E = F = I with full attention, for sequences of the longest length.
#[test]
fn a_linformer_that_sums_nothing_is_full_attention() {
    let (length, heads) = (12, 3);
    let lengths = [length, length];
    let qkv = random(2 * length, 36, 8);
    let identity = Tensor::eye(length, DType::F64, &Device::Cpu).unwrap();
    let tensors = [&qkv.detach(), &identity, &identity];
    let attended = linformer(None, tensors, &lengths, heads).unwrap();
    let spec = AttentionSpec::new(AttentionShape::dividing(12, heads), lengths);
    let full = composed::self_attention(&qkv, None, &spec).unwrap();
    let error = relative(&attended, &full);
    assert!(error < 1e-12, "{error}");
}

/// Checks that the error of a Performer falls in proportion to 1/√(number of features).
#[test]
fn a_performer_nears_full_attention() {
    let qkv = (random(40, 24, 9).as_tensor() * 0.5).unwrap();
    let lengths = [40];
    let spec = AttentionSpec {
        causal: true,
        ..AttentionSpec::new(AttentionShape::dividing(8, HEADS), lengths)
    };
    let full = composed::self_attention(&qkv, None, &spec).unwrap();
    let error = |features| {
        let mean = |seed| {
            let vectors = RandomFeatures::drawn(4, features, seed);
            let kind = LinearAttention::performer(HEADS, true, Products::F32, vectors);
            relative(&run(&kind, &qkv, &lengths).unwrap(), &full)
        };
        (0..8).map(mean).sum::<f64>() / 8.0
    };
    let (few, many) = (error(16), error(1024));
    assert!(many < 0.05 && (4.0..16.0).contains(&(few / many)), "{few}, {many}");
}

/// Checks that a sequence does not change if another sequence of the batch has much larger keys.
/// The features subtract a maximum, so this maximum must be taken over one head of one sequence.
#[test]
fn a_sentence_does_not_depend_on_loud_neighbours() {
    let (quiet, loud) = (random(20, 18, 10), (random(30, 18, 11).as_tensor() * 12.0).unwrap());
    let (quiet, loud) = (quiet.to_dtype(DType::F32).unwrap(), loud.to_dtype(DType::F32).unwrap());
    let vectors = random(8, 3, 12);
    for causal in [false, true] {
        let kind = performer(causal, &vectors);
        let alone = run(&kind, &quiet, &[20]).unwrap().to_dtype(DType::F64).unwrap();
        let both = Tensor::cat(&[&quiet, &loud], 0).unwrap();
        let both = run(&kind, &both, &[20, 30]).unwrap().to_dtype(DType::F64).unwrap();
        let error = relative(&both.narrow(0, 0, 20).unwrap(), &alone);
        assert!(error < 1e-6, "causal {causal}: {error}");
        let sums = both.sum_all().unwrap().to_scalar::<f64>().unwrap();
        assert!(sums.is_finite(), "causal {causal}");
    }
}

fn hierarchical(causal: bool, heads: usize, chunk: usize) -> Hierarchical {
    Hierarchical { heads, causal, chunk, levels: 1, dropout: 0.0, products: Products::F32, site: 1 }
}

/// Compares both implementations (in plain Candle, and fused) with the equation, which
/// `scripts/golden/attention/chunked_attention.py` computes one query at a time.
#[test]
fn hierarchical_attention_is_the_equation() {
    let file = golden("attention/hierarchical-attention");
    for (case, causal) in [("causal", true), ("both", false)] {
        let qkv = Var::from_tensor(&file["input"]).unwrap();
        let kind = hierarchical(causal, 4, 5);
        let spec = kind.spec(&[qkv.dim(0).unwrap()].into(), Dropout::none());
        let check = |tape: Tape, out: Tensor, way: &str| {
            let gradients = tape.differentiate(&out, &file["output_gradient"]).unwrap();
            let error = relative(&out, &file[&format!("{case}.output")]);
            assert!(error < 1e-6, "{case}, {way}: {error}");
            let gradient = gradients.get(&qkv).unwrap().unwrap();
            let error = relative(&gradient, &file[&format!("{case}.grad.input")]);
            assert!(error < 1e-6, "{case}, {way}, gradient: {error}");
        };
        let tape = Tape::new();
        let out = composed::on_tape(Some(&tape), "hierarchical", &[&qkv], |x| {
            composed::hierarchical_attention(&x[0], &spec)
        });
        check(tape, out.unwrap(), "composed");
        let tape = Tape::new();
        let out = hierarchical_attention(Some(&tape), &qkv, &spec).unwrap();
        check(tape, out, "fused");
    }
}

/// Checks the smallest and the largest chunks. The summary of a chunk with one token is the key and
/// value of this token, and a chunk with the whole sequence needs no summaries.
#[test]
fn hierarchical_attention_of_single_tokens_or_one_chunk_is_full_attention() {
    let lengths = [9, 1, 14];
    let qkv = random(24, 18, 21);
    for causal in [false, true] {
        let spec = AttentionSpec {
            causal,
            ..AttentionSpec::new(AttentionShape::dividing(6, HEADS), lengths)
        };
        let full = composed::self_attention(&qkv, None, &spec).unwrap();
        let run_levels = |qkv: &Tensor, chunk, levels| {
            let kind = Hierarchical { levels, ..hierarchical(causal, HEADS, chunk) };
            let spec = kind.spec(&lengths.into(), Dropout::none());
            relative(&hierarchical_attention(None, qkv, &spec).unwrap(), &full)
        };
        // The first input runs the composed operation, because Candle tracks it; the second runs
        // the fused one.
        for qkv in [qkv.as_tensor(), &qkv.detach()] {
            for (chunk, levels) in [(1, 1), (1, 3), (14, 1), (100, 2)] {
                let error = run_levels(qkv, chunk, levels);
                assert!(error < 1e-12, "causal {causal}, {levels} × {chunk}: {error}");
            }
            let (one, two) = (run_levels(qkv, 3, 1), run_levels(qkv, 3, 2));
            assert!(one > 1e-3 && two > 1e-3 && one != two, "causal {causal}: {one}, {two}");
        }
    }
}

/// Checks that without distances and biases, and with enough memory, the result is full causal
/// attention.
#[test]
fn a_transformer_xl_without_distances_is_full_attention() {
    let (qkv, lengths) = (random(24, 18, 22), [9, 1, 14]);
    let nothing = |rows, columns| Tensor::zeros((rows, columns), DType::F64, &Device::Cpu).unwrap();
    let (matrix, bias) = (nothing(6, 6), nothing(HEADS, 3));
    let spec = AttentionSpec {
        causal: true,
        ..AttentionSpec::new(AttentionShape::dividing(6, HEADS), lengths)
    };
    let full = composed::self_attention(&qkv, None, &spec).unwrap();
    // If the memory has all earlier tokens, segments make no difference.
    for (segment, memory) in [(14, 0), (100, 7), (3, 14), (5, 100)] {
        let segments = Segments { heads: HEADS, segment, memory, same_length: false, clamp: 0 };
        let given = [&matrix, &bias, &bias];
        let error = relative(&segments.run(&qkv, given, &lengths, Dropout::none()).unwrap(), &full);
        assert!(error < 1e-12, "segments of {segment}, {memory} remembered: {error}");
    }
}

#[test]
fn reformers_of_others_agree() {
    let file = golden("attention/reformer");
    let rotations = Rotations::given(&file["rotations"]);
    for (case, causal) in [("causal", true), ("both", false)] {
        let tensor = |name: &str| &file[&format!("{case}.{name}")];
        let inputs = ["input", "weight"].map(|name| Var::from_tensor(tensor(name)).unwrap());
        let given = [inputs[0].as_tensor(), inputs[1].as_tensor()];
        let kind = Reformer::given(causal, Chunks::Sorted(8), rotations.clone());
        let lengths = [given[0].dim(0).unwrap()];
        let tape = Tape::new();
        let out = composed::on_tape(Some(&tape), "reformer", &given, |x| {
            kind.run(&x[0].matmul(&x[1].t()?)?, &lengths, Dropout::none())
        })
        .unwrap();
        let gradients = tape.differentiate(&out, tensor("output_gradient")).unwrap();
        let error = relative(&out, tensor("output"));
        assert!(error < 1e-6, "{case}: {error}");
        for (input, name) in given.iter().zip(["input", "weight"]) {
            let gradient = gradients.get(input).unwrap().unwrap();
            let error = relative(&gradient, tensor(&format!("grad.{name}")));
            assert!(error < 1e-6, "{case}, gradient of {name}: {error}");
        }
    }
}

/// Computes softmax(q·k̂) v over all tokens, with normalised keys k̂; a token attends to itself
/// only if it sees no other token.
fn shared_attention(qv: &Tensor, length: usize, causal: bool) -> Tensor {
    let rows = qv.to_vec2::<f64>().unwrap();
    let (width, head) = (rows[0].len() / 2, rows[0].len() / 2 / HEADS);
    let mut out = vec![0.0; length * width];
    for (i, first_column) in (0..length).flat_map(|i| (0..HEADS).map(move |h| (i, h * head))) {
        let score = |j: usize| {
            let key = &rows[j][first_column..first_column + head];
            let mean = key.iter().map(|x| x * x).sum::<f64>() / head as f64;
            let product: f64 = rows[i][first_column..first_column + head]
                .iter()
                .zip(key)
                .map(|(a, b)| a * b)
                .sum();
            product / ((mean + 1e-6) * head as f64).sqrt()
        };
        let all = 0..if causal { i + 1 } else { length };
        let mut visible: Vec<usize> = all.filter(|&j| j != i).collect();
        if visible.is_empty() {
            visible.push(i);
        }
        let total: f64 = visible.iter().map(|&j| score(j).exp()).sum();
        for column in first_column..first_column + head {
            let value = |&j: &usize| score(j).exp() / total * rows[j][width + column];
            out[i * width + column] = visible.iter().map(value).sum();
        }
    }
    Tensor::from_vec(out, (length, width), &Device::Cpu).unwrap()
}

/// Checks both rules for cutting chunks with a single bucket, in which all rounds give the same
/// result. A chunk of 32 holds all 29 tokens. If the bucket is cut into chunks of 16, there are two
/// chunks, and only the second looks back on the first. Under a causal mask, a token still sees all
/// the tokens before it. Without this mask, the tokens of the first chunk do not see those of the
/// second.
#[test]
fn one_bucket_is_full_attention_with_shared_queries_and_keys() {
    let qv = random(29, 12, 13);
    for causal in [false, true] {
        let full = shared_attention(&qv, 29, causal);
        for chunks in [Chunks::Sorted(32), Chunks::OfBuckets(32), Chunks::OfBuckets(16)] {
            for rounds in [1, 3] {
                let rotations = Rotations::drawn((HEADS, 3), (rounds, 1), 5);
                let kind = Reformer::given(causal, chunks, rotations);
                let out = kind.run(&qv, &[29], Dropout::none()).unwrap();
                let error = relative(&out, &full);
                let sees_all = chunks != Chunks::OfBuckets(16) || causal;
                assert_eq!(error < 1e-12, sees_all, "{chunks:?}, causal {causal}: {error}");
            }
        }
    }
}

#[test]
fn hashed_attention_has_gradients_of_finite_differences() {
    // The steps of the finite differences are so small that no token changes its bucket.
    let qv = random(50, 12, 14);
    for (causal, chunks) in [(true, Chunks::OfBuckets(4)), (false, Chunks::Sorted(8))] {
        let kind = Reformer::given(causal, chunks, Rotations::drawn((HEADS, 3), (3, 4), 6));
        check_gradients("reformer", std::slice::from_ref(&qv), |x| {
            kind.run(&x[0], &[31, 1, 18], Dropout::none())
        });
    }
}
