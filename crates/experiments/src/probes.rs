//! Linear probes of a decoder that was trained on linear functions. The question is in which layers
//! the decoder's states contain the moment vector Xᵀy and the weights of ridge regression (Akyürek
//! et al. 2023, "What learning algorithm is in-context learning?", section 5).
//!
//! A probe is a linear map. It predicts one of these two quantities from the state that the last x
//! of a function has after a layer. The map is fitted by ridge regression on some functions, and
//! its error is measured on other functions.

use candle_core::{DType, Device, Tensor};
use taper_model::{
    Batch, Builder, InContextRegressor, Model, ModelConfig, Objective, Pass, Positions, Sequences,
    StatePoint,
};
use taper_ops::rng::{Counter, mix};
use taper_plots::{Axis, Chart, Figure, Series};
use taper_theory::TheoryError;
use taper_theory::studies::{Findings, Study, heads};

use crate::lesson::Lesson;

pub(crate) const STUDY: Study = Study {
    name: "probes",
    claim: "Layers that were trained to continue linear functions hold Xᵀy and w, which linear \
            probes read",
    run,
};

/// Number of dimensions of x.
const DIMENSIONS: usize = 2;
/// Number of points of a function; the y of the last point is asked for.
const POINTS: usize = 11;
/// Standard deviation of the noise on y.
const NOISE: f64 = 0.5;
/// Number of functions in a batch.
const ROWS: u64 = 64;
/// Number of functions on which probes are fitted, and number on which they are measured.
const PROBED: (usize, usize) = (1024, 512);
/// Seed of the functions for probes, which are not trained on.
const HELD_OUT: u64 = 1 << 32;

/// A linear function with noise, as points (x, y).
struct Function {
    points: Vec<([f64; DIMENSIONS], f64)>,
}

impl Function {
    fn draw(key: u64) -> Self {
        let counter = Counter::new(key);
        let normal = |at: usize| counter.normal_at(at as u64);
        let weights: [f64; DIMENSIONS] = std::array::from_fn(normal);
        let point = |point: usize| {
            let first = (point + 1) * (DIMENSIONS + 1);
            let input: [f64; DIMENSIONS] = std::array::from_fn(|at| normal(first + at));
            let product: f64 = input.iter().zip(weights).map(|(x, w)| x * w).sum();
            (input, product + NOISE * normal(first + DIMENSIONS))
        };
        Self { points: (0..POINTS).map(point).collect() }
    }

    /// Bits of the numbers that the model reads: x₁, y₁, x₂, y₂ and so on. The last number is the
    /// last x.
    fn bits(&self) -> Vec<u32> {
        let numbers = self.points.iter().flat_map(|(x, y)| x.iter().chain([y]));
        let mut bits: Vec<u32> = numbers.map(|number| (*number as f32).to_bits()).collect();
        bits.pop();
        bits
    }

    /// Returns the moment vector Xᵀy/n and the weights of ridge regression. Both are computed from
    /// the n points before the last one.
    fn quantities(&self) -> [Vec<f64>; 2] {
        let known = &self.points[..POINTS - 1];
        let mut matrix = vec![vec![0.0; DIMENSIONS]; DIMENSIONS];
        let mut moments = vec![0.0; DIMENSIONS];
        for (x, y) in known {
            for (row, left) in x.iter().enumerate() {
                moments[row] += left * y;
                matrix[row].iter_mut().zip(x).for_each(|(sum, right)| *sum += left * right);
            }
        }
        (0..DIMENSIONS).for_each(|at| matrix[at][at] += NOISE * NOISE);
        let weights = solve(matrix, vec![moments.clone()]).remove(0);
        moments.iter_mut().for_each(|moment| *moment /= known.len() as f64);
        [moments, weights]
    }
}

/// Makes a batch of functions, in which each x asks for its y.
fn batch_of(functions: &[Function]) -> Batch {
    let rows: Vec<Vec<u32>> = functions.iter().map(Function::bits).collect();
    let length = rows.first().map_or(0, Vec::len);
    let first = (0..rows.len()).flat_map(|row| {
        (row * length..(row + 1) * length).step_by(DIMENSIONS + 1).map(|at| at as u32)
    });
    let answers = functions.iter().flat_map(|one| one.points.iter().map(|(_, y)| *y as f32));
    Batch {
        asked: Some(first.collect()),
        ..Batch::new(vec![Sequences::pack(&rows)], answers.map(f32::to_bits).collect())
    }
}

