//! Histograms with the same bins as TensorBoard's own histograms.

/// Ratio of neighbouring bin limits (TensorFlow's `histogram.cc`).
const RATIO: f64 = 1.1;
/// Upper limit of the bin that contains 0.
const FIRST: f64 = 1e-12;
/// Number of bins on each side of 0. The last bin on each side begins at about 10²⁰, and has all
/// larger values.
const BINS: i32 = 774;

/// Histogram of values: the number of values in each bin, and sums over all values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    pub(crate) least: f64,
    pub(crate) greatest: f64,
    pub(crate) count: f64,
    pub(crate) sum: f64,
    pub(crate) squares: f64,
    /// Upper limits of bins in ascending order, each with its number of values.
    pub(crate) bins: Vec<(f64, f64)>,
}

impl Histogram {
    /// Counts the finite values of `values` in bins.
    pub fn count(values: impl IntoIterator<Item = f32>) -> Self {
        let mut counts = vec![0_u64; 2 * BINS as usize + 1];
        let mut histogram =
            Self { least: f64::INFINITY, greatest: f64::NEG_INFINITY, ..Self::default() };
        for value in values {
            let value = f64::from(value);
            if !value.is_finite() {
                continue;
            }
            histogram.least = histogram.least.min(value);
            histogram.greatest = histogram.greatest.max(value);
            histogram.count += 1.0;
            histogram.sum += value;
            histogram.squares += value * value;
            counts[(place(value) + BINS) as usize] += 1;
        }
        if histogram.count == 0.0 {
            return Self::default();
        }
        let used = |count: &u64| *count > 0;
        let first = counts.iter().position(used).unwrap_or(0);
        let last = counts.iter().rposition(used).unwrap_or(0);
        histogram.bins =
            (first..=last).map(|bin| (limit(bin as i32 - BINS), counts[bin] as f64)).collect();
        histogram
    }
}

/// Returns the index of a value's bin. It is 0 for values near 0, positive for positive values, and
/// negative for negative values. Its absolute value grows with the absolute value of `value`.
fn place(value: f64) -> i32 {
    let size = value.abs();
    if size < FIRST {
        return 0;
    }
    let bin = ((size / FIRST).ln() / RATIO.ln()) as i32 + 1;
    let bin = bin.min(BINS);
    if value < 0.0 { -bin } else { bin }
}

/// Returns the upper limit of a bin.
fn limit(bin: i32) -> f64 {
    match bin {
        0 => FIRST,
        BINS.. => f64::MAX,
        1.. => FIRST * RATIO.powi(bin),
        _ => -FIRST * RATIO.powi(-bin - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_below_the_limit_of_its_bin_and_above_that_of_the_one_before() {
        for value in [-3e5, -1.0, -1e-9, 0.0, 1e-13, 1e-3, 0.5, 2.0, 7e9] {
            let bin = place(value);
            assert!(value <= limit(bin) * (1.0 + f64::EPSILON.copysign(limit(bin))), "{value}");
            assert!(value > limit(bin - 1) || bin == 0, "{value}");
        }
    }

    #[test]
    fn the_largest_values_are_below_the_limit_of_their_bin() {
        for value in [9e19_f32, 1e20, 2e20, 3e30, f32::MAX] {
            let bins = Histogram::count([value, -value]).bins;
            let ([least, ..], [.., before, greatest]) = (&bins[..], &bins[..]) else {
                panic!("{value}: {bins:?}")
            };
            let value = f64::from(value);
            assert!(least.1 == 1.0 && -value <= least.0, "{value}: {least:?}");
            let is_within = before.0 < value && value <= greatest.0;
            assert!(greatest.1 == 1.0 && is_within, "{value}: {before:?} {greatest:?}");
        }
    }

    #[test]
    fn counts_and_moments_are_those_of_the_values() {
        let histogram = Histogram::count([1.0, 1.0, -2.0, 0.0, f32::NAN, f32::INFINITY]);
        assert_eq!((histogram.least, histogram.greatest), (-2.0, 1.0));
        assert_eq!((histogram.count, histogram.sum, histogram.squares), (4.0, 0.0, 6.0));
        assert_eq!(histogram.bins.iter().map(|bin| bin.1).sum::<f64>(), 4.0);
        assert!(histogram.bins.is_sorted_by(|left, right| left.0 < right.0));
        assert_eq!(Histogram::count([]), Histogram::default());
    }
}
