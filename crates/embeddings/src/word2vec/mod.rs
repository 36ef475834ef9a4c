//! Files of vectors of word2vec and gensim, text or binary.
//!
//! A header has two numbers, words and dimensions. Then come a word, a space and its vector: in
//! text, numbers separated by spaces up to the line end; in binary, the bytes of little-endian
//! 32-bit numbers. gensim puts nothing after a binary vector, word2vec a line end: both are read.
//! GloVe's text files without a header are read too.

mod numbers;
mod read;
mod write;

pub(crate) use write::{write_head, write_row};

/// File format of vectors, which is detected on reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Binary 32-bit numbers.
    #[default]
    Binary,
    /// Decimal numbers, the shortest that read back to the same bits.
    Text,
}

impl Format {
    /// Name of the vector file in the folder of a training.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Binary => "vectors.bin",
            Self::Text => "vectors.txt",
        }
    }
}
