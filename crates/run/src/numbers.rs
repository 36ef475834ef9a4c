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
    prefixed(number, &[("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)])
        .unwrap_or_else(|| format!("{number}"))
}

/// Formats a number of bytes with a binary prefix, as in `1.5 GiB`.
pub fn bytes(number: u64) -> String {
    let value = number as f64;
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let units = units.map(|(unit, power)| (unit, f64::from(1u32 << power)));
    prefixed(value, &units).unwrap_or_else(|| format!("{number} B"))
}

/// Formats a number with one decimal place and the largest fitting unit of `units`, which come in
/// descending order; `None` if the number is smaller than all units.
fn prefixed(number: f64, units: &[(&str, f64)]) -> Option<String> {
    let fitting = units.iter().position(|&(_, size)| number >= size)?;
    let rounded = (number / units[fitting].1 * 10.0).round() / 10.0;
    // With its own unit, a number just below the next unit, such as 999,999, would become 1000.0.
    let chosen = match fitting.checked_sub(1) {
        Some(above) if rounded >= units[above].1 / units[fitting].1 => above,
        _ => fitting,
    };
    let (unit, size) = units[chosen];
    Some(format!("{:.1} {unit}", number / size))
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
        assert_eq!((scaled(999_949), scaled(999_950)), ("999.9 k".into(), "1.0 M".into()));
        assert_eq!((scaled(999), scaled(1000)), ("999".into(), "1.0 k".into()));
        assert_eq!(scaled(2_000_000_000_000_000), "2000.0 T");
        assert_eq!((bytes((1 << 20) - 1), bytes(1023)), ("1.0 MiB".into(), "1023 B".into()));
    }
}
