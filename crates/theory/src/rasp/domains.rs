//! Kinds and domains of values: every expression of a compiled program has finitely many possible
//! values.

use super::parser::Program;

/// Kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    Number,
    /// A character, as its index in the alphabet.
    Character,
    /// 0 or 1.
    Truth,
}

/// Values that an expression can have, ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Domain {
    pub(super) kind: ValueKind,
    pub(super) values: Vec<i64>,
}

impl Domain {
    pub(super) fn new(kind: ValueKind, values: impl IntoIterator<Item = i64>) -> Self {
        let mut values: Vec<i64> = values.into_iter().collect();
        values.sort_unstable();
        values.dedup();
        Self { kind, values }
    }

    /// Index of a value among the values of the domain; `None` if the domain does not have the
    /// value.
    pub(super) fn index(&self, value: i64) -> Option<usize> {
        self.values.binary_search(&value).ok()
    }

    /// Largest value minus smallest value, plus one; `None` if this overflows.
    fn span(&self) -> Option<i64> {
        match self.values.as_slice() {
            [first, .., last] => last.checked_sub(*first)?.checked_add(1),
            _ => Some(1),
        }
    }

    /// Formats a value.
    pub(super) fn shown(&self, value: i64, program: &Program) -> String {
        match self.kind {
            ValueKind::Number => value.to_string(),
            ValueKind::Character => program.alphabet()[value as usize].to_string(),
            ValueKind::Truth => (value != 0).to_string(),
        }
    }
}

/// 2^24. Up to this number, f32 represents every integer exactly.
const MOST: i64 = 1 << 24;
/// 2^51. Up to this number, f64 represents every multiple of 1/4 exactly. Constants are added up in
/// f64.
const MOST_WITH_CONSTANTS: i64 = 1 << 51;
/// Largest ratio of a sum to the distance of two neighbouring sums. An encoder computes a step
/// between the two sums. Up to this ratio, the sums and the ends of the step are exact in f32.
const MOST_RATIO: i64 = 1 << 20;

/// Returns a factor for each argument. The sum of the arguments, each times its factor, then
/// determines every argument, just as a number determines its digits. `None` if a factor overflows.
pub(super) fn digits(domains: &[&Domain]) -> Option<Vec<i64>> {
    let mut factors = vec![1_i64; domains.len()];
    for at in (1..domains.len()).rev() {
        factors[at - 1] = factors[at].checked_mul(domains[at].span()?)?;
    }
    Some(factors)
}

/// Returns an upper bound on the absolute value of a weighted sum of arguments, and of every part
/// of this sum. The encoder adds up the sum in f32. Arguments that have only one possible value do
/// not count, because they become constants in the weights. `None` if the encoder cannot compute
/// the sum exactly.
pub(super) fn reach(domains: &[&Domain], factors: &[i64]) -> Option<i64> {
    let (mut with_constants, mut sum) = (0_i64, 0_i64);
    for (domain, factor) in domains.iter().zip(factors) {
        let largest = domain.values.iter().map(|value| value.unsigned_abs()).max().unwrap_or(0);
        let part = i64::try_from(largest).ok()?.checked_mul(factor.abs())?;
        with_constants = with_constants.checked_add(part)?;
        if domain.values.len() > 1 {
            sum = sum.checked_add(part)?;
        }
    }
    (sum <= MOST && with_constants <= MOST_WITH_CONSTANTS).then_some(sum)
}

/// Whether an encoder can tell sums apart. `sums` are ascending, and `reach` is the bound that the
/// function of this name returns for them.
pub(super) fn are_distinct(sums: impl Iterator<Item = i64> + Clone, reach: i64) -> bool {
    let gaps = sums.clone().zip(sums.skip(1)).map(|(low, high)| high - low);
    gaps.min().is_none_or(|gap| reach / gap <= MOST_RATIO)
}
