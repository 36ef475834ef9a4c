//! Numbers of lines, and how messages name a line.

use std::fmt::{Display, Formatter};

/// Numbers of lines that are translated together. Messages name lines by their numbers, and random
/// draws depend on these numbers.
#[derive(Debug, Clone, Copy)]
pub enum LineNumbers<'a> {
    /// Adjacent lines. The number is that of the first line.
    From(usize),
    /// Sentences of a document, each with its number in the document.
    Sentences(&'a [usize]),
}

/// Number of a line or a sentence of a document, for messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    is_sentence: bool,
    pub(super) number: usize,
}

impl LineNumbers<'_> {
    /// Place of the line with the index `index`. A sentence without a number has its index plus 1.
    pub(super) fn place(self, index: usize) -> Place {
        let (is_sentence, number) = match self {
            Self::From(first) => (false, first + index),
            Self::Sentences(numbers) => (true, numbers.get(index).map_or(index + 1, |&one| one)),
        };
        Place { is_sentence, number }
    }
}

impl Place {
    pub(super) fn line(number: usize) -> Self {
        Self { is_sentence: false, number }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", if self.is_sentence { "sentence" } else { "line" }, self.number)
    }
}
