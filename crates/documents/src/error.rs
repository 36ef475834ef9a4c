//! Errors of documents.

/// Result of the fallible functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of a document. It does not have the path of the document, because the caller knows it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A line is not in the format of the document.
    #[error("line {line}: {message}")]
    Line {
        /// Line, counted from 1.
        line: u64,
        /// Fault and advice.
        message: String,
    },
    /// The document as a whole cannot be read.
    #[error("{0}")]
    Document(String),
    /// The stream cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Error {
    /// Makes the error of a fault in a line, counted from 1.
    pub(crate) fn line(line: u64, message: impl Into<String>) -> Self {
        Self::Line { line, message: message.into() }
    }
}

/// Line of the byte `at` of a text, counted from 1.
pub(crate) fn line_at(text: &str, at: usize) -> u64 {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() as u64
}
