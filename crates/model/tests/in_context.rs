//! Tests of learning in context, that is, from examples that precede a question. Claims about
//! attention to examples are checked in f64 with Taper's own operations; `docs/mathematics.md`
//! derives them. `InContextRegressor`, the model that is trained to learn in context, is compared
//! with PyTorch, and its properties are checked with random numbers.
#![allow(clippy::disallowed_methods, reason = "Candle's own products")]

mod common;

use candle_core::{DType, Device, Result, Tensor, Var};
use common::{ALL_POSITIONS, TestResult, compare_gradients, golden, lengths, load, relative};
use taper_model::{
    ActivationKind, AttentionConfig, AttentionKind, Batch, Builder, InContextRegressor, Model,
    ModelConfig, NormPlacement, Objective, Pass, Positions, Sequences,
};
use taper_ops::rng::{Counter, mix};
use taper_ops::{Gradients, LinearSpec, Tape, linear};

/// Number of examples, width of an example's input, and width of its answer.
const SIZES: (usize, usize, usize) = (12, 5, 2);

/// Independent standard normal values.
fn normal(rows: usize, columns: usize, key: u64) -> Result<Tensor> {
    let counter = Counter::new(mix(31, &[key]));
    let values: Vec<f64> = (0..(rows * columns) as u64).map(|i| counter.normal_at(i)).collect();
    Tensor::from_vec(values, (rows, columns), &Device::Cpu)
}

fn zeros(rows: usize, columns: usize) -> Result<Tensor> {
    Tensor::zeros((rows, columns), DType::F64, &Device::Cpu)
}

fn distance(a: &Tensor, b: &Tensor) -> Result<f64> {
    let apart = (a - b)?.abs()?.flatten_all()?.to_vec1()?;
    // `total_cmp` orders NaN after infinity, so a NaN is returned as the maximum.
    Ok(apart.into_iter().max_by(f64::total_cmp).unwrap_or(0.0))
}

/// Computes `x · wᵀ`, as linear layers do.
fn times(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    linear(None, x, weight, None, None, &LinearSpec::default())
}

/// Returns W after one step of gradient descent with the rate η. Taper's backward pass computes the
/// gradient of the loss, which is `L(W) = Σ |W xᵢ − yᵢ|² / 2N` for N examples.
fn descend(weight: &Tensor, x: &Tensor, y: &Tensor, rate: f64) -> Result<Tensor> {
    let weight = Var::from_tensor(weight)?;
    let tape = Tape::new();
    let answers = linear(Some(&tape), x, &weight, None, None, &LinearSpec::default())?;
    let slope = ((answers.detach() - y)? / x.dim(0)? as f64)?;
    let gradient = tape.differentiate(&answers, &slope)?.get(&weight)?.expect("a gradient");
    weight.as_tensor().detach() - (gradient * rate)?
}

/// Computes `e + P Σᵢ (V eᵢ)(K eᵢ)ᵀ(Q e)` for each token e, where the sum is over the examples eᵢ.
/// This is self-attention without a softmax. Q, K, V and P are the weights of queries, keys, values
/// and the output.
fn attend(
    tokens: &Tensor,
    examples: &Tensor,
    [query, key, value, out]: [&Tensor; 4],
) -> Result<Tensor> {
    let sums = times(examples, value)?.t()?.matmul(&times(examples, key)?)?;
    let heads = times(&times(tokens, query)?, &sums)?;
    tokens + times(&heads, out)?
}

/// Makes the weights of von Oswald et al. 2023, proposition 1. Queries and keys are the inputs. A
/// value is the error that the weights W₀ (`first`) make on an example. The output projection
/// multiplies by the rate divided by the number of examples. The three results are the weights of
/// queries and keys, of values, and of the output.
fn construction(first: &Tensor, rate: f64) -> Result<[Tensor; 3]> {
    let (count, inputs, answers) = SIZES;
    let eye = |width| Tensor::eye(width, DType::F64, &Device::Cpu);
    let width = inputs + answers;
    let upper = Tensor::cat(&[&eye(inputs)?, &zeros(inputs, answers)?], 1)?;
    let look = Tensor::cat(&[&upper, &zeros(answers, width)?], 0)?;
    let error = Tensor::cat(&[first, &eye(answers)?.neg()?], 1)?;
    let value = Tensor::cat(&[&zeros(inputs, width)?, &error], 0)?;
    Ok([look, value, (eye(width)? * (rate / count as f64))?])
}

