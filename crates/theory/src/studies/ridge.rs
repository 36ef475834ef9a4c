//! Ridge regression by layers with weights set by hand.
//!
//! The text is x₁, y₁, x₂, y₂ … x_n. The answer at x_n is w·x_n with w = (XᵀX + λI)⁻¹ Xᵀy, where X
//! and y are the m points before x_n.
//!
//! 1. A head looks one position back, so that each y has its x. Gated units compute x xᵀ and x y.
//! 2. A head averages x xᵀ and x y over all y so far. The table of positions adds λ/m to the
//!    diagonal. The results are A = (XᵀX + λI)/m and b = Xᵀy/m.
//! 3. The iteration of Newton and Schulz, Z ← Z (2 − AZ), inverts A. It needs only matrix products,
//!    which gated units compute; each step takes two layers. It begins with Z = I/c, where c is
//!    larger than every eigenvalue of A. Each step squares the residual R = 1 − AZ. So after k
//!    steps the residual is R₀ to the power 2^k, and its norm is (1 − a/c)^(2^k), where a is the
//!    smallest eigenvalue of A.
//! 4. One layer computes w = Zb, and one layer computes the product of w and x.

use super::{Findings, Study, heads};
use crate::TheoryError;
use crate::blueprint::{Blueprint, Column, Head, Layer, Regressor, Unit};
use taper_model::Sequences;
use taper_ops::rng::{Counter, mix};
use taper_plots::{Axis, Chart, Figure, Series};

/// Factor of scores; softmax then selects one token, or averages the tokens with the largest score.
const HARD: f64 = 64.0;

pub(super) const STUDY: Study = Study {
    name: "ridge-regression",
    claim: "Layers set by hand are ridge regression: each two square the error of the inverse",
    run,
};

/// Setting of a decoder that computes ridge regression.
#[derive(Debug, Clone, Copy)]
pub struct RidgeSetting {
    /// Dimensions of x.
    pub dimensions: usize,
    /// Largest number of points.
    pub points: usize,
    /// Weight λ of the penalty.
    pub penalty: f64,
    /// Upper bound c of the eigenvalues of (XᵀX + λI)/m: the largest |x|², plus λ.
    pub bound: f64,
    /// Number of steps of the Newton-Schulz iteration.
    pub steps: usize,
}

/// Columns of the entries of a square matrix, row by row, and the size of the matrix.
struct Matrix<'a>(&'a [Column], usize);

impl Matrix<'_> {
    fn at(&self, row: usize, column: usize) -> Column {
        self.0[row * self.1 + column]
    }
}

/// Row and column of each entry of a square matrix, row by row.
fn places(size: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..size).flat_map(move |row| (0..size).map(move |column| (row, column)))
}

/// Assembles a decoder that computes ridge regression.
///
/// # Errors
/// If the device has no memory left.
pub fn ridge_decoder(setting: &RidgeSetting) -> Result<Regressor, TheoryError> {
    let (size, length) = (setting.dimensions, 2 * setting.points);
    let mut blueprint = Blueprint::new(1, length);
    let (answer, place, square, is_answer) =
        (blueprint.column(), blueprint.column(), blueprint.column(), blueprint.column());
    let (inputs, before) = (blueprint.columns(size), blueprint.columns(size));
    let products = blueprint.columns(size * size + size);
    let moments = blueprint.columns(size * size + size);
    let (inverse, residual) = (blueprint.columns(size * size), blueprint.columns(size * size));
    let (weights, output) = (blueprint.columns(size), blueprint.column());
    let (a, b) = (Matrix(&moments[..size * size], size), &moments[size * size..]);
    let (z, az) = (Matrix(&inverse, size), Matrix(&residual, size));
    for at in 0..length {
        blueprint.position(at, place, at as f64);
        blueprint.position(at, square, (at * at) as f64);
        blueprint.position(at, is_answer, (at % 2) as f64);
        let share = setting.penalty / (at / 2).max(1) as f64;
        for diagonal in 0..size {
            blueprint.position(at, a.at(diagonal, diagonal), share);
            blueprint.position(at, z.at(diagonal, diagonal), 1.0 / setting.bound);
        }
    }
    // 1. Up to a constant, the score of position j at position i is −64 (j − (i − 1))², which is
    //    largest at the position before.
    let mut head = Head::default().score((place - 1.0) * (2.0 * HARD), place).score(-HARD, square);
    for (input, before) in inputs.iter().zip(&before) {
        head = head.value(*input, *before);
    }
    blueprint.layer(Layer { heads: vec![head], units: moments_of(&before, answer, &products) });
    // 2. The head averages the tokens of y so far. At the first x there is no y yet: the head sees
    //    only this x, whose product x y is 0.
    let mut head = Head::default().score(HARD, is_answer);
    for (product, moment) in products.iter().zip(&moments) {
        head = head.value(*product, *moment);
    }
    blueprint.layer(Layer { heads: vec![head], ..Layer::default() });
    // 3. A step computes Z (2 − AZ), with AZ in the first layer and the rest in the second.
    for _ in 0..setting.steps {
        let (mut multiply, mut step) = (Vec::new(), Vec::new());
        for (row, column) in places(size) {
            multiply.extend(Unit::linear(az.at(row, column), az.at(row, column), -1.0));
            step.extend(Unit::linear(z.at(row, column), z.at(row, column), 1.0));
            for inner in 0..size {
                let to = az.at(row, column);
                multiply.extend(Unit::product(a.at(row, inner), z.at(inner, column), to));
                let (left, right) = (-z.at(row, inner), az.at(inner, column));
                step.extend(Unit::product(left, right, z.at(row, column)));
            }
        }
        blueprint.layer(Layer::of_units(multiply));
        blueprint.layer(Layer::of_units(step));
    }
    // 4. Layers for the weights Zb and for the prediction.
    let apply = places(size)
        .flat_map(|(row, column)| Unit::product(z.at(row, column), b[column], weights[row]));
    blueprint.layer(Layer::of_units(apply));
    let multiply = weights.iter().zip(&inputs);
    let multiply = multiply.flat_map(|(weight, input)| Unit::product(*weight, *input, output));
    blueprint.layer(Layer::of_units(multiply));
    blueprint.regressor((answer, &inputs), output)
}

