//! Axes of charts: where a value lies on an axis, and which labels the axis has. The coordinate of
//! a value along an axis is called its place. On a linear axis, the place is the value itself. On a
//! logarithmic axis, it is the decimal logarithm of the value.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::figure::Axis;

/// Approximate number of labels on an axis.
const LABELS: f64 = 6.0;

/// An axis with its ends.
#[derive(Debug, Clone)]
pub(super) struct Scale {
    logarithmic: bool,
    /// Places of the two ends.
    pub(super) range: Range<f64>,
    /// Places that have a label.
    pub(super) ticks: Vec<f64>,
    /// Number of digits after the decimal point in a label.
    decimals: usize,
    /// Labels that are written instead of numbers. Each element is a place and its label. If the
    /// list is empty, the labels are numbers.
    names: Vec<(f64, String)>,
}

impl Scale {
    /// Makes the scale of `axis` for `values`. Returns `None` if the axis can show none of the
    /// values.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Option<Self> {
        let place = |value: f64| if axis.logarithmic { value.log10() } else { value };
        let usable = |&value: &f64| axis.takes(value);
        let (mut low, mut high) = values
            .filter(usable)
            .map(place)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| {
                (low.min(at), high.max(at))
            });
        if low > high {
            return None;
        }
        match axis.range.filter(|(from, to)| axis.takes(*from) && axis.takes(*to) && from < to) {
            Some((from, to)) => (low, high) = (place(from), place(to)),
            None => {
                let room = match high - low {
                    0.0 if axis.logarithmic => 0.2,
                    0.0 => (low.abs() * 0.1).max(1e-9),
                    span => 0.03 * span,
                };
                // An axis begins at 0 if no value is negative and the smallest value is close to 0.
                let keeps_zero = !axis.logarithmic && low >= 0.0 && low <= room * 4.0;
                (low, high) = (if keeps_zero { 0.0 } else { low - room }, high + room);
            }
        }
        let names: Vec<(f64, String)> =
            axis.names.iter().map(|(value, name)| (place(*value), name.clone())).collect();
        let (ticks, decimals) = match axis.logarithmic {
            _ if !names.is_empty() => (names.iter().map(|name| name.0).collect(), 0),
            true => (logarithmic_ticks(low, high), 0),
            false => linear_ticks(low, high),
        };
        Some(Self { logarithmic: axis.logarithmic, range: low..high, ticks, decimals, names })
    }

    /// Returns the place of a value, or `None` if the value is not between the ends of the axis.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let at = if self.logarithmic { value.log10() } else { value };
        let room = (self.range.end - self.range.start) * 1e-9;
        (at.is_finite() && at >= self.range.start - room && at <= self.range.end + room)
            .then_some(at)
    }

    /// Returns the label at a place.
    pub(super) fn label(&self, place: f64) -> String {
        if let Some((_, name)) = self.names.iter().find(|name| name.0 == place) {
            return name.clone();
        }
        if self.logarithmic {
            return number(10f64.powf(place));
        }
        let largest = self.range.start.abs().max(self.range.end.abs());
        if !(1e-3..1e5).contains(&largest) {
            return number(place);
        }
        // Adding 0 turns -0 into 0.
        format!("{:.*}", self.decimals, place + 0.0)
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (place - self.range.start) / (self.range.end - self.range.start);
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(place: &f64) -> String {
        number(*place)
    }

    fn format_ext(&self, place: &f64) -> String {
        self.label(*place)
    }
}

