//! Vector files of word2vec and gensim, text or binary.
//!
//! A file begins with a header of two numbers: the number of words and the number of dimensions.
//! Then come the words, each followed by a space and its vector. In a text file, a vector consists
//! of numbers separated by spaces, up to the line end. In a binary file, it consists of
//! little-endian 32-bit floats. After a binary vector, word2vec writes a line end, and gensim
//! writes nothing; both forms are read. Text files of GloVe, which have no header, are also read.

mod numbers;
mod read;
mod write;

pub(crate) use write::{write_head, write_row};

/// Format of a file of vectors. Readers detect it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Binary 32-bit numbers.
    #[default]
    Binary,
    /// Decimal numbers, each with the fewest digits from which the same bits are read.
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