/// Checks proposition 1 of von Oswald et al. 2023, "Transformers learn in-context by gradient
/// descent".
#[test]
fn linear_self_attention_is_a_step_of_gradient_descent() -> TestResult {
    let (count, inputs, answers) = SIZES;
    let (x, truth, first) =
        (normal(count, inputs, 1)?, normal(answers, inputs, 2)?, normal(answers, inputs, 3)?);
    let (y, asked, rate) = (times(&x, &truth)?, normal(4, inputs, 4)?, 0.3);
    let stepped = descend(&first, &x, &y, rate)?;
    let examples = Tensor::cat(&[&x, &y], 1)?;
    // At first, the part of a question that belongs to the answer has the negated prediction of W₀.
    let questions = Tensor::cat(&[&asked, &times(&asked, &first)?.neg()?], 1)?;
    let [look, value, out] = construction(&first, rate)?;
    let attended = attend(&questions, &examples, [&look, &look, &value, &out])?;
    let predicted = attended.narrow(1, inputs, answers)?.neg()?;
    assert!(distance(&predicted, &times(&asked, &stepped)?)? < 1e-12);
    // The step has an effect: the result is neither the first prediction nor the true answer.
    assert!(distance(&predicted, &times(&asked, &first)?)? > 0.1);
    assert!(distance(&predicted, &times(&asked, &truth)?)? > 0.1);
    assert!(distance(&attended.narrow(1, 0, inputs)?, &asked)? == 0.0, "inputs stay");
    Ok(())
}

/// Checks appendix A.1 of von Oswald et al. 2023: layers with equal weights are steps of gradient
/// descent from W₀ = 0. Each step works on the residual that the steps before it have left.
#[test]
fn layers_of_linear_self_attention_are_steps_of_gradient_descent() -> TestResult {
    let (count, inputs, answers) = SIZES;
    let (x, truth) = (normal(count, inputs, 5)?, normal(answers, inputs, 6)?);
    let (y, asked, rate) = (times(&x, &truth)?, normal(4, inputs, 7)?, 0.4);
    let mut weight = zeros(answers, inputs)?;
    let [look, value, out] = construction(&weight, rate)?;
    let mut examples = Tensor::cat(&[&x, &y], 1)?;
    let mut questions = Tensor::cat(&[&asked, &zeros(4, answers)?], 1)?;
    let mut errors = Vec::new();
    for layer in 0..40 {
        weight = descend(&weight, &x, &y, rate)?;
        let weights = [&look, &look, &value, &out];
        let before = examples.clone();
        examples = attend(&before, &before, weights)?;
        questions = attend(&questions, &before, weights)?;
        let predicted = questions.narrow(1, inputs, answers)?.neg()?;
        let apart = distance(&predicted, &times(&asked, &weight)?)?;
        assert!(apart < 1e-12, "after layer {layer}: {apart}");
        errors.push(distance(&predicted, &times(&asked, &truth)?)?);
    }
    assert!(errors[39] < 0.1 * errors[0], "{errors:?}");
    Ok(())
}

/// Number of inputs of the functions in the golden files, which have the results of PyTorch.
const DIMENSIONS: usize = 3;

fn small(positions: Positions) -> ModelConfig {
    ModelConfig {
        d_model: 32,
        d_ff: 64,
        heads: 4,
        decoder_layers: 2,
        max_positions: 16,
        activation: ActivationKind::Gelu,
        positions,
        ..ModelConfig::default().with_dropout(0.0)
    }
}

