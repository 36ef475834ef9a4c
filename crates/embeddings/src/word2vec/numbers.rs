//! Decimal numbers in the format of NumPy 2.4, so that files are identical to those of gensim byte
//! for byte.

use std::io::{self, Write};

/// Writes the shortest decimal number that is read as the bits of `value`. If the absolute value is
/// below 10⁻⁴ (but not 0), or is 10⁶ or more, the number has an exponent. Otherwise it has a
/// decimal point, followed by at least one digit.
pub(super) fn write_number(out: &mut impl Write, value: f32) -> io::Result<()> {
    let size = f64::from(value.abs());
    if size != 0.0 && !(1e-4..1e6).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return write!(out, "{digits}e{sign}{exponent:0>2}");
    }
    let text = value.to_string();
    let point = if text.contains('.') { "" } else { ".0" };
    write!(out, "{text}{point}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_numpy_does() {
        // Expected texts are `str(numpy.float32(x))` of NumPy 2.4.
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-0.001_234_568, "-0.001234568"),
            (1e-4, "1e-04"),
            (1.000_000_1e-4, "0.00010000001"),
            (9.999_999e-5, "9.999999e-05"),
            (1.5e-45, "1e-45"),
            (999_999.5, "999999.5"),
            (16_777_216.0, "1.6777216e+07"),
            (f32::MAX, "3.4028235e+38"),
        ] {
            let mut out = Vec::new();
            write_number(&mut out, value).expect("memory");
            assert_eq!(String::from_utf8(out).expect("digits"), text);
        }
    }
}
