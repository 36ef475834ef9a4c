//! Why losses fall as powers of the size: approximation of smooth functions in d dimensions (Sharma
//! and Kaplan 2022, "Scaling Laws from the Data Manifold Dimension", section 2; Bahri et al. 2024,
//! "Explaining neural scaling laws", section 1.2).
//!
//! A model with N pieces divides d dimensions into pieces of diameter s ∝ N^(−1/d). If the model is
//! constant on each piece, its error is ∝ s and its squared loss is ∝ s² ∝ N^(−2/d). An example is
//! a model that answers with the value at the nearest of N random points.
//!
//! The same law holds for kernels. Let the eigenvalues of a kernel be λ_i ∝ i^(−1−α), in descending
//! order. If the directions of the N largest eigenvalues are learned, the loss is the sum of the
//! other eigenvalues: Σ_{i>N} λ_i ≈ N^(−α)/α. Here α is 2/d.

use super::{Findings, Study, heads};
use crate::TheoryError;
use taper_ops::rng::{Counter, mix};
use taper_plots::{Axis, Chart, Figure, Series};

pub(super) const STUDY: Study = Study {
    name: "power-laws",
    claim: "The loss of N pieces in d dimensions falls as N^(−2/d), and of N directions of a \
            spectrum i^(−1−α) as N^(−α)",
    run,
};

/// Numbers N of points at which a model knows the value of the function.
const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 2048];
/// Number of points at which a loss is measured.
const ASKED: usize = 400;

/// Returns, for each N of `sizes`, the mean squared error of a model that answers with the value at
/// the nearest of N points. The points are uniform on a torus of `dimensions` dimensions, and the
/// true function is a sum of sine waves.
#[must_use]
pub fn nearest_losses(dimensions: usize, sizes: &[usize], seed: u64) -> Vec<f64> {
    let counter = Counter::new(mix(6, &[seed, dimensions as u64]));
    let point = |number: usize| -> Vec<f64> {
        let part = |at: usize| f64::from(counter.f32_at((number * dimensions + at) as u64));
        (0..dimensions).map(part).collect()
    };
    let teacher = |point: &[f64]| -> f64 {
        point.iter().map(|part| (std::f64::consts::TAU * part).sin()).sum()
    };
    let most = sizes.iter().copied().max().unwrap_or(0);
    let known: Vec<Vec<f64>> = (0..most).map(point).collect();
    let distance = |left: &[f64], right: &[f64]| -> f64 {
        let apart = |(left, right): (&f64, &f64)| {
            let apart = (left - right).abs();
            apart.min(1.0 - apart).powi(2)
        };
        left.iter().zip(right).map(apart).sum()
    };
    let mut losses = vec![0.0; sizes.len()];
    for asked in (most..most + ASKED).map(point) {
        let far: Vec<f64> = known.iter().map(|known| distance(&asked, known)).collect();
        for (loss, size) in losses.iter_mut().zip(sizes) {
            let nearest = (0..*size).reduce(|best, at| if far[at] < far[best] { at } else { best });
            let Some(nearest) = nearest else { continue };
            *loss += (teacher(&known[nearest]) - teacher(&asked)).powi(2) / ASKED as f64;
        }
    }
    losses
}

/// Sum of i^(−1−`alpha`) over i > `learned`. At least the terms up to i = 10⁵ are added, and the
/// rest is an integral.
#[must_use]
pub fn spectrum_tail(alpha: f64, learned: usize) -> f64 {
    let terms = 100_000_usize.max(2 * learned);
    let sum: f64 = (learned + 1..=terms).map(|i| (i as f64).powf(-1.0 - alpha)).sum();
    sum + (terms as f64 + 0.5).powf(-alpha) / alpha
}

/// Returns the slope of ln(loss) against ln(size), fitted by least squares.
#[must_use]
pub fn fitted_exponent(sizes: &[usize], losses: &[f64]) -> f64 {
    let points = sizes.iter().map(|size| (*size as f64).ln()).zip(losses.iter().map(|y| y.ln()));
    let points: Vec<(f64, f64)> = points.collect();
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    covariance / points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>()
}

fn run() -> Result<Findings, TheoryError> {
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    for (colour, dimensions) in [2, 4, 8].into_iter().enumerate() {
        let losses = nearest_losses(dimensions, &SIZES, 1);
        let alpha = 2.0 / dimensions as f64;
        let tails: Vec<f64> = SIZES.iter().map(|size| spectrum_tail(alpha, *size)).collect();
        rows.push(vec![
            dimensions.to_string(),
            format!("{:.3}", -alpha),
            format!("{:.3}", fitted_exponent(&SIZES, &losses)),
            format!("{:.3}", fitted_exponent(&SIZES, &tails)),
        ]);
        let sizes = SIZES.iter().map(|size| *size as f64);
        let first = losses[0] * (SIZES[0] as f64).powf(alpha);
        let law = sizes.clone().map(|size| (size, first * size.powf(-alpha))).collect();
        let measured = sizes.zip(losses).collect();
        series.push(Series::dots(format!("d = {dimensions}"), measured).coloured(colour));
        series.push(Series::dashes(format!("N^(−2/{dimensions})"), law).coloured(colour));
    }
    let chart = Chart::new(Axis::log("points, N"), Axis::log("mean squared error"), series);
    let title = "The nearest of N points in 2, 4 and 8 dimensions";
    let description = "Losses fall as powers of N, the slower the more dimensions there are.";
    let figure = Figure::new(title, description, chart);
    Ok(Findings {
        columns: heads(&["d", "predicted", "nearest of N points", "spectrum"]),
        rows,
        figures: vec![("power-laws".to_owned(), figure)],
    })
}
