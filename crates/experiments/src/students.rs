//! Test of an explanation for losses that fall as a power of the number of parameters. Students of
//! several sizes learn the answers of a teacher, which is a function of d dimensions (Sharma and
//! Kaplan 2022, "Scaling Laws from the Data Manifold Dimension", section 3.1).
//!
//! Networks of rectified linear units are piecewise linear. If the number of pieces is proportional
//! to the number N of parameters, the width of a piece is proportional to N^(−1/d). A smooth
//! teacher differs from a linear piece by the square of this width. The squared loss is therefore
//! proportional to N^(−4/d).

use candle_core::{DType, Device, Tensor};
use taper_model::{
    Batch, LossOutput, LossSpec, Model, ModelConfig, ModelCore, ModelError, Objective, Pass,
    Sequences,
};
use taper_ops::rng::{Counter, mix};
use taper_ops::{Activation, LinearSpec, ParameterStore, composed, linear};
use taper_plots::{Axis, Chart, Figure, Series};
use taper_theory::TheoryError;
use taper_theory::studies::{Findings, Study, fitted_exponent, heads};

use crate::lesson::Lesson;

pub(crate) const STUDY: Study = Study {
    name: "teacher-student",
    claim: "The loss of students of N numbers on data of d dimensions falls as N^(−4/d) or faster",
    run,
};

/// Number of points in a batch.
const POINTS: u64 = 256;
/// Number of updates of a training.
const UPDATES: u64 = 2500;
/// Number of points on which losses are measured.
const ASKED: u64 = 8192;
/// Seed of the points on which losses are measured.
const HELD_OUT: u64 = 1 << 32;
/// Widths of the hidden layers of a teacher. Its units are smooth.
const TEACHER: [usize; 2] = [48, 48];

/// Network of linear layers with activations between them. It maps a point to one number.
struct Network {
    core: ModelCore,
    /// Weight `(O, I)` and bias `(O,)` of each layer, for I inputs and O outputs.
    layers: Vec<(Tensor, Tensor)>,
    inputs: usize,
    units: Activation,
}

impl Network {
    /// Draws a network with `inputs` inputs and hidden layers of the widths `hidden`. Weights of a
    /// layer with I inputs have the variance `gain / I`. Biases have the standard deviation 0.5.
    fn draw(
        inputs: usize,
        hidden: &[usize],
        units: Activation,
        gain: f64,
        seed: u64,
    ) -> Result<Self, TheoryError> {
        let mut store = ParameterStore::new(&Device::Cpu);
        let (mut layers, mut width) = (Vec::new(), inputs);
        for (number, size) in hidden.iter().chain(&[1]).copied().enumerate() {
            let counter = Counter::new(mix(seed, &[number as u64]));
            let normal = |factor: f64, at: usize| (factor * counter.normal_at(at as u64)) as f32;
            let factor = (gain / width as f64).sqrt();
            let weight = (0..size * width).map(|at| normal(factor, at)).collect();
            let bias = (0..size).map(|at| normal(0.5, size * width + at)).collect();
            layers.push((
                store.add(&format!("layers.{number}.weight"), &[size, width], weight)?,
                store.add(&format!("layers.{number}.bias"), &[size], bias)?,
            ));
            width = size;
        }
        let core = ModelCore::new(store, &ModelConfig::default(), &["points"]);
        Ok(Self { core, layers, inputs, units })
    }

    /// Computes the network's values at P points.
    ///
    /// # Shapes
    /// `(P, inputs)` → `(P, 1)`.
    fn values(&self, points: &Tensor, pass: &Pass) -> candle_core::Result<Tensor> {
        let mut x = points.clone();
        for (number, (weight, bias)) in self.layers.iter().enumerate() {
            let is_last = number + 1 == self.layers.len();
            let activation = if is_last { Activation::Identity } else { self.units };
            let spec = LinearSpec { activation, ..LinearSpec::default() };
            x = linear(pass.tape(), &x, weight, Some(bias), None, &spec)?;
        }
        Ok(x)
    }
}

impl Model for Network {
    fn predicts_classes() -> bool {
        false
    }

    fn core(&self) -> &ModelCore {
        &self.core
    }

    fn loss_of_pass(&self, batch: &Batch, spec: LossSpec<'_>) -> Result<LossOutput, ModelError> {
        let LossSpec { scale, pass, .. } = spec;
        let [points] = batch.read(["points"])?;
        let numbers = |bits: &[u32]| bits.iter().map(|bits| f32::from_bits(*bits)).collect();
        let (values, count): (Vec<f32>, _) = (numbers(&points.ids), batch.answers.len());
        let points = Tensor::from_vec(values, (count, self.inputs), self.device())?;
        let answers: Vec<f32> = numbers(&batch.answers);
        let answers = Tensor::from_vec(answers, (count, 1), self.device())?;
        let values = self.values(&points, pass)?;
        let loss = composed::on_tape(pass.tape(), "squared error", &[&values], |inputs| {
            (&inputs[0] - &answers)?.sqr()?.sum_all()? * scale
        })?;
        let sum = f64::from(loss.to_scalar::<f32>()?) / scale;
        Ok(LossOutput::of_sum(loss, sum, 0, count))
    }
}

/// A teacher: a random smooth function of d numbers between −1 and 1. Its values have mean 0 and
/// variance 1.
struct Teacher {
    network: Network,
    mean: f64,
    deviation: f64,
}