/// Makes the units that compute `x xᵀ` and then `x y` in the columns `products`, row by row.
fn moments_of(x: &[Column], y: Column, products: &[Column]) -> Vec<Unit> {
    let mut units = Vec::new();
    for (row, left) in x.iter().enumerate() {
        for (column, right) in x.iter().enumerate() {
            units.extend(Unit::product(*left, *right, products[row * x.len() + column]));
        }
        units.extend(Unit::product(*left, y, products[x.len() * x.len() + row]));
    }
    units
}

/// Predicts y at each x of `points` from the points before it.
///
/// # Errors
/// If there are more points than the decoder was assembled for.
pub fn ridge_predictions(
    decoder: &Regressor,
    points: &[(Vec<f64>, f64)],
) -> Result<Vec<f64>, TheoryError> {
    let mut numbers: Vec<u32> = Vec::new();
    for (input, answer) in points {
        numbers.extend(input.iter().chain([answer]).map(|number| (*number as f32).to_bits()));
    }
    numbers.pop();
    let predicted = decoder.0.predict(&Sequences::pack(&[numbers]))?;
    Ok(predicted.into_iter().map(f64::from).collect())
}

fn run() -> Result<Findings, TheoryError> {
    let counter = Counter::new(mix(4, &[]));
    let (dimensions, count) = (3, 24);
    let normal = |at: usize| counter.normal_at(at as u64).clamp(-2.0, 2.0);
    let truth: Vec<f64> = (0..dimensions).map(|at| normal(1000 + at)).collect();
    let points: Vec<(Vec<f64>, f64)> = (0..count)
        .map(|point| {
            let input: Vec<f64> = (0..dimensions).map(|at| normal(point * 3 + at)).collect();
            let product = input.iter().zip(&truth).map(|(x, w)| x * w).sum::<f64>();
            (input, product + 0.1 * normal(2000 + point))
        })
        .collect();
    let predict = |steps: usize| {
        let setting = RidgeSetting { dimensions, points: count, penalty: 0.5, bound: 12.5, steps };
        ridge_predictions(&ridge_decoder(&setting)?, &points)
    };
    let most = 14;
    let limit = predict(most)?;
    let (mut rows, mut measured) = (Vec::new(), Vec::new());
    for steps in 0..most {
        let found = predict(steps)?;
        let distance = found.iter().zip(&limit).map(|(one, other)| (one - other).abs());
        // `total_cmp` orders NaN after infinity, so a NaN is returned as the maximum.
        let distance = distance.max_by(f64::total_cmp).unwrap_or(0.0);
        measured.push((steps as f64, distance.max(1e-9)));
        rows.push(vec![steps.to_string(), (2 * steps + 4).to_string(), format!("{distance:.2e}")]);
    }
    let series = vec![Series::line("largest difference", measured)];
    let chart = Chart::new(Axis::linear("steps"), Axis::log("difference"), series);
    let title = "Ridge regression by layers: distance from the limit";
    let description = "Each step of Newton and Schulz, two layers, squares the error.";
    let figure = Figure::new(title, description, chart);
    Ok(Findings {
        columns: heads(&["steps", "layers", "largest difference from the limit"]),
        rows,
        figures: vec![("ridge-regression".to_owned(), figure)],
    })
}