/// Solves `matrix · w = right` for each vector `right` of `rights`, by elimination. The matrix must
/// be positive definite.
fn solve(mut matrix: Vec<Vec<f64>>, mut rights: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let size = matrix.len();
    for pivot in 0..size {
        let above = matrix[pivot].clone();
        for row in pivot + 1..size {
            let factor = matrix[row][pivot] / matrix[pivot][pivot];
            matrix[row].iter_mut().zip(&above).for_each(|(cell, above)| *cell -= factor * above);
            rights.iter_mut().for_each(|right| right[row] -= factor * right[pivot]);
        }
    }
    for right in &mut rights {
        for row in (0..size).rev() {
            let known: f64 = (row + 1..size).map(|at| matrix[row][at] * right[at]).sum();
            right[row] = (right[row] - known) / matrix[row][row];
        }
    }
    rights
}

/// Share of the variance of `targets` that a linear map of `states` explains. The map is fitted by
/// ridge regression on the first `fitted` rows, and the share is measured on the other rows. The
/// share is at most 1. It is negative if the map predicts worse than the mean of the fitted
/// targets.
#[must_use]
pub fn explained(states: &[Vec<f64>], targets: &[Vec<f64>], fitted: usize) -> f64 {
    let widths = (states[0].len() + 1, targets[0].len());
    let with_one = |state: &Vec<f64>| [state.as_slice(), &[1.0]].concat();
    let states: Vec<Vec<f64>> = states.iter().map(with_one).collect();
    let mut matrix = vec![vec![0.0; widths.0]; widths.0];
    let mut rights = vec![vec![0.0; widths.0]; widths.1];
    for (state, target) in states[..fitted].iter().zip(targets) {
        for (row, left) in matrix.iter_mut().zip(state) {
            row.iter_mut().zip(state).for_each(|(sum, right)| *sum += left * right);
        }
        for (right, target) in rights.iter_mut().zip(target) {
            right.iter_mut().zip(state).for_each(|(sum, part)| *sum += target * part);
        }
    }
    (0..widths.0).for_each(|at| matrix[at][at] += 1e-3 * fitted as f64);
    let maps = solve(matrix, rights);
    let (mut errors, mut variance) = (0.0, 0.0);
    for (part, map) in maps.iter().enumerate() {
        let mean = targets[..fitted].iter().map(|row| row[part]).sum::<f64>() / fitted as f64;
        for (state, target) in states.iter().zip(targets).skip(fitted) {
            let found: f64 = map.iter().zip(state).map(|(factor, part)| factor * part).sum();
            errors += (found - target[part]).powi(2);
            variance += (mean - target[part]).powi(2);
        }
    }
    1.0 - errors / variance
}

/// Trains a decoder of `layers` layers on linear functions. With 0 updates, the decoder keeps its
/// random weights.
///
/// # Errors
/// If the training fails.
pub fn regressor(
    layers: usize,
    updates: u64,
    seed: u64,
) -> Result<InContextRegressor, TheoryError> {
    let config = ModelConfig {
        d_model: 48,
        d_ff: 192,
        heads: 4,
        decoder_layers: layers,
        positions: Positions::Learned,
        max_positions: 2 * POINTS,
        ..ModelConfig::default().with_dropout(0.0)
    };
    let builder = Builder::seeded(seed, &Device::Cpu, DType::F32);
    let model = InContextRegressor::new(&config, DIMENSIONS, builder)?;
    if updates == 0 {
        return Ok(model);
    }
    let lesson = Lesson { updates, learning_rate: 2e-3 };
    lesson.teach(model, seed, |key| {
        let functions = (0..ROWS).map(|number| Function::draw(mix(key, &[number])));
        batch_of(&functions.collect::<Vec<_>>())
    })
}

