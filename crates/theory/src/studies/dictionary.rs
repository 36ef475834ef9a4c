//! Attention as a dictionary of keys and values, and the error of a lookup by softmax.
//!
//! There are m keys of length 1, and the query equals one of them. The score of a query and a key
//! is S times the cosine of their angle. The softmax should give all weight to the key that equals
//! the query, so the sum of the weights of the other keys is an error. This sum is compared with
//! the weight of the equal key.
//!
//! If the cosine of the query with every other key is at most 1 − Δ, the sum is at most (m − 1)
//! e^(−SΔ) times the weight of the equal key. If the keys are random, the sum is on average
//! (m − 1) q times the weight of the equal key, where q is the mean of e^(S (cos − 1)). With 1 +
//! 1/q keys, about half of all weight is therefore on wrong keys.

use super::{Findings, Study, heads};
use crate::TheoryError;
use crate::blueprint::{Blueprint, Head, Layer};
use taper_model::{Pass, Sequences};
use taper_ops::rng::{Counter, mix};
use taper_plots::{Axis, Chart, Figure, Series};

pub(super) const STUDY: Study = Study {
    name: "dictionary",
    claim: "A head with scores S cos tells about 1/E[e^(S (cos − 1))] random keys of width d apart",
    run,
};

/// Results of looking up every key of a dictionary.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// For each key, the sum of the weights of all other keys, divided by the weight of the key.
    pub noise: Vec<f64>,
    /// For each key, the absolute difference between the value that the head returns and the key's
    /// value.
    pub error: Vec<f64>,
}

/// Looks up every key with an attention head, and compares the results with `values`, which has one
/// number for each key. The score of a query and a key is `sharpness` times their dot product.
///
/// # Shapes
/// m keys of equal length, and m values → m numbers in each list of the result.
///
/// # Errors
/// If the device has no memory left.
pub fn lookup(keys: &[Vec<f64>], values: &[f64], sharpness: f64) -> Result<Lookup, TheoryError> {
    let width = keys.first().map_or(0, Vec::len);
    let mut blueprint = Blueprint::new(keys.len(), 0);
    let (value, brought) = (blueprint.column(), blueprint.column());
    let columns = blueprint.columns(width);
    for (id, (key, own)) in keys.iter().zip(values).enumerate() {
        blueprint.token(id, value, *own);
        columns.iter().zip(key).for_each(|(column, part)| blueprint.token(id, *column, *part));
    }
    let head = columns
        .iter()
        .fold(Head::default(), |head, column| head.score(*column * sharpness, *column));
    let head = head.value(value, brought);
    blueprint.layer(Layer { heads: vec![head], ..Layer::default() });
    let text: Vec<u32> = (0..keys.len() as u32).collect();
    let pass = Pass::evaluate_with_attention();
    let hidden = blueprint.encoder()?.hidden(&Sequences::pack(&[text]), &pass)?;
    let found: Vec<Vec<f32>> = hidden.to_vec2()?;
    let records = pass.into_attention();
    let weights: Vec<f32> = records[0].weights.flatten_all()?.to_vec1()?;
    let noise = weights.chunks(keys.len()).enumerate().map(|(at, row)| {
        let own = f64::from(row[at]);
        row.iter().map(|weight| f64::from(*weight)).sum::<f64>() / own - 1.0
    });
    let error = found.iter().zip(values);
    let error = error.map(|(row, value)| (f64::from(row[brought.number()]) - value).abs());
    Ok(Lookup { noise: noise.collect(), error: error.collect() })
}

/// Computes the mean of e^(S (cos − 1)) with S = `sharpness`, where cos is the cosine of two random
/// directions in d = `width` dimensions. For d ≥ 2, the density of cos is proportional to
/// (1 − cos²)^((d−3)/2). In one dimension, there are two directions, and cos is 1 or −1.
#[must_use]
pub fn expected_noise(sharpness: f64, width: usize) -> f64 {
    if width < 2 {
        return f64::midpoint(1.0, (-2.0 * sharpness).exp());
    }
    // As a function of the angle φ, the density is (sin φ)^(d−2), which is smooth for d ≥ 2.
    let steps = 20_000;
    let (mut sum, mut total) = (0.0, 0.0);
    for step in 0..steps {
        let angle = std::f64::consts::PI * (f64::from(step) + 0.5) / f64::from(steps);
        let density = angle.sin().powi(width as i32 - 2);
        sum += density * (sharpness * (angle.cos() - 1.0)).exp();
        total += density;
    }
    sum / total
}

/// Draws `count` random unit vectors of `width` numbers.
pub(super) fn directions(count: usize, width: usize, seed: u64) -> Vec<Vec<f64>> {
    let counter = Counter::new(mix(2, &[seed]));
    let direction = |number: usize| {
        let part = |at: usize| counter.normal_at((number * width + at) as u64);
        let direction: Vec<f64> = (0..width).map(part).collect();
        let length = direction.iter().map(|part| part * part).sum::<f64>().sqrt();
        direction.into_iter().map(|part| part / length).collect()
    };
    (0..count).map(direction).collect()
}

fn run() -> Result<Findings, TheoryError> {
    const COUNT: usize = 512;
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    for (colour, sharpness) in [4.0, 8.0, 12.0].into_iter().enumerate() {
        let (mut measured, mut predicted) = (Vec::new(), Vec::new());
        for width in [4, 8, 16, 32, 64] {
            let keys = directions(COUNT, width, width as u64);
            let values: Vec<f64> = (0..COUNT).map(|at| (at % 2) as f64).collect();
            let found = lookup(&keys, &values, sharpness)?;
            let noise = found.noise.iter().sum::<f64>() / COUNT as f64 / (COUNT - 1) as f64;
            let expected = expected_noise(sharpness, width);
            measured.push((width as f64, 1.0 / noise));
            predicted.push((width as f64, 1.0 / expected));
            rows.push(vec![
                format!("{sharpness}"),
                width.to_string(),
                format!("{:.1}", 1.0 / expected),
                format!("{:.1}", 1.0 / noise),
                format!("{:.4}", found.error.iter().copied().fold(0.0, f64::max)),
            ]);
        }
        series.push(Series::line(format!("S = {sharpness}, formula"), predicted).coloured(colour));
        series.push(Series::dots(format!("S = {sharpness}, measured"), measured).coloured(colour));
    }
    let chart = Chart::new(Axis::log("width of keys"), Axis::log("random keys"), series);
    let title = "Random keys at which half of a head's weight is noise";
    let description = "It grows with the width of keys towards e^S, by formula and as measured.";
    let columns =
        heads(&["S", "width", "keys by formula", "keys measured", "largest error of 512"]);
    let figure = Figure::new(title, description, chart);
    Ok(Findings { columns, rows, figures: vec![("dictionary".to_owned(), figure)] })
}
