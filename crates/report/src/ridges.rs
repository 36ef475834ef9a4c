//! Ridgeline figures. They show the distribution of each layer's gradient and weight norms, early
//! and late in training.

use taper_plots::{Axis, Chart, Figure, Language, Series};
use taper_trainer::NormsPerLayer;

use crate::curves::in_order;
use crate::figures::NamedFigure;
use crate::record::{Logged, Record};

/// Distributions are drawn only if each half of training has at least this many log entries.
const LEAST: usize = 8;
/// Largest number of log entries that are used from a half: more would hardly change the curve.
const MOST: usize = 400;
/// Number of points at which the curve of a ridge is computed.
const POINTS: usize = 120;
/// Height of the highest point of a ridge above its base. The unit is the distance between two
/// rows. The height is more than 1, so ridges reach into the row above.
const HEIGHT: f64 = 1.5;
/// Smallest width of the density's kernel, as a share of the horizontal range. Without this limit,
/// the ridge of a norm that hardly changes would be too narrow to be seen.
const NARROWEST: f64 = 0.008;

/// Function that reads one of the norms of a layer.
type Norm = fn(&NormsPerLayer) -> f32;

/// Makes ridgeline figures of gradient norms and weight norms, by layer; empty if the run has not
/// recorded norms often enough.
#[must_use]
pub fn spread_figures(record: &Record, language: Language) -> Vec<NamedFigure> {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    let entries: Vec<&Logged> = record.logged.iter().filter(|one| !one.layers.is_empty()).collect();
    let (early, late) = entries.split_at(entries.len() / 2);
    let Some(last) = entries.last().filter(|_| early.len() >= LEAST) else { return Vec::new() };
    let mut layers: Vec<&String> = last.layers.keys().collect();
    layers.sort_by_key(|name| in_order(name));
    let kinds: [(&str, &str, &str, Norm); 2] = [
        (
            "gradient-spread",
            say("Distribution of the gradients' norm by layer", "各层梯度范数的分布"),
            say("norm of the gradients", "梯度范数"),
            |norms| norms.gradient,
        ),
        (
            "weight-spread",
            say("Distribution of the weights' norm by layer", "各层权重范数的分布"),
            say("norm of the weights", "权重范数"),
            |norms| norms.weight,
        ),
    ];
    let halves = [
        (say("first half of training", "训练前半"), early),
        (say("second half", "训练后半"), late),
    ];
    let figure = |(name, title, label, norm): (&str, &str, &str, Norm)| {
        let samples: Vec<[Vec<f64>; 2]> = layers
            .iter()
            .map(|layer| halves.map(|(_, entries)| logarithms(entries, layer, norm)))
            .collect();
        let (low, high) = range(samples.iter().flatten().flatten().copied())?;
        let mut series = Vec::new();
        let mut names = halves.map(|(name, _)| name);
        for (row, of_layer) in samples.iter().enumerate() {
            let base = (layers.len() - 1 - row) as f64;
            for (number, samples) in of_layer.iter().enumerate().filter(|one| !one.1.is_empty()) {
                // Only the first ridge of each colour gets a name, so that the legend has each name
                // once.
                let name = std::mem::take(&mut names[number]);
                let points = ridge(samples, (low, high), base);
                series.push(Series::ridge(name, base, points).coloured(number));
            }
        }
        let rows = layers.iter().rev().enumerate();
        let rows = rows.map(|(row, layer)| (row as f64, (*layer).clone())).collect();
        let y = Axis::linear("").named(rows).between(-0.2, layers.len() as f64 - 1.0 + HEIGHT);
        let described = layers.iter().zip(&samples).filter_map(|(layer, [early, late])| {
            Some(format!("{layer} {:.3e} → {:.3e}", median(early)?, median(late)?))
        });
        let described = described.collect::<Vec<_>>().join("; ");
        let medians = say("medians of the two halves", "前后两半的中位数");
        let height = 130 + 26 * layers.len() as u32;
        let across = Axis::log(label).between(10f64.powf(low), 10f64.powf(high));
        let chart = Chart::new(across, y, series);
        let figure = Figure::new(title, format!("{medians}: {described}"), chart);
        Some(NamedFigure::new(name, figure.sized(720, height)))
    };
    kinds.into_iter().filter_map(figure).collect()
}

