//! Tests hierarchical attention with one level of summaries and with several levels. Results are
//! compared with the equation, with the composed operation (the same, composed of Candle's
//! operations) and with finite differences. Results in f32 and with bf16 products are compared with
//! f64. The bits must not depend on the other sequences of a batch, or on the number of threads.
//! Every matrix kernel is tested.

mod common;

use candle_core::{D, DType, Device, Result, Tensor, Var};
use common::{
    Rows, adjoint, again_through_every_kernel, check, check_threads_and_neighbours, random,
    relative, scalar, values,
};
use taper_ops::{Dropout, HierarchicalSpec, Products, Tape, composed, hierarchical_attention};

const HEADS: usize = 2;
/// Width of a head.
const WIDTH: usize = 3;
const LENGTHS: [usize; 5] = [300, 0, 1, 128, 77];

fn spec(lengths: &[usize], causal: bool, (chunk, levels): (usize, usize)) -> HierarchicalSpec {
    HierarchicalSpec {
        heads: HEADS,
        lengths: lengths.into(),
        causal,
        chunk,
        levels,
        dropout: Dropout::none(),
        products: Products::F32,
    }
}

/// Sizes of chunks and numbers of levels, including more levels than a sequence has, and chunks
/// longer than a block of queries.
fn kinds() -> impl Iterator<Item = (bool, (usize, usize))> {
    let sizes = [(4, 1), (4, 2), (4, 9), (1, 2), (64, 1), (150, 2), (1000, 1)];
    sizes.into_iter().flat_map(|sizes| [(false, sizes), (true, sizes)])
}

fn input(tokens: usize) -> Var {
    random(&[tokens, 3 * HEADS * WIDTH], 1)
}

/// Compares with the equation, for one query at a time. A token outside the query's chunk is
/// represented by a summary: that of the largest chunk, up to the highest level, that contains the
/// token but not the query.
#[test]
fn it_is_the_equation() -> Result<()> {
    let (length, size) = (75, 3);
    let qkv = input(length);
    let rows = qkv.to_vec2::<f64>()?;
    for (causal, levels) in [(false, 1), (true, 1), (false, 3), (true, 3), (true, 2)] {
        let fused =
            hierarchical_attention(None, &qkv.detach(), &spec(&[length], causal, (size, levels)))?;
        let fused = fused.to_vec2::<f64>()?;
        for (i, head) in (0..length).flat_map(|i| (0..HEADS).map(move |head| (i, head))) {
            // The level and the index of the chunk whose summary represents the token. A token in
            // the query's chunk represents itself, at level 0.
            let seen_as = |j: usize| {
                (0..levels)
                    .find(|&level| j / size.pow(level as u32 + 1) == i / size.pow(level as u32 + 1))
                    .map_or((levels, j / size.pow(levels as u32)), |level| {
                        (level, j / size.pow(level as u32))
                    })
            };
            let mut groups = std::collections::BTreeMap::<(usize, usize), Vec<usize>>::new();
            (0..length).for_each(|j| groups.entry(seen_as(j)).or_default().push(j));
            let mean = |part: usize, tokens: &[usize]| -> Vec<f64> {
                let column = |d: usize| part * HEADS * WIDTH + head * WIDTH + d;
                let sum = |d| tokens.iter().map(|&j| rows[j][column(d)]).sum::<f64>();
                (0..WIDTH).map(|d| sum(d) / tokens.len() as f64).collect()
            };
            let (query, mut out, mut total) = (mean(0, &[i]), [0.0; WIDTH], 0.0);
            for tokens in groups.values() {
                if causal && tokens[0] > i {
                    continue;
                }
                let products = query.iter().zip(mean(1, tokens)).map(|(a, b)| a * b);
                let score = products.sum::<f64>() / (WIDTH as f64).sqrt();
                let weight = tokens.len() as f64 * score.exp();
                total += weight;
                out.iter_mut().zip(mean(2, tokens)).for_each(|(out, value)| *out += weight * value);
            }
            for d in 0..WIDTH {
                let error = (fused[i][head * WIDTH + d] - out[d] / total).abs();
                assert!(error < 1e-12, "causal {causal}, {levels} levels, token {i}: {error}");
            }
        }
    }
    Ok(())
}

#[test]
fn every_element_has_its_gradient() {
    for (causal, sizes) in [(true, (2, 1)), (false, (2, 1)), (true, (2, 3)), (false, (2, 3))] {
        for dropout in [Dropout::none(), Dropout::new(0.3, 5)] {
            let spec = HierarchicalSpec { dropout, ..spec(&[17, 0, 2, 9], causal, sizes) };
            check(
                &format!("causal {causal}, {sizes:?}, {dropout:?}"),
                &[input(28)],
                &|tape, x| hierarchical_attention(tape, &x[0], &spec),
                &|x| composed::hierarchical_attention(&x[0], &spec),
            );
        }
    }
}