fn regressor(config: &ModelConfig) -> InContextRegressor {
    InContextRegressor::new(config, DIMENSIONS, Builder::seeded(5, &Device::Cpu, DType::F32))
        .expect("a model")
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

/// Makes a batch of functions. `points` has the number of points of each function. `numbers` has
/// the numbers x₁, y₁, x₂ and so on of each function, up to its last x. `answers` has every y.
fn batch_of(points: &[usize], numbers: &[f32], answers: &[f32]) -> Batch {
    let lengths: Vec<usize> = points.iter().map(|&points| points * (DIMENSIONS + 1) - 1).collect();
    let mut first = 0;
    let mut asked = Vec::new();
    for &length in &lengths {
        asked.extend((first..first + length as u32).step_by(DIMENSIONS + 1));
        first += length as u32;
    }
    let stream = Sequences { ids: bits(numbers), lengths };
    Batch { asked: Some(asked), ..Batch::new(vec![stream], bits(answers)) }
}

/// Returns random numbers and answers for functions with these numbers of points. They are for
/// tests in which nothing is learned.
fn drawn(points: &[usize]) -> (Vec<f32>, Vec<f32>) {
    let counter = Counter::new(mix(7, &[3]));
    let count: usize = points.iter().map(|points| points * (DIMENSIONS + 1) - 1).sum();
    let number = |i: usize| counter.normal_at(i as u64) as f32;
    let answers = (0..points.iter().sum()).map(|i| number(count + i));
    ((0..count).map(number).collect(), answers.collect())
}

fn agrees(name: &str, config: &ModelConfig) -> TestResult {
    let file = golden(name);
    let model = regressor(config);
    load(&model, &file);
    let of_file = |key: &str| file[key].to_vec1::<f32>();
    let points: Vec<usize> =
        lengths(&file["lengths"]).iter().map(|length| (length + 1) / (DIMENSIONS + 1)).collect();
    let batch = batch_of(&points, &of_file("numbers")?, &of_file("answers")?);
    let predicted = model.predict(&batch.streams[0])?;
    let predicted = Tensor::from_vec(predicted, batch.tokens(), &Device::Cpu)?;
    let error = relative(&predicted, &file["predictions"]);
    assert!(error < 1e-5, "{name}: predictions {error}");

    let scale = 1.0 / batch.tokens() as f64;
    let pass = Pass::train(1, 1, 0);
    let output = model.loss(&batch, &Objective::default(), scale, &pass)?;
    let theirs = f64::from(file["loss"].to_scalar::<f32>()?);
    assert!((output.nll_sum * scale / theirs - 1.0).abs() < 1e-5, "{name}: loss");
    let mut gradients = Gradients::new(model.parameters())?;
    common::backward(pass, &output, model.parameters(), &mut gradients)?;
    let flat = gradients.flat()?.copy()?;
    compare_gradients(name, &model, &flat, &file);
    Ok(())
}

/// Compares the model with PyTorch, whose results `scripts/golden/decoders/in_context.py` writes.
#[test]
fn pytorch_agrees_on_regression() -> TestResult {
    agrees("decoders/in-context-learned", &small(Positions::Learned))?;
    let post = ModelConfig {
        activation: ActivationKind::Swish,
        norm: NormPlacement::Post,
        ..small(Positions::Sinusoidal)
    };
    agrees("decoders/in-context-sinusoidal", &post)
}

/// Checks that a prediction depends only on the points before it and on its own x. Later points,
/// and other functions in the batch, must change nothing.
#[test]
fn a_prediction_is_of_the_points_before_it() -> TestResult {
    let linear = AttentionConfig { kind: AttentionKind::Linear, ..Default::default() };
    let others = ModelConfig { decoder_attention: linear, ..small(Positions::None) };
    let configs = ALL_POSITIONS.map(small).into_iter().chain([others]);
    let points = [5, 1, 8];
    let (numbers, answers) = drawn(&points);
    let batch = batch_of(&points, &numbers, &answers);
    for config in configs {
        let model = regressor(&config);
        let whole = model.predict(&batch.streams[0])?;
        let near = |ours: &[f32], theirs: &[f32]| {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-5)
        };
        let alone = Sequences { ids: bits(&numbers[..11]), lengths: vec![11] };
        assert!(near(&model.predict(&alone)?, &whole[..3]), "{:?}", config.positions);
        let last = Sequences { ids: bits(&numbers[19 + 3..]), lengths: vec![31] };
        assert!(near(&model.predict(&last)?, &whole[6..]), "{:?}", config.positions);
        // A prediction depends on each of the points before it.
        let mut changed = numbers.clone();
        changed[3] += 1.0;
        let of_others = model.predict(&batch_of(&points, &changed, &answers).streams[0])?;
        assert!(near(&of_others[..1], &whole[..1]) && near(&of_others[5..], &whole[5..]));
        assert!((1..5).all(|at| of_others[at] != whole[at]), "{:?}", config.positions);
    }
    Ok(())
}

#[test]
fn the_loss_of_a_batch_is_that_of_its_parts() -> TestResult {
    let points = [5, 1, 8, 2];
    let (numbers, answers) = drawn(&points);
    let batch = batch_of(&points, &numbers, &answers);
    let model = regressor(&small(Positions::Learned));
    let loss = |batch: &Batch| {
        model.loss(batch, &Objective::default(), 1.0, &Pass::evaluate()).map(|out| out.nll_sum)
    };
    let parts = batch.divided(6);
    assert_eq!(parts.len(), 3);
    let sum = parts.iter().map(loss).sum::<std::result::Result<f64, _>>()?;
    let (whole, predicted) = (loss(&batch)?, model.predict(&batch.streams[0])?);
    assert!((sum / whole - 1.0).abs() < 1e-6, "{sum} {whole}");
    let by_hand: f64 = predicted.iter().zip(&answers).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    assert!((by_hand / whole - 1.0).abs() < 1e-6, "{by_hand} {whole}");
    Ok(())
}

#[test]
fn what_is_no_function_is_refused() {
    let model = regressor(&small(Positions::Learned));
    let (numbers, answers) = drawn(&[3]);
    let good = batch_of(&[3], &numbers, &answers);
    let says = |batch: &Batch, objective: &Objective| {
        model.loss(batch, objective, 1.0, &Pass::evaluate()).unwrap_err().to_string()
    };
    let plain = Objective::default();
    let mut batch = good.clone();
    batch.streams[0] = Sequences { ids: bits(&numbers[..10]), lengths: vec![10] };
    assert!(says(&batch, &plain).contains("not 10 numbers"));
    let mut batch = good.clone();
    batch.asked = Some(vec![0, 4, 9]);
    assert!(says(&batch, &plain).contains("first number of each x"));
    assert!(says(&good, &Objective { r_drop: 1.0, ..plain }).contains("training.r_drop"));
    let (numbers, answers) = drawn(&[9]);
    assert!(says(&batch_of(&[9], &numbers, &answers), &plain).contains("max_positions = 16"));
    let builder = || Builder::seeded(5, &Device::Cpu, DType::F32);
    assert!(InContextRegressor::new(&small(Positions::Learned), 0, builder()).is_err());
}
