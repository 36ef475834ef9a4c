//! Errors of constructions, which are models whose weights are set by hand.

use std::fmt;
use taper_model::ModelError;

/// Position in the text of a program. Lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}", self.line, self.column)
    }
}

/// Error of a construction.
#[derive(Debug, thiserror::Error)]
pub enum TheoryError {
    /// A program that cannot be parsed, or that has an error when it runs.
    #[error("{place}: {message}")]
    Program {
        /// Position of the fault.
        place: Place,
        /// Message: what the fault is, and a remedy.
        message: String,
    },
    /// An input or a size that a construction does not support.
    #[error("{0}")]
    Input(String),
    /// A model could not be built, or run.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A study that another crate runs failed; the error is from that crate.
    #[error(transparent)]
    Study(#[from] Box<dyn std::error::Error + Send + Sync>),
}

impl TheoryError {
    /// Makes an error of a program.
    pub(crate) fn program(place: Place, message: impl Into<String>) -> Self {
        Self::Program { place, message: message.into() }
    }
}

impl From<candle_core::Error> for TheoryError {
    fn from(error: candle_core::Error) -> Self {
        Self::Model(error.into())
    }
}
