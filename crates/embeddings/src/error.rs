//! Errors of vectors and their files, with advice.

use std::path::{Path, PathBuf};

/// Result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error in a file, a setting or a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text cannot be read, or a file cannot be written.
    #[error(transparent)]
    Data(#[from] taper_data::Error),
    /// The operating system refused an operation on a file.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file violates its format.
    #[error("{path}{place}: {message}", path = .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Position in the file, such as `, line 3`, or empty.
        place: String,
        /// Description of the error, and advice.
        message: String,
    },
    /// A requested word has no vector.
    #[error("no vector for {word:?}{near}")]
    Unknown {
        /// The word.
        word: String,
        /// Known words that differ only in case; may be empty.
        near: String,
    },
    /// A setting lies outside its range.
    #[error("{setting} = {value}: {expected}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// The refused value.
        value: String,
        /// Allowed values.
        expected: String,
    },
    /// The text or the vectors do not have what a computation needs.
    #[error("{message}")]
    Text {
        /// Description of what is missing, and advice.
        message: String,
    },
    /// Training needs more memory than is allowed.
    #[error(
        "{words} words of {dimensions} dimensions need about {needed} MiB for training, but \
         {allowed} MiB may be used: have fewer dimensions{fewer}",
        fewer = if *.fitting < 2 {
            String::new()
        } else {
            format!(", or only the most frequent words with --max-words {fitting}")
        }
    )]
    Memory {
        /// Number of words of the vocabulary.
        words: usize,
        /// Number of dimensions of a vector.
        dimensions: usize,
        /// Memory that training would need, in MiB.
        needed: u64,
        /// Memory that training may use, in MiB.
        allowed: u64,
        /// Number of words that would fit into this memory.
        fitting: usize,
    },
}

impl Error {
    /// Makes an error of the operating system about `path`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        |source| Self::Io { path: path.to_owned(), source }
    }

    /// Makes the error of a file that violates its format at `place`.
    pub(crate) fn malformed(path: &Path, place: &str, message: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), place: place.to_owned(), message: message.into() }
    }
}
