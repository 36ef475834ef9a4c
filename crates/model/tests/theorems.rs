//! Theorems about Transformers, which are checked with Taper's own operations in f64.
//! `docs/mathematics.md` derives each claim. The comment above a test names the paper from which
//! the claim comes.
#![allow(clippy::disallowed_methods, reason = "Candle's own products")]

use candle_core::{Device, Result, Tensor, Var};
use taper_model::positions::sinusoids;
use taper_model::{Builder, Model, ModelConfig, Pass, Sequences, SinusoidFrequencies, Transformer};
use taper_ops::rng::{Counter, mix};
use taper_ops::{
    Activation, AttentionShape, AttentionSpec, LinearSpec, NormSpec, Tape, Turns, composed,
    cross_attention, linear, norm, rotary, self_attention,
};

type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

/// Independent standard normal values.
fn normal(rows: usize, columns: usize, key: u64) -> Tensor {
    let counter = Counter::new(mix(26, &[key]));
    let values: Vec<f64> = (0..(rows * columns) as u64).map(|i| counter.normal_at(i)).collect();
    matrix(values, rows, columns)
}

fn matrix(values: Vec<f64>, rows: usize, columns: usize) -> Tensor {
    Tensor::from_vec(values, (rows, columns), &Device::Cpu).unwrap()
}

fn identity(width: usize, factor: f64) -> Tensor {
    let at = |i: usize| if i / width == i % width { factor } else { 0.0 };
    matrix((0..width * width).map(at).collect(), width, width)
}

fn values(x: &Tensor) -> Vec<f64> {
    x.flatten_all().unwrap().to_vec1().unwrap()
}

/// Largest absolute difference between elements of two tensors of the same shape; NaN if any of
/// them is NaN.
fn distance(left: &Tensor, right: &Tensor) -> f64 {
    assert_eq!(left.dims(), right.dims());
    let apart = values(left).into_iter().zip(values(right)).map(|(l, r)| (l - r).abs());
    // `total_cmp` orders NaN after infinity, so a NaN is returned as the maximum.
    apart.max_by(f64::total_cmp).unwrap_or(0.0)
}

fn variance(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count
}

fn spec(shape: AttentionShape, queries: &[usize], keys: &[usize], causal: bool) -> AttentionSpec {
    AttentionSpec { key_lengths: keys.into(), causal, ..AttentionSpec::new(shape, queries) }
}

/// Applies one head of attention. `query` has the shape `(n, d)`, and `key` and `value` have the
/// shape `(m, d)`, with n queries and m keys of width d.
fn attend(query: &Tensor, key: &Tensor, value: &Tensor, causal: bool) -> Result<Tensor> {
    let shape = AttentionShape::with_heads(1, query.dim(1)?);
    let spec = spec(shape, &[query.dim(0)?], &[key.dim(0)?], causal);
    cross_attention(None, query, &Tensor::cat(&[key, value], 1)?, None, &spec)
}

/// Makes a table of sinusoids with the shape `(count, width)`. Taper keeps the table in f32, and
/// therefore tests that use it have bounds of about 1e-6.
fn positions(count: usize, width: usize) -> Tensor {
    let table = sinusoids(0..count, width, false, SinusoidFrequencies::Paper);
    matrix(table.into_iter().map(f64::from).collect(), count, width)
}

/// Makes the matrix that shifts sinusoids by `distance` positions. It rotates each pair of columns.
fn shift(width: usize, distance: f64) -> Tensor {
    let mut values = vec![0.0; width * width];
    for pair in 0..width / 2 {
        let frequency = 10_000_f64.powf(-2.0 * pair as f64 / width as f64);
        let (sine, cosine) = (frequency * distance).sin_cos();
        let (even, odd) = (2 * pair, 2 * pair + 1);
        // sin(a + b) = sin a cos b + cos a sin b, cos(a + b) = cos a cos b - sin a sin b
        (values[even * width + even], values[even * width + odd]) = (cosine, sine);
        (values[odd * width + even], values[odd * width + odd]) = (-sine, cosine);
    }
    matrix(values, width, width)
}

/// Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1, footnote 4: if the components
/// of queries and keys have mean 0 and variance 1, products of a query and a key have variance d.
/// Divided by √d, the products have variance 1.
#[test]
fn scores_have_variance_d_before_scaling_and_1_after() -> TestResult {
    let count = 16_384;
    for width in [8, 64, 256] {
        let (query, key) = (normal(count, width, 1), normal(2 * count, width, 2));
        let every_other = key.reshape((count, 2 * width))?.narrow(1, 0, width)?;
        let products = values(&(&query * every_other)?.sum(1)?);
        let ratio = variance(&products) / width as f64;
        assert!((ratio - 1.0).abs() < 0.05, "width {width}: {ratio} d before scaling");

        // Taper's attention exposes its weights, but not its scores. The logarithm of the ratio of
        // two weights is the difference of two scores, and this difference has twice the variance
        // of a score.
        let spec =
            spec(AttentionShape::with_heads(1, width), &vec![1; count], &vec![2; count], false);
        let weights = composed::attention_weights(&query, &key, None, &spec)?; // (B, 1, 1, 2)
        let differences: Vec<f64> =
            values(&weights).chunks_exact(2).map(|pair| (pair[0] / pair[1]).ln()).collect();
        let after = variance(&differences) / 2.0;
        assert!((after - 1.0).abs() < 0.05, "width {width}: {after} after scaling");
    }
    Ok(())
}

/// Lee et al. 2019, "Set Transformer", property 1: attention without positions commutes with
/// permutations of its input, and the mean of its results over the tokens does not depend on the
/// order of the tokens. With positions, or with a causal mask, this no longer holds.
#[test]
fn attention_without_positions_is_equivariant_and_its_mean_invariant() -> TestResult {
    let order = Tensor::new(&[3_u32, 0, 6, 1, 5, 2, 4], &Device::Cpu)?;
    let (length, width) = (7, 12);
    let (x, weight) = (normal(length, width, 3), normal(3 * width, width, 4));
    let layer = |x: &Tensor, causal: bool| -> Result<Tensor> {
        let qkv = linear(None, x, &weight, None, None, &LinearSpec::default())?;
        self_attention(
            None,
            &qkv,
            None,
            &spec(AttentionShape::dividing(width, 3), &[length], &[length], causal),
        )
    };
    let moved = |x: &Tensor| x.index_select(&order, 0);

    let (first, second) = (moved(&layer(&x, false)?)?, layer(&moved(&x)?, false)?);
    assert!(distance(&first, &second) < 1e-12);
    assert!(distance(&layer(&x, false)?.mean(0)?, &second.mean(0)?) < 1e-12);

    let placed = |x: &Tensor| x + positions(length, width);
    let difference =
        distance(&moved(&layer(&placed(&x)?, false)?)?, &layer(&placed(&moved(&x)?)?, false)?);
    assert!(difference > 0.1, "positions change nothing: {difference}");
    let difference = distance(&moved(&layer(&x, true)?)?, &layer(&moved(&x)?, true)?);
    assert!(difference > 0.1, "a causal mask changes nothing: {difference}");
    Ok(())
}

/// Vaswani et al. 2017, section 3.5: for any fixed offset k, the encoding PE(p + k) of position p +
/// k is a linear function of the encoding PE(p) of position p. This function is a rotation.
/// Therefore the product of two encodings depends only on the distance of their positions.
#[test]
fn a_shift_of_sinusoids_is_one_linear_map() -> TestResult {
    let (count, width) = (60, 32);
    let table = positions(count, width);
    for distance_of_shift in [1, 7, 25] {
        let moved = table.matmul(&shift(width, distance_of_shift as f64).t()?)?;
        let count = count - distance_of_shift;
        let expected = table.narrow(0, distance_of_shift, count)?;
        assert!(distance(&moved.narrow(0, 0, count)?, &expected) < 1e-6, "{distance_of_shift}");
    }
    let products = table.matmul(&table.t()?)?.to_vec2::<f64>()?;
    for i in 0..count {
        for j in 0..count {
            let same = products[i.abs_diff(j)][0];
            assert!((products[i][j] - same).abs() < 1e-5, "{i}, {j}: {} {same}", products[i][j]);
        }
    }
    Ok(())
}

