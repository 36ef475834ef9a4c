//! Learning within the context: what attention does with examples that stand before a question, in
//! f64 on Taper's own operations. `docs/mathematics.md` derives each claim.

use candle_core::{DType, Device, Result, Tensor, Var};
use taper_ops::rng::{Counter, mix};
use taper_ops::{LinearSpec, Tape, linear};

type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

/// Examples, their inputs' and their answers' width.
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
    (a - b)?.abs()?.flatten_all()?.max(0)?.to_scalar()
}

/// `x · wᵀ`, as layers compute it.
fn times(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    linear(None, x, weight, None, None, &LinearSpec::default())
}

/// One step of gradient descent on `L(W) = Σ |W xᵢ − yᵢ|² / 2N` at the rate η, by the tape.
fn descend(weight: &Tensor, x: &Tensor, y: &Tensor, rate: f64) -> Result<Tensor> {
    let weight = Var::from_tensor(weight)?;
    let tape = Tape::new();
    let answers = linear(Some(&tape), x, &weight, None, None, &LinearSpec::default())?;
    let slope = ((answers.detach() - y)? / x.dim(0)? as f64)?;
    let gradient = tape.differentiate(&answers, &slope)?.get(&weight)?.expect("a gradient");
    weight.as_tensor().detach() - (gradient * rate)?
}

/// `e + P Σᵢ (V eᵢ)(K eᵢ)ᵀ(Q e)` of each token `e`, the sum going over `examples`: self-attention
/// without a softmax.
fn attend(
    tokens: &Tensor,
    examples: &Tensor,
    [query, key, value, out]: [&Tensor; 4],
) -> Result<Tensor> {
    let sums = times(examples, value)?.t()?.matmul(&times(examples, key)?)?;
    let heads = times(&times(tokens, query)?, &sums)?;
    tokens + times(&heads, out)?
}

/// The weights of von Oswald et al. 2023, proposition 1: queries and keys are the inputs, a value is
/// the error of W₀ on an example, and the rate over the number of examples projects it.
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

/// Johannes von Oswald et al. 2023, "Transformers learn in-context by gradient descent",
/// proposition 1.
#[test]
fn linear_self_attention_is_a_step_of_gradient_descent() -> TestResult {
    let (count, inputs, answers) = SIZES;
    let (x, truth, first) =
        (normal(count, inputs, 1)?, normal(answers, inputs, 2)?, normal(answers, inputs, 3)?);
    let (y, asked, rate) = (times(&x, &truth)?, normal(4, inputs, 4)?, 0.3);
    let stepped = descend(&first, &x, &y, rate)?;
    let examples = Tensor::cat(&[&x, &y], 1)?;
    // A question's answer begins as what W₀ says, negative.
    let questions = Tensor::cat(&[&asked, &times(&asked, &first)?.neg()?], 1)?;
    let [look, value, out] = construction(&first, rate)?;
    let attended = attend(&questions, &examples, [&look, &look, &value, &out])?;
    let predicted = attended.narrow(1, inputs, answers)?.neg()?;
    assert!(distance(&predicted, &times(&asked, &stepped)?)? < 1e-12);
    // It is a step: neither where it began nor the truth.
    assert!(distance(&predicted, &times(&asked, &first)?)? > 0.1);
    assert!(distance(&predicted, &times(&asked, &truth)?)? > 0.1);
    assert!(distance(&attended.narrow(1, 0, inputs)?, &asked)? == 0.0, "inputs stay");
    Ok(())
}

/// The same, appendix A.1: layers of the same weights are steps from W₀ = 0, each on what the steps
/// before it left to explain.
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
