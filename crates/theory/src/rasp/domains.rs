//! Kinds and domains of values: every value of a compiled program is one of finitely many.

use super::parser::Program;

/// Kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    Number,
    /// A character of the alphabet, by its number there.
    Character,
    /// 0 or 1.
    Truth,
}

/// Values that an expression may have, ascending.
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

    /// Number of a value.
    pub(super) fn index(&self, value: i64) -> Option<usize> {
        self.values.binary_search(&value).ok()
    }

    /// Distance from the least to the largest value, and one.
    pub(super) fn span(&self) -> i64 {
        match self.values.as_slice() {
            [] => 1,
            [first, .., last] => last - first + 1,
            [_] => 1,
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