impl Teacher {
    fn draw(dimensions: usize, seed: u64) -> Result<Self, TheoryError> {
        let network = Network::draw(dimensions, &TEACHER, Activation::Tanh, 3.0, seed)?;
        let mut teacher = Self { network, mean: 0.0, deviation: 1.0 };
        let (_, values) = teacher.points(ASKED, HELD_OUT)?;
        teacher.mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares = values.iter().map(|value| (value - teacher.mean).powi(2)).sum::<f64>();
        teacher.deviation = (squares / values.len() as f64).sqrt();
        Ok(teacher)
    }

    /// Draws `count` points, and computes the teacher's values at these points.
    fn points(&self, count: u64, key: u64) -> Result<(Vec<f32>, Vec<f64>), TheoryError> {
        let inputs = self.network.inputs;
        let counter = Counter::new(mix(key, &[7]));
        let points: Vec<f32> =
            (0..count * inputs as u64).map(|at| 2.0 * counter.f32_at(at) - 1.0).collect();
        let rows = Tensor::from_vec(points.clone(), (count as usize, inputs), &Device::Cpu)?;
        let values = self.network.values(&rows, &Pass::evaluate())?.to_dtype(DType::F64)?;
        let values = values.flatten_all()?.to_vec1::<f64>()?;
        Ok((points, values.iter().map(|value| (value - self.mean) / self.deviation).collect()))
    }

    /// Draws a batch of points with the teacher's values as answers. If memory is exhausted, the
    /// batch is empty.
    fn batch(&self, count: u64, key: u64) -> Batch {
        let (points, values) = self.points(count, key).unwrap_or_default();
        let points: Vec<u32> = points.iter().map(|number| number.to_bits()).collect();
        let answers = values.iter().map(|value| (*value as f32).to_bits()).collect();
        Batch {
            asked: Some((0..points.len() as u32).step_by(self.network.inputs).collect()),
            ..Batch::new(vec![Sequences::pack(&[points])], answers)
        }
    }
}

/// Trains a student that has two hidden layers of `width` units. Returns the number of its
/// parameters, and its mean squared error. The teacher's values have variance 1, so the error is a
/// share of this variance.
///
/// # Errors
/// If the training fails.
pub fn student(
    dimensions: usize,
    width: usize,
    updates: u64,
    seed: u64,
) -> Result<(usize, f64), TheoryError> {
    let teacher = Teacher::draw(dimensions, 100 + dimensions as u64)?;
    let network = Network::draw(dimensions, &[width, width], Activation::Relu, 2.0, seed)?;
    let size = network.parameters().len();
    let lesson = Lesson { updates, learning_rate: 1e-2 };
    let network = lesson.teach(network, seed, |key| teacher.batch(POINTS, key))?;
    let (batch, pass) = (teacher.batch(ASKED, HELD_OUT), Pass::evaluate());
    let loss = network.loss(&batch, &Objective::smoothed(0.0), 1.0, &pass)?;
    Ok((size, loss.nll_sum / ASKED as f64))
}

fn run() -> Result<Findings, TheoryError> {
    let widths = [4, 6, 10, 16, 24];
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    for (colour, dimensions) in [2, 4, 8].into_iter().enumerate() {
        let (mut sizes, mut losses) = (Vec::new(), Vec::new());
        for width in widths {
            // Small students often end in poor minima. So two are trained, and the better one
            // counts.
            let (size, one) = student(dimensions, width, UPDATES, 1)?;
            let (_, other) = student(dimensions, width, UPDATES, 2)?;
            sizes.push(size);
            losses.push(one.min(other));
        }
        let predicted = -4.0 / dimensions as f64;
        let fitted = fitted_exponent(&sizes, &losses);
        let mut row = vec![dimensions.to_string(), format!("{predicted:.2}")];
        row.push(format!("{fitted:.2}"));
        row.push(format!("{:.2}", -4.0 / fitted));
        row.extend([losses[0], losses[losses.len() - 1]].map(|loss| format!("{loss:.2e}")));
        rows.push(row);
        let at = |size: usize| size as f64;
        let law = |exponent: f64| {
            let end = losses[0] * (at(sizes[sizes.len() - 1]) / at(sizes[0])).powf(exponent);
            vec![(at(sizes[0]), losses[0]), (at(sizes[sizes.len() - 1]), end)]
        };
        let measured = sizes.iter().map(|size| at(*size)).zip(losses.iter().copied()).collect();
        series.push(Series::dots(format!("d = {dimensions}"), measured).coloured(colour));
        let name = format!("N^(−4/{dimensions})");
        series.push(Series::dashes(name, law(predicted)).coloured(colour));
    }
    let chart = Chart::new(Axis::log("numbers, N"), Axis::log("squared error"), series);
    let title = "Students of N numbers, and a teacher of 2, 4 and 8 dimensions";
    let description = "Errors fall as powers of N, the slower the more dimensions there are.";
    let figure = Figure::new(title, description, chart);
    Ok(Findings {
        columns: heads(&[
            "d",
            "predicted",
            "fitted",
            "dimensions by the fit",
            "error of the smallest",
            "of the largest",
        ]),
        rows,
        figures: vec![("teacher-student".to_owned(), figure)],
    })
}
