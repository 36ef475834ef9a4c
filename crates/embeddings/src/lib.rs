//! Word vectors: training by skip-gram and CBOW with negative sampling, the files of word2vec,
//! neighbours, analogies, and agreement with human judgements of similarity.
//!
//! [`training`] makes vectors from a text. [`WordVectors`] reads and writes vectors, and finds
//! neighbours. [`SimilaritySet`] scores vectors.
//!
//! **Decision.** Training is stochastic gradient descent, one pair of rows (vectors) after another,
//! and its result does not depend on the number of threads. In word2vec and gensim, threads
//! overwrite each other's rows (Recht et al. 2011, "Hogwild!"), so that no two trainings give the
//! same result. Here, two matrices are trained: one of input vectors and one of output vectors. The
//! rows of each matrix are divided among a fixed number of blocks, and pairs are processed in as
//! many rounds as there are blocks. In a round, each block of input vectors is combined with one
//! block of output vectors. So threads never share a row, and the order of threads within a round
//! changes nothing (Gemulla et al. 2011, "Large-scale matrix factorization with distributed
//! stochastic gradient descent").
//!
//! Two alternatives were rejected. If each thread had its own copy of the vectors, averaging the
//! copies would cost a pass over the vocabulary each time. If the gradients of a large batch were
//! summed, the rows of frequent words would overshoot.
//!
//! **Decision.** This crate has no tensors and no `unsafe`. The crate `pulp` compiles the loops
//! over sixteen lanes (numbers) for the vector registers of each kind of processor. Each product
//! and each sum is rounded separately, and sums are added in a fixed order, so that registers of
//! any width give the same bits.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use taper_embeddings::training::{self, Limits, TrainingSettings};
//! use taper_embeddings::WordVectors;
//!
//! # fn main() -> Result<(), taper_embeddings::Error> {
//! # let folder = tempfile::tempdir().expect("a temporary folder");
//! # let text = folder.path().join("text.txt");
//! # std::fs::write(&text, "the red apple\nthe green pear\n".repeat(50)).expect("a text");
//! let settings = TrainingSettings { dimensions: 16, ..TrainingSettings::default() };
//! let output = folder.path().join("words");
//! let (limits, stop) = (Limits::default(), AtomicBool::new(false));
//! training::start(&[text], &output, &settings, &limits, &mut |_| {}, &stop)?;
//!
//! let vectors = WordVectors::read(&output.join("vectors.bin"))?;
//! for (word, similarity) in vectors.nearest(&["apple"], 3)? {
//!     println!("{word} {similarity:.3}");
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod error;
mod lanes;
mod similarity;
pub mod training;
mod vectors;
mod word2vec;

pub use error::{Error, Result};
pub use similarity::{Agreement, SimilaritySet, spearman};
pub use vectors::WordVectors;
pub use word2vec::Format;