/// Returns the decimal logarithms of the norms of a layer, ascending. Zeros and values that are not
/// numbers are omitted.
fn logarithms(entries: &[&Logged], layer: &str, norm: Norm) -> Vec<f64> {
    let every = entries.len().div_ceil(MOST).max(1);
    let norms = entries.iter().step_by(every).filter_map(|one| one.layers.get(layer));
    let mut values: Vec<f64> =
        norms.map(|norms| f64::from(norm(norms)).log10()).filter(|one| one.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns a range that contains all values, and some room on both sides for the slopes of the
/// curves; `None` without values.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (low, high) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| (low.min(at), high.max(at)));
    let room = (0.04 * (high - low)).max(0.02);
    (low <= high).then_some((low - room, high + room))
}

/// Returns the median of values whose decimal logarithms are `ascending`; `None` without values.
fn median(ascending: &[f64]) -> Option<f64> {
    Some(10f64.powf(*ascending.get(ascending.len() / 2)?))
}

/// Returns the points of a ridge, which shows the density of the logarithms `ascending` above the
/// height `base`.
///
/// Every ridge is scaled so that its highest point is [`HEIGHT`] above its base. The kernel is
/// Gaussian, with the width of Silverman (1986), "Density Estimation for Statistics and Data
/// Analysis", section 3.4.2. Points where the density is close to 0 are omitted, except next to
/// other points.
fn ridge(ascending: &[f64], (low, high): (f64, f64), base: f64) -> Vec<(f64, f64)> {
    let count = ascending.len();
    if count == 0 {
        return Vec::new();
    }
    let mean = ascending.iter().sum::<f64>() / count as f64;
    let variance = ascending.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / count as f64;
    let quartiles = (ascending[3 * count / 4] - ascending[count / 4]) / 1.34;
    let spread = if quartiles > 0.0 { variance.sqrt().min(quartiles) } else { variance.sqrt() };
    let width = (0.9 * spread * (count as f64).powf(-0.2)).max(NARROWEST * (high - low));
    let density = |at: f64| -> f64 {
        ascending.iter().map(|one| (-0.5 * ((at - one) / width).powi(2)).exp()).sum()
    };
    let places = (0..POINTS).map(|at| low + (high - low) * at as f64 / (POINTS - 1) as f64);
    let curve: Vec<(f64, f64)> = places.map(|at| (at, density(at))).collect();
    let highest = curve.iter().map(|at| at.1).fold(f64::MIN_POSITIVE, f64::max);
    let is_seen = |at: usize| curve[at].1 > 0.004 * highest;
    let points = (0..POINTS).filter(|&at| {
        is_seen(at) || (at > 0 && is_seen(at - 1)) || (at + 1 < POINTS && is_seen(at + 1))
    });
    points.map(|at| (10f64.powf(curve[at].0), base + HEIGHT * curve[at].1 / highest)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ridge_is_highest_where_most_values_are() {
        let mut values: Vec<f64> = (0..100).map(|at| -1.0 + 0.001 * f64::from(at)).collect();
        values.extend((0..10).map(|at| f64::from(at) * 0.1));
        let range = range(values.iter().copied()).expect("values");
        let points = ridge(&values, range, 3.0);
        let highest = points.iter().max_by(|left, right| left.1.total_cmp(&right.1)).expect("some");
        assert!((highest.0.log10() + 0.95).abs() < 0.05, "{highest:?}");
        assert!((highest.1 - 3.0 - HEIGHT).abs() < 1e-9, "{highest:?}");
        assert!(points.iter().all(|at| at.1 >= 3.0) && points.is_sorted_by(|a, b| a.0 < b.0));
        // Norms that never change form a narrow peak within the range.
        let still = ridge(&[0.5; 20], self::range([0.5; 20].into_iter()).expect("values"), 0.0);
        assert!(still.len() > 3 && still.iter().any(|at| at.1 == HEIGHT), "{still:?}");
    }
}
