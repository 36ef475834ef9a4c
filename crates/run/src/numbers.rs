//! Numbers in readable form.

/// Formats a number with separators, as in `12,345,678`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with a decimal prefix, as in `1.5 G`.
pub fn scaled(number: u64) -> String {
    let number = number as f64;
    for (unit, size) in [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)] {
        if number >= size {
            return format!("{:.1} {unit}", number / size);
        }
    }
    format!("{number}")
}

/// Formats a number of bytes with a binary prefix, as in `1.5 GiB`.
pub fn bytes(number: u64) -> String {
    let value = number as f64;
    for (unit, power) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        let size = f64::from(1u32 << power);
        if value >= size {
            return format!("{:.1} {unit}", value / size);
        }
    }
    format!("{number} B")
}

/// Index of the highest value; the first such index if several values are equally high.
pub(crate) fn highest(values: &[f64]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_naturally() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(12), "12");
        assert_eq!(scaled(1_500_000), "1.5 M");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
    }
}