/// Su et al. 2021, "RoFormer", section 3.2: if a query and a key are rotated by their positions,
/// their product depends only on the difference of the two positions.
#[test]
fn rotary_scores_depend_on_the_difference_of_positions_alone() -> TestResult {
    let width = 16;
    let (query, key) = (normal(1, width, 5), normal(1, width, 6));
    let score = |at: u32, other: u32| -> Result<f64> {
        let turned =
            |x: &Tensor, at: u32| rotary(None, x, (&[at].into(), Turns::default()), width, width);
        (turned(&query, at)? * turned(&key, other)?)?.sum_all()?.to_scalar()
    };
    for difference in [0, 1, 5, 40] {
        let expected = score(difference, 0)?;
        for start in [1, 17, 1000] {
            let moved = score(start + difference, start)?;
            assert!((moved - expected).abs() < 1e-10, "{difference} from {start}");
        }
    }
    assert!((score(5, 0)? - score(0, 5)?).abs() > 0.1, "the direction counts");
    Ok(())
}

/// Hinton, Vinyals and Dean 2015, "Distilling the Knowledge in a Neural Network", section 2, which
/// defines the softmax with a temperature T. As T goes to 0, the largest of n scores gets all the
/// weight. If the next score is smaller by Δ, the weights of all other scores sum to at most
/// `(n - 1) exp(-Δ/T)`.
#[test]
fn a_temperature_towards_zero_gives_one_hot_weights() -> TestResult {
    let scores = [0.3, 1.0, -2.0, 0.7, 0.0];
    let (count, gap) = (scores.len(), 0.3);
    for temperature in [1.0, 0.1, 0.03, 0.01] {
        let weights = values(&softmax(None, &matrix(scores.to_vec(), 1, count), temperature)?);
        let others = 1.0 - weights[1];
        assert!(others <= (count - 1) as f64 * (-gap / temperature).exp() + 1e-15, "{others}");
    }
    let cold = softmax(None, &matrix(scores.to_vec(), 1, count), 0.005)?;
    assert!(distance(&cold, &matrix(vec![0.0, 1.0, 0.0, 0.0, 0.0], 1, count)) < 1e-15);
    // At the other extreme, where the temperature is high, all weights are equal.
    let hot = softmax(None, &matrix(scores.to_vec(), 1, count), 1e9)?;
    assert!(distance(&hot, &matrix(vec![0.2; 5], 1, count)) < 1e-8);
    Ok(())
}

/// Computes `softmax(scores / T)` by Taper's attention. The scores are the query. The keys are the
/// n unit vectors times `√n / T`. The values are the unit vectors, so the output is the attention
/// weights.
fn softmax(tape: Option<&Tape>, scores: &Tensor, temperature: f64) -> Result<Tensor> {
    let width = scores.dim(1)?;
    let key = identity(width, (width as f64).sqrt() / temperature);
    let key_value = Tensor::cat(&[key, identity(width, 1.0)], 1)?;
    cross_attention(
        tape,
        scores,
        &key_value,
        None,
        &spec(AttentionShape::with_heads(1, width), &[1], &[width], false),
    )
}

/// Bridle 1990, "Probabilistic Interpretation of Feedforward Classification Network Outputs": the
/// Jacobian of p = softmax(s) is diag(p) - p pᵀ, where s are the scores.
#[test]
fn the_jacobian_of_softmax() -> TestResult {
    let width = 6;
    let scores = Var::from_tensor(&normal(1, width, 7))?;
    let p = values(&softmax(None, &scores, 1.0)?);
    for i in 0..width {
        let tape = Tape::new();
        let out = softmax(Some(&tape), &scores, 1.0)?;
        let unit = identity(width, 1.0).narrow(0, i, 1)?.contiguous()?;
        let row = values(&tape.differentiate(&out, &unit)?.get(&scores)?.ok_or("no gradient")?);
        for j in 0..width {
            let expected = p[i] * (f64::from(u8::from(i == j)) - p[j]);
            assert!((row[j] - expected).abs() < 1e-12, "{i}, {j}: {} {expected}", row[j]);
        }
        // A constant that is added to all scores changes nothing, so each row of the Jacobian sums
        // to 0.
        assert!(row.iter().sum::<f64>().abs() < 1e-12);
    }
    Ok(())
}

