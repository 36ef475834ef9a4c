//! The normaliser of one row of logits, written so that it vectorises: a search computes one for
//! every hypothesis and step, over the whole vocabulary.

/// Elements that are summed in f32 before they join the f64 total.
const BLOCK: usize = 256;
/// Partial sums of a block: a fixed number, so that the order of addition is the same everywhere.
const LANES: usize = 16;

/// `ln Σ exp(logits)`, or `None` where the row is no distribution: NaN, `+inf`, or only `-inf`.
pub(crate) fn log_normalizer(logits: &[f32]) -> Option<f64> {
    let max = maximum(logits);
    if !max.is_finite() {
        return None;
    }
    // Differences to the maximum are small where they matter, so f32 exponentials suffice; the
    // total is f64 since it has as many terms as the vocabulary. A NaN survives into the sum.
    let sum: f64 = logits.chunks(BLOCK).map(|block| f64::from(sum_of_exponentials(block, max))).sum();
    sum.is_finite().then(|| f64::from(max) + sum.ln())
}

/// The log-probability of a token. Rounding must not lift it above 0: the searches rely on totals
/// that never rise.
pub(crate) fn log_probability(logit: f32, normalizer: f64) -> f64 {
    (f64::from(logit) - normalizer).min(0.0)
}

/// The largest of `values`, NaN left out.
pub(crate) fn maximum(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            // A comparison, where `f32::max` would cost a call without the vector instruction for it.
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |max, &value| if value > max { value } else { max })
}

fn sum_of_exponentials(values: &[f32], max: f32) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane += exponential(value - max);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane += exponential(value - max);
    }
    lanes.iter().sum()
}

/// `exp(x)` for `x ≤ 0`, within two units in the last place; at most 1e-37 below -87, NaN for NaN.
///
/// `exp(x) = 2^k · exp(r)` with `k` the integer nearest to `x / ln 2` and `|r| ≤ ln 2 / 2`, where the
/// Taylor polynomial of degree 7 is exact to f32.
#[inline(always)]
pub(crate) fn exponential(x: f32) -> f32 {
    /// Adding and subtracting 1.5 · 2²³ rounds to an integer, which is left in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts, the first short enough for an exact product with `k`.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = if x < -87.0 { -87.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    let mut polynomial = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        polynomial = polynomial * r + coefficient;
    }
    let power = f32::from_bits(shifted.to_bits().wrapping_shl(23).wrapping_add(0x3f80_0000));
    polynomial * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_exact_to_f32() {
        for step in 0..870_000 {
            let x = step as f32 * -1e-4;
            let (found, expected) = (f64::from(exponential(x)), f64::from(x).exp());
            assert!((found - expected).abs() <= 2.5e-7 * expected, "exp({x}) = {found}, not {expected}");
        }
        assert_eq!(exponential(0.0), 1.0);
        assert!(exponential(f32::NEG_INFINITY) < 1e-37);
        assert!(exponential(f32::NAN).is_nan());
    }

    #[test]
    fn a_long_row_has_the_normaliser_of_f64() {
        let row: Vec<f32> = (0..8003).map(|i| ((i * 7919) % 1000) as f32 * 0.02 - 12.0).collect();
        let expected = row.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
        let found = log_normalizer(&row).expect("finite");
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }

    #[test]
    fn rows_that_are_no_distribution_are_refused() {
        assert!(log_normalizer(&[0.0, f32::NAN, 1.0]).is_none());
        assert!(log_normalizer(&[f32::NAN]).is_none());
        assert!(log_normalizer(&[0.0, f32::INFINITY]).is_none());
        assert!(log_normalizer(&[f32::NEG_INFINITY; 3]).is_none());
    }
}
