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

    /// Largest value minus smallest value, plus one.
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