/// Formats a number with few characters, such as 250k, 3M, 0.02 or 2e-5.
pub(super) fn number(value: f64) -> String {
    let amount = value.abs();
    let short = |value: f64, unit: &str| {
        let text = format!("{value:.2}");
        format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match amount {
        0.0 => "0".to_owned(),
        1e15.. => format!("{value:.0e}"),
        1e12.. => short(value / 1e12, "T"),
        1e9.. => short(value / 1e9, "G"),
        1e6.. => short(value / 1e6, "M"),
        1e4.. => short(value / 1e3, "k"),
        0.01.. => short(value, ""),
        _ => {
            let text = format!("{value:.1e}");
            text.replace(".0e", "e")
        }
    }
}

/// Returns ticks from `low` to `high`, and the number of digits that their labels need after the
/// decimal point. The distance between two ticks is 1, 2 or 5 times a power of ten.
fn linear_ticks(low: f64, high: f64) -> (Vec<f64>, usize) {
    let rough = (high - low) / LABELS;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough * 0.999);
    let step = factor.unwrap_or(10.0) * power;
    let first = (low / step - 1e-9).ceil();
    let count = ((high / step + 1e-9).floor() - first) as usize + 1;
    let ticks = (0..count).map(|number| (first + number as f64) * step).collect();
    (ticks, (-step.log10().floor()).clamp(0.0, 9.0) as usize)
}

/// Returns the places of ticks from `low` to `high`. All of these places are decimal logarithms.
/// Over a long range, the ticks are powers of ten. Over a shorter range, 2 and 5 times powers of
/// ten are ticks too. Over the shortest range, the ticks have equal distances in value, as on a
/// linear axis.
fn logarithmic_ticks(low: f64, high: f64) -> Vec<f64> {
    let between = |factors: &[f64], every: i32| {
        let powers = (low.floor() as i32..=high.ceil() as i32).filter(|power| power % every == 0);
        let ticks = powers
            .flat_map(|power| factors.iter().map(move |factor| f64::from(power) + factor.log10()));
        ticks.filter(|tick| (low - 1e-9..=high + 1e-9).contains(tick)).collect::<Vec<_>>()
    };
    let decades = high - low;
    if decades > 2.0 * LABELS {
        return between(&[1.0], (decades / LABELS).ceil() as i32);
    }
    if decades >= 3.0 {
        return between(&[1.0], 1);
    }
    let ticks = between(&[1.0, 2.0, 5.0], 1);
    if ticks.len() >= 3 {
        return ticks;
    }
    let (values, _) = linear_ticks(10f64.powf(low), 10f64.powf(high));
    values.into_iter().filter(|&value| value > 0.0).map(f64::log10).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
        let scale = Scale::new(axis, values.iter().copied()).expect("values");
        scale.ticks.iter().map(|&tick| scale.label(tick)).collect()
    }

    #[test]
    fn labels_are_round_numbers() {
        assert_eq!(
            labels(&Axis::linear(""), &[0.0, 500.0]),
            ["0", "100", "200", "300", "400", "500"]
        );
        assert_eq!(labels(&Axis::linear(""), &[0.31, 0.52]), ["0.35", "0.40", "0.45", "0.50"]);
        let large = labels(&Axis::linear(""), &[0.0, 300_000.0]);
        assert_eq!(large, ["0", "100k", "200k", "300k"]);
        let small = labels(&Axis::linear(""), &[0.0, 4e-4]);
        assert_eq!(small, ["0", "1e-4", "2e-4", "3e-4", "4e-4"]);
    }

    #[test]
    fn ratios_have_labels_over_decades_and_within_one() {
        assert_eq!(labels(&Axis::log(""), &[1.0, 1e5]), ["1", "10", "100", "1000", "10k", "100k"]);
        assert_eq!(labels(&Axis::log(""), &[1.3, 29.0]), ["2", "5", "10", "20"]);
        assert_eq!(labels(&Axis::log(""), &[3.1, 3.6]), ["3.1", "3.2", "3.3", "3.4", "3.5", "3.6"]);
    }

    #[test]
    fn what_has_no_place_is_left_out() {
        let axis = Axis::log("");
        assert!(Scale::new(&axis, [0.0, -1.0, f64::NAN].into_iter()).is_none());
        let scale = Scale::new(&axis, [0.0, 1.0, 100.0].into_iter()).expect("two values");
        assert_eq!((scale.place(0.0), scale.place(f64::NAN), scale.place(1e9)), (None, None, None));
        assert_eq!(scale.place(10.0), Some(1.0));
    }
}
