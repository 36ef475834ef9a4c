//! Files of vectors as word2vec and gensim write them, as text or binary.
//!
//! A head of two numbers, words and dimensions; then a word, a space and its vector: in text numbers
//! between spaces and the end of a line, in binary the bytes of 32-bit numbers, the lowest first.
//! gensim puts nothing behind a binary vector, word2vec itself the end of a line: both are read. Of
//! text, GloVe's files without a head are read too.

mod numbers;
mod read;
mod write;

pub(crate) use write::{write_head, write_row};

/// How a file holds its vectors. Which one it is is seen from the file when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Bytes of 32-bit numbers.
    #[default]
    Binary,
    /// Decimal numbers, the shortest that are read back to the same bits.
    Text,
}

impl Format {
    /// The name of the file of vectors in a folder that training makes.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Binary => "vectors.bin",
            Self::Text => "vectors.txt",
        }
    }
}
