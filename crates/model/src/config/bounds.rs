//! Bounds of configuration values. Beyond them, numbers in f32 or products of sizes would overflow
//! or vanish. No useful model lies beyond them.

use std::ops::RangeInclusive;

use crate::ModelError;

/// Bounds of widths. Above the upper bound, sums of a few widths could overflow. Far smaller widths
/// already need more memory than a machine has, which the check of memory reports.
pub(super) const WIDTHS: RangeInclusive<usize> = 1..=usize::MAX >> 8;
/// Bounds of the numbers of layers, experts and other parts.
pub(super) const COUNTS: RangeInclusive<usize> = 1..=1 << 16;
/// Bounds of the numbers of tokens and positions, which are held in 32 bits.
pub(super) const TOKENS: RangeInclusive<usize> = 1..=u32::MAX as usize;
/// Bounds of the factors of losses.
pub(super) const FACTORS: RangeInclusive<f64> = 0.0..=1e6;
/// Bounds of the ε that norms add to a variance. Smaller numbers would be 0 in f32, and larger ones
/// would swamp the variance.
pub(super) const EPSILONS: RangeInclusive<f64> = f32::MIN_POSITIVE as f64..=1.0;

/// Refuses a `value` outside of `bounds`; the error names its `key`.
pub(super) fn size(
    key: &str,
    value: usize,
    bounds: RangeInclusive<usize>,
) -> Result<(), ModelError> {
    let (least, most) = (bounds.start(), bounds.end());
    let requirement = match value {
        _ if value < *least => format!("at least {least}"),
        _ if value > *most => format!("at most {most}"),
        _ => return Ok(()),
    };
    Err(ModelError::Config(format!("{key} = {value}: it must be {requirement}")))
}

/// Refuses a `value` that is outside of `bounds` or NaN; the error names its `key`.
pub(super) fn number(key: &str, value: f64, bounds: RangeInclusive<f64>) -> Result<(), ModelError> {
    let (least, most) = (*bounds.start(), *bounds.end());
    let requirement = match value {
        _ if value < least => format!("at least {}", shown(least)),
        _ if value > most => format!("at most {}", shown(most)),
        _ if value.is_nan() => "a number".to_owned(),
        _ => return Ok(()),
    };
    Err(ModelError::Config(format!("{key} = {value:?}: it must be {requirement}")))
}

/// Formats a number; a small one with an exponent instead of dozens of digits.
fn shown(number: f64) -> String {
    if number == 0.0 || number.abs() >= 1e-6 {
        format!("{number}")
    } else {
        format!("{number:.1e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_beyond_all_measure_are_refused_with_their_key() {
        let message = |value: f64| number("model.a", value, EPSILONS).map_err(|e| e.to_string());
        assert_eq!(message(1e-12), Ok(()));
        assert_eq!(message(1e300).unwrap_err(), "model.a = 1e300: it must be at most 1");
        assert_eq!(message(f64::INFINITY).unwrap_err(), "model.a = inf: it must be at most 1");
        assert_eq!(message(f64::NAN).unwrap_err(), "model.a = NaN: it must be a number");
        for value in [-1e-5, 0.0, 1e-300] {
            let refused = message(value).unwrap_err();
            assert_eq!(refused, format!("model.a = {value:?}: it must be at least 1.2e-38"));
        }
        let message = |value: usize| size("model.b", value, WIDTHS).map_err(|e| e.to_string());
        assert_eq!((message(1), message(1 << 20)), (Ok(()), Ok(())));
        assert_eq!(message(0).unwrap_err(), "model.b = 0: it must be at least 1");
        let most = usize::MAX >> 8;
        let refusal = format!("model.b = {}: it must be at most {most}", usize::MAX);
        assert_eq!(message(usize::MAX).unwrap_err(), refusal);
    }
}