/// Applies a layer `W relu(V x)` with a layer norm, which comes before the layer if `pre` is true,
/// and otherwise after it. `residual` says whether the layer has a residual path.
fn layer(
    tape: &Tape,
    x: &Tensor,
    (up, down): (&Tensor, &Tensor),
    pre: bool,
    residual: bool,
) -> Result<Tensor> {
    let width = x.dim(1)?;
    let (one, zero) = (matrix(vec![1.0; width], 1, width), matrix(vec![0.0; width], 1, width));
    let norm = |x: &Tensor| {
        norm(Some(tape), x, &one.squeeze(0)?, Some(&zero.squeeze(0)?), &NormSpec::layer(1e-12))
    };
    let relu = LinearSpec { activation: Activation::Relu, ..Default::default() };
    let input = if pre { norm(x)? } else { x.clone() };
    let inner = linear(Some(tape), &input, up, None, None, &relu)?;
    let out =
        linear(Some(tape), &inner, down, None, residual.then_some(x), &LinearSpec::default())?;
    if pre { Ok(out) } else { norm(&out) }
}

/// He et al. 2016, "Identity Mappings in Deep Residual Networks", section 2, and Xiong et al. 2020,
/// "On Layer Normalization in the Transformer Architecture": the Jacobian of x + f(x) is the
/// identity plus the Jacobian of f. Therefore a part of the gradient reaches any depth without
/// passing through a layer. Pre-LN leaves this path free; Post-LN puts a norm on it.
#[test]
fn residual_paths_carry_the_gradient_unchanged() -> TestResult {
    let (rows, width, depth) = (3, 8, 24);
    let (up, down) = (normal(2 * width, width, 8), normal(width, 2 * width, 9));
    let adjoint = normal(rows, width, 10);
    let x = Var::from_tensor(&normal(rows, width, 11))?;
    let gradient = |down: &Tensor, depth: usize, pre: bool, residual: bool| -> Result<Tensor> {
        let tape = Tape::new();
        let mut out = x.as_tensor().clone();
        for _ in 0..depth {
            out = layer(&tape, &out, (&up, down), pre, residual)?;
        }
        Ok(tape.differentiate(&out, &adjoint)?.get(&x)?.expect("a gradient"))
    };

    // With one layer, the gradients with and without the residual path differ by the incoming
    // gradient.
    let through_path = (gradient(&down, 1, true, true)? - gradient(&down, 1, true, false)?)?;
    assert!(distance(&through_path, &adjoint) < 1e-12);
    // If all weights `W` of twenty-four layers are 0, the gradient passes unchanged.
    let silent = down.zeros_like()?;
    assert!(distance(&gradient(&silent, depth, true, true)?, &adjoint) < 1e-12);
    // With Post-LN, the gradient changes even if these weights are 0. A norm removes the shift and
    // the scale of its input, and so it also removes the part of the gradient that belongs to them.
    let after_norms = gradient(&silent, depth, false, true)?;
    assert!(distance(&after_norms, &adjoint) > 0.1);
    for (gradient, x) in after_norms.to_vec2::<f64>()?.iter().zip(x.to_vec2::<f64>()?) {
        assert!(gradient.iter().sum::<f64>().abs() < 1e-10);
        assert!(gradient.iter().zip(x).map(|(g, x)| g * x).sum::<f64>().abs() < 1e-10);
    }
    Ok(())
}

/// Weiss, Goldberg and Yahav 2021, "Thinking Like Transformers", section 3 (select and aggregate):
/// if all scores of a head are equal, the output of the head for a token is the mean of all values
/// that the token sees.
#[test]
fn a_head_that_averages() -> TestResult {
    let (length, width) = (9, 4);
    let (x, zero) = (normal(length, width, 12), matrix(vec![0.0; length * width], length, width));
    let rows = attend(&zero, &x, &x, true)?.to_vec2::<f64>()?;
    for (i, row) in rows.iter().enumerate() {
        let expected = values(&x.narrow(0, 0, i + 1)?.mean(0)?);
        assert!(row.iter().zip(expected).all(|(out, mean)| (out - mean).abs() < 1e-12), "{i}");
    }
    Ok(())
}

/// Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits" (previous token heads):
/// a head can copy the previous token. Its queries are position encodings shifted back by one, its
/// keys are position encodings, and its values are the tokens.
#[test]
fn a_head_that_copies_the_previous_token() -> TestResult {
    let (length, width, sharpness) = (20, 32, 400.0);
    let place = positions(length, width);
    let query = (place.matmul(&shift(width, -1.0).t()?)? * sharpness)?;
    let tokens = normal(length, width, 13);
    let out = attend(&query, &place, &tokens, true)?;
    assert!(distance(&out.narrow(0, 1, length - 1)?, &tokens.narrow(0, 0, length - 1)?) < 1e-12);
    // The first token has no token before it, and attends to itself.
    assert!(distance(&out.narrow(0, 0, 1)?, &tokens.narrow(0, 0, 1)?) < 1e-12);
    Ok(())
}

/// Weiss, Goldberg and Yahav 2021, section 3 (the selector `==`): a head can find out whether a
/// token occurs in another sequence. Queries and keys are one-hot vectors of tokens, so the score
/// is 1 for equal tokens and 0 for different ones. Before the other keys there is one whose score
/// is ½ for every token. It receives the weight of a token that has no equal. The output of the
/// head for a token is 1 if the other sequence contains the token, and 0 otherwise.
#[test]
fn a_head_that_compares_for_equality() -> TestResult {
    let (vocabulary, sharpness) = (8, 400.0);
    let one_hot = |tokens: &[usize], first: Option<f64>| {
        let mut rows: Vec<f64> = first.map_or(Vec::new(), |value| vec![value; vocabulary]);
        for token in tokens {
            rows.extend((0..vocabulary).map(|i| f64::from(u8::from(i == *token))));
        }
        let count = rows.len() / vocabulary;
        matrix(rows, count, vocabulary)
    };
    let (asked, known) = ([4, 1, 7, 1, 0], [1, 2, 4, 2]);
    let query = (one_hot(&asked, None) * sharpness)?;
    let key = one_hot(&known, Some(0.5));
    // The value of the first key is 0, which means that no token is equal. The values of the other
    // keys are 1.
    let said: Vec<f64> =
        (0..5 * vocabulary).map(|i| f64::from(u8::from(i >= vocabulary))).collect();
    let out = attend(&query, &key, &matrix(said, 5, vocabulary), false)?.to_vec2::<f64>()?;
    for (token, row) in asked.iter().zip(out) {
        let expected = f64::from(u8::from(known.contains(token)));
        assert!((row[0] - expected).abs() < 1e-12, "token {token}: {}", row[0]);
    }
    Ok(())
}

/// Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters",
/// appendix: a block takes 24nd² + 4n²d floating-point operations, for n tokens of width d and a
/// feed-forward layer of width 4d. Its attention has 4d² + 4d parameters, because it has four
/// projections d × d with biases.
#[test]
fn parameters_of_attention_and_operations_of_a_block() -> TestResult {
    let (d, heads, n) = (24, 3, 10);
    let config = ModelConfig {
        d_model: d,
        d_ff: 4 * d,
        heads,
        encoder_layers: 1,
        decoder_layers: 1,
        ..Default::default()
    };
    let model = Transformer::new(
        &config,
        11,
        11,
        Builder::seeded(1, &Device::Cpu, candle_core::DType::F32),
    )?;
    let block = |part: &'static str| {
        let prefix = format!("encoder.layers.0.{part}");
        let parameters = model.parameters().parameters().iter();
        parameters.filter(move |parameter| parameter.name().starts_with(&prefix))
    };
    let attention: usize = block("self_attention.").map(|parameter| parameter.len()).sum();
    assert_eq!(attention, 4 * d * d + 4 * d);

    // Each element of a weight matrix takes one multiplication and one addition for each token.
    let matrices: usize = block("").filter(|p| p.is_matrix()).map(|p| 2 * n * p.len()).sum();
    // Each attention weight comes from a product of two vectors of the width of a head, and it
    // multiplies a value vector of the same width.
    let pass = Pass::evaluate_with_attention_of("encoder.layers.0.self_attention");
    model.encode(&Sequences::pack(&[vec![5_u32; n]]), &pass)?;
    let weights = pass.into_attention()[0].weights.elem_count(); // H · n · n
    let scores_and_mixing = weights * (2 * d / heads) * 2;
    assert_eq!(matrices + scores_and_mixing, 24 * n * d * d + 4 * n * n * d);
    Ok(())
}