/// Results of probing a decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct Probed {
    /// Mean squared errors of two answers at the last x: the model's, and that of ridge regression.
    pub errors: [f64; 2],
    /// Shares of the variance that probes explain, for Xᵀy and for w, the weights of ridge
    /// regression. The index is the number of layers that the state has passed, from 0 on.
    pub explained: Vec<[f64; 2]>,
}

/// Fits and measures probes of a decoder.
///
/// # Errors
/// If the device has no memory left.
pub fn probe(model: &InContextRegressor) -> Result<Probed, TheoryError> {
    let draw = |number: usize| Function::draw(mix(HELD_OUT, &[number as u64]));
    let functions: Vec<Function> = (0..PROBED.0 + PROBED.1).map(draw).collect();
    let batch = batch_of(&functions);
    let (mut errors, predicted) = ([0.0; 2], model.predict(&batch.streams[0])?);
    let quantities: Vec<[Vec<f64>; 2]> = functions.iter().map(Function::quantities).collect();
    for ((function, found), [_, weights]) in
        functions.iter().zip(predicted.chunks(POINTS)).zip(&quantities)
    {
        let (x, y) = function.points[POINTS - 1];
        let ridge: f64 = weights.iter().zip(x).map(|(w, x)| w * x).sum();
        for (error, answer) in errors.iter_mut().zip([f64::from(found[POINTS - 1]), ridge]) {
            *error += (answer - y).powi(2) / functions.len() as f64;
        }
    }
    let pass = Pass::evaluate_with_states();
    model.loss(&batch, &Objective::smoothed(0.0), 1.0, &pass)?;
    let records = pass.into_records();
    let tokens = 2 * POINTS - 1;
    let last = Tensor::from_iter(
        (1..=functions.len()).map(|one| (one * tokens - 1) as u32),
        &Device::Cpu,
    )?;
    let mut explained_by_layer = Vec::new();
    for record in records.states.iter().filter(|record| record.point == StatePoint::Layer) {
        let states = record.rows.index_select(&last, 0)?.to_dtype(DType::F64)?.to_vec2::<f64>()?;
        let mut shares = [0.0; 2];
        for (which, share) in shares.iter_mut().enumerate() {
            let targets: Vec<Vec<f64>> =
                quantities.iter().map(|both| both[which].clone()).collect();
            *share = explained(&states, &targets, PROBED.0);
        }
        explained_by_layer.push(shares);
    }
    Ok(Probed { errors, explained: explained_by_layer })
}

fn run() -> Result<Findings, TheoryError> {
    let layers = 4;
    let trained = probe(&regressor(layers, 1500, 1)?)?;
    let drawn = probe(&regressor(layers, 0, 1)?)?;
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let mut rows = Vec::new();
    for (layer, (one, other)) in trained.explained.iter().zip(&drawn.explained).enumerate() {
        let shares = [one[0], one[1], other[0], other[1]].map(percent);
        rows.push([vec![layer.to_string()], shares.to_vec()].concat());
    }
    let [error, ridge] = trained.errors;
    let errors =
        [format!("{error:.3}"), format!("{ridge:.3} (ridge)"), String::new(), String::new()];
    rows.push([vec!["squared error".to_owned()], errors.to_vec()].concat());
    let line = |probed: &Probed, which: usize| -> Vec<(f64, f64)> {
        let shares = probed.explained.iter().enumerate();
        shares.map(|(layer, shares)| (layer as f64, shares[which].max(0.0))).collect()
    };
    let series = vec![
        Series::line("Xᵀy", line(&trained, 0)),
        Series::line("w", line(&trained, 1)),
        Series::dashes("Xᵀy, not trained", line(&drawn, 0)).coloured(0),
        Series::dashes("w, not trained", line(&drawn, 1)).coloured(1),
    ];
    let y = Axis::linear("share of the variance that a probe explains").between(0.0, 1.0);
    let chart = Chart::new(Axis::linear("layers passed"), y, series);
    let title = "Linear probes of a decoder that continues linear functions";
    let description = "Shares of Xᵀy and w that are read from the state of the last x, by layer.";
    let figure = Figure::new(title, description, chart);
    Ok(Findings {
        columns: heads(&["layers passed", "Xᵀy", "w", "Xᵀy, not trained", "w, not trained"]),
        rows,
        figures: vec![("probes".to_owned(), figure)],
    })
}
