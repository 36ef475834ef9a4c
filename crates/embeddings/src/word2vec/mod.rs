//! Vector files of word2vec and gensim, text or binary.
//!
//! A header has two numbers: the number of words and the number of dimensions. Then each word is
//! followed by a space and its vector. In text, a vector is numbers separated by spaces, up to the
//! line end. In binary, it is the bytes of little-endian 32-bit numbers. After a binary vector,
//! gensim writes nothing and word2vec a line end; both are read. Text files of GloVe, which have no
//! header, are read too.

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
    /// Decimal numbers, as short as possible while they read back to the same bits.
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
