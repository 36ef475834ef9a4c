//! Parallel text in, token-budget batches of ids out: host-side ids, never a tensor.
//!
//! A sentence pair travels `PairReader` (bytes to text) → [`Cleaner`] (kept, or dropped for a
//! counted reason) → [`Tokenizer`] (ids) → [`Dataset`] (a file beside the run) → [`EpochPlan`]
//! (length-grouped batches whose order is a function of seed and epoch) → [`Prefetcher`] (a
//! thread). [`prepare`] does all of it up to the data sets; the rest is pulled by the trainer.
//!
//! # Decisions
//!
//! - **Batches are packed, not padded.** A [`Batch`] concatenates its rows and gives their lengths,
//!   so a token budget is exact. Rectangles filled with `<pad>` were rejected: [`DataReport`]
//!   states what they would cost.
//! - **Order is a function, not a state.** Batch `i` of epoch `e` under seed `s` can be asked for
//!   directly, so a run resumes from two integers. A stateful generator would have to be saved and
//!   replayed.
//! - **Tokenised once.** Ids live in a file and are read when a batch wants them, so a corpus may
//!   exceed memory and a restart costs a checksum; the file is keyed by text, tokenizer and
//!   cleaning. Time stamps are never the key: they only spare reading text that was read before.
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//! use taper_data::{DataConfig, Position, Prefetcher, prepare};
//!
//! # fn main() -> Result<(), taper_data::Error> {
//! let config = DataConfig { dir: "data/everyday-en-zh".into(), ..DataConfig::default() };
//! let prepared = prepare(&config, "runs/first".as_ref())?;
//! let batches = Prefetcher::new(Arc::clone(&prepared.train), &config.batching, 7, Position::default());
//! for item in batches.take(10) {
//!     let batch = item?.batch;
//!     assert_eq!(batch.target_in.len(), batch.target_out.len());
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod config;
mod draws;
mod error;
mod files;
mod tasks;
mod text;

pub use config::{
    AUTO, BatchingConfig, CleaningConfig, DataConfig, FieldsConfig, Format, HubConfig, Side,
    TokenizerConfig, TokenizerKind,
};
pub use error::{Error, Result};
pub use tasks::pairs::batches::{Batch, EpochPlan, Position};
pub use tasks::pairs::cache::Pair;
pub use tasks::pairs::cleaning::{Cleaner, DropReason, Dropped};
pub use tasks::pairs::dataset::Dataset;
pub use tasks::pairs::prefetch::{Prefetched, Prefetcher};
pub use tasks::pairs::prepare::{Prepared, prepare};
pub use tasks::pairs::reader::{PairReader, RawPair, read_pairs, split_files, split_name};
pub use tasks::pairs::report::{BatchingReport, DataReport, LengthBin, SideReport};
pub use text::fingerprint::{copy_text_records, corpus_changes, recorded_text};
pub use text::lines::LineReader;
pub use text::subwords::Epoch;
pub use text::tokenizer::{END, PAD, SPECIAL_TOKENS, START, Tokenizer, UNKNOWN};
pub use text::tokenizers::TokenizerPair;