#[test]
fn long_sequences_are_those_of_the_composed_operation() -> Result<()> {
    let qkv = input(LENGTHS.iter().sum());
    let single = Var::from_tensor(&qkv.to_dtype(DType::F32)?)?;
    for (causal, sizes) in kinds() {
        let spec =
            HierarchicalSpec { dropout: Dropout::new(0.1, 3), ..spec(&LENGTHS, causal, sizes) };
        let theirs = composed::hierarchical_attention(&qkv, &spec)?;
        let their_gradients = scalar(&theirs)?.backward()?;
        let their_gradient = their_gradients.get(&qkv).expect("reached");
        for (name, x, products, bound) in [
            ("f64", &qkv, Products::F32, 1e-12),
            ("f32", &single, Products::F32, 2e-6),
            ("bf16", &single, Products::Bf16, 2e-2),
        ] {
            let spec = HierarchicalSpec { products, ..spec.clone() };
            let tape = Tape::new();
            let out = hierarchical_attention(Some(&tape), x, &spec)?;
            let gradients = tape.differentiate(&out, &adjoint(&theirs).to_dtype(x.dtype())?)?;
            let name = format!("{name}, causal {causal}, {sizes:?}");
            let error = relative(&out, &theirs);
            assert!(error < bound, "{name}: {error}");
            let error = relative(&gradients.get(x)?.expect("reached"), their_gradient);
            assert!(error < bound, "{name}, gradient: {error}");
        }
    }
    Ok(())
}

/// Compares, in f32, one thread with three, and each sequence alone with the batch.
#[test]
fn neither_threads_nor_neighbours_change_a_bit() -> Result<()> {
    let qkv = Var::from_tensor(&input(LENGTHS.iter().sum()).to_dtype(DType::F32)?)?;
    for (causal, sizes) in kinds() {
        let run = |qkv: &Var, lengths: &[usize]| -> Result<Rows> {
            let tape = Tape::new();
            let out = hierarchical_attention(Some(&tape), qkv, &spec(lengths, causal, sizes))?;
            let gradients = tape.differentiate(&out, &out)?;
            Ok([out.to_vec2()?, gradients.get(qkv)?.expect("reached").to_vec2()?])
        };
        let name = format!("causal {causal}, {sizes:?}");
        check_threads_and_neighbours(&name, &qkv, &LENGTHS, run)?;
    }
    Ok(())
}

/// Checks that single steps give the same as the whole pass, and that weights sum to one and give
/// the result.
#[test]
fn steps_and_weights_are_those_of_the_whole() -> Result<()> {
    let (length, width) = (60, HEADS * WIDTH);
    let qkv = input(length).as_tensor().detach();
    for (causal, sizes) in kinds() {
        let spec = |length| spec(&[length], causal, sizes);
        let whole = hierarchical_attention(None, &qkv, &spec(length))?;
        let weights = composed::hierarchical_attention_weights(&qkv, &spec(length))?;
        let sums = values(&weights.sum(D::Minus1)?);
        assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-12), "causal {causal}, {sizes:?}");
        let value = qkv.narrow(1, 2 * width, width)?.reshape((1, length, HEADS, WIDTH))?;
        let value = value.transpose(1, 2)?.contiguous()?;
        #[allow(clippy::disallowed_methods, reason = "Candle's own products")]
        let weighed = weights.matmul(&value)?.transpose(1, 2)?.reshape((length, width))?;
        let error = relative(&weighed, &whole);
        assert!(error < 1e-12, "causal {causal}, {sizes:?}: weights: {error}");
        for token in (0..length).filter(|_| causal) {
            let query = qkv.narrow(0, token, 1)?.narrow(1, 0, width)?.contiguous()?;
            let past = qkv.narrow(0, 0, token + 1)?.narrow(1, width, 2 * width)?;
            let past = past.contiguous()?.unsqueeze(0)?;
            let out = composed::hierarchical_attention_step(&query, &past, &spec(token + 1))?;
            let error = relative(&out, &whole.narrow(0, token, 1)?);
            assert!(error < 1e-12, "{sizes:?}, token {token}: {error}");
        }
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let qkv = Tensor::zeros((4, 3 * HEADS * WIDTH), DType::F64, &Device::Cpu)?;
    let refused = |spec: HierarchicalSpec| {
        hierarchical_attention(None, &qkv, &spec).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(spec(&[3], true, (2, 1))).contains("3 tokens in sequences"));
    assert!(refused(spec(&[4], true, (0, 1))).contains("chunks of 0"));
    assert!(refused(spec(&[4], true, (2, 0))).contains("0 levels"));
    Ok(())
}

#[test]
fn every_kernel_serves() {
    again_through_every_kernel("every_kernel_serves");
}
