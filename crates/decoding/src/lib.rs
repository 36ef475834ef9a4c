//! Greedy search, beam search, sampling and forced scoring (the probability of a given translation)
//! with any model that predicts one token at a time.
//!
//! A search uses a model only through [`StepModel`]. The model has a state with rows, each of which
//! belongs to one hypothesis. The search starts the rows from the sources. Then it repeatedly steps
//! all rows by one token, and selects the rows with which it continues. Searches run on the CPU,
//! and read rows of `f32` logits in main memory. They use no tensor operations. Otherwise a search
//! would depend on one tensor library, and its choice among equal scores would depend on how the
//! device sorts.
//!
//! Between two steps, a search asks a [`Control`] whether each sentence is still wanted, and lets
//! the control do other work. So a server can divide its time among several searches, and drop
//! sentences for which nobody waits any more.
//!
//! Four promises hold throughout:
//! - The outcome for a sentence does not depend on the other sentences of its batch, provided that
//!   the model computes each row independently of the other rows. Every decision is made for one
//!   sentence, in `f64`. Continuations with equal scores are ordered by the index of their
//!   hypothesis, and then by their token id.
//! - The log-probability of a hypothesis is taken from the model's full distribution, even if the
//!   search forbids tokens. So [`Translator::score`] gives an output the same log-probability as
//!   the search. With a [`Shortlist`], which limits each sentence to a list of tokens, the search
//!   takes the log-probability from the distribution over that list.
//! - Beam search stops exactly: the result is the same as if the beam ran to its maximum length.
//!   There are three exceptions: if `patience` is set, if the rules of the library Transformers are
//!   chosen ([`SearchRules`]), and if a sentence requires phrases.
//! - Random draws need no state: each draw is a function of the seed, the number of the sentence,
//!   the index of the sample and the position.
//!
//! A good order to read the code is: [`StepModel`]; then the folder `search/`, with the constraints
//! (which tokens are allowed next), the candidates (the best tokens of a row of logits), beam
//! search, and stepwise decoding (greedy search and sampling); and last [`Translator`], which makes
//! the batches.
//!
//! ```
//! use taper_decoding::{DecodingConfig, Result, StepModel, Translator};
//!
//! /// A model that is all but sure to copy its source.
//! struct Copy;
//!
//! impl StepModel for Copy {
//!     /// What is left to copy, per row.
//!     type State = Vec<Vec<u32>>;
//!
//!     fn vocabulary_size(&self) -> usize {
//!         10
//!     }
//!
//!     fn longest_output(&self) -> Option<usize> {
//!         None
//!     }
//!
//!     fn start(&self, sources: &[&[u32]]) -> Result<Self::State> {
//!         Ok(sources.iter().map(|source| source.to_vec()).collect())
//!     }
//!
//!     fn step(
//!         &self,
//!         state: &mut Self::State,
//!         tokens: &[u32],
//!         mut read: impl FnMut(&[f32]) -> Result<()>,
//!     ) -> Result<()> {
//!         let mut logits = vec![0.0; tokens.len() * 10];
//!         for (rest, row) in state.iter_mut().zip(logits.chunks_mut(10)) {
//!             if !rest.is_empty() {
//!                 row[rest.remove(0) as usize] = 9.0;
//!             }
//!         }
//!         read(&logits)
//!     }
//!
//!     fn select(&self, state: &mut Self::State, rows: &[usize]) -> Result<()> {
//!         *state = rows.iter().map(|&row| state[row].clone()).collect();
//!         Ok(())
//!     }
//! }
//!
//! let translator = Translator::new(&Copy, DecodingConfig::default())?;
//! let translations = translator.translate(&[vec![7, 5, 8, 3], vec![3]])?; // 3 is `</s>`
//! assert_eq!(translations[0][0].tokens, [7, 5, 8]);
//! assert!(translations[1][0].tokens.is_empty());
//! # Ok::<(), taper_decoding::DecodingError>(())
//! ```
#![forbid(unsafe_code)]

mod alignment;
mod batches;
mod config;
mod control;
mod error;
mod forced;
mod lengths;
mod model;
mod reranking;
mod search;
mod sentence;
mod shortlist;
mod tokens;
mod translator;

pub use alignment::{AlignedAttention, Alignment, align, align_with};
pub use batches::FinishedChunk;
pub use config::{
    CachePrecision, DecodingConfig, LengthPenaltyForm, OutputLimits, SamplingConfig, SearchRules,
};
pub use control::{Control, Renumbered};
pub use error::DecodingError;
pub use forced::{ForcedScore, forced_scores};
pub use lengths::{ExpectedLength, LengthSettings, length_penalty};
pub use model::{Ensemble, EnsembleState, NumberedSources, StepModel, WithSpecialIds};
pub use reranking::{Criteria, PruningConfig, RerankingConfig, Utility};
pub use search::{
    BeamFate, BeamNode, Hypothesis, NewToken, beam_search, beam_tree, generate, greedy_search,
};
pub use sentence::Sentence;
pub use shortlist::Shortlist;
pub use tokens::{END, PAD, START, SpecialIds, UNKNOWN};
pub use translator::Translator;

/// Result whose error is a [`DecodingError`].
pub type Result<T> = std::result::Result<T, DecodingError>;
