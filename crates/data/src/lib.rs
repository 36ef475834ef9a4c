//! Converts texts, images and linear functions (for in-context regression) to batches of ids.
//! Tensors are not made here.
//!
//! A [`Task`] makes batches from a corpus. A sentence pair passes through these steps:
//!
//! - [`PairReader`] reads its texts.
//! - [`Cleaner`] keeps it, or drops it and counts the reason.
//! - [`Tokenizer`] converts its texts to ids.
//! - [`PairDataset`] keeps the ids in a file in the folder that the training writes (the run).
//! - [`EpochPlan`] groups pairs of similar lengths to batches, in an order that depends only on
//!   seed and epoch.
//! - [`Prefetcher`] assembles the batches on a separate thread, before the trainer needs them.
//!
//! Running text is tokenised passage by passage into one sequence of ids, the [`TextDataset`], from
//! which an [`EpochPlan`] cuts blocks. [`Task::prepare`] does everything up to the data sets.
//! Epochs and batches are made when the training requests them.
//!
//! Images stay on the disk. An [`ImageDataset`] reads the images of a batch; the ids of an image
//! are its pixel values, from 0 to 255. A [`RegressionDataset`] draws functions; its ids are the
//! bit patterns of floating-point numbers.
//!
//! # Decisions
//!
//! - **Batches are packed, not padded.** A [`Batch`] has its rows one after another, with their
//!   lengths, so the number of tokens in a batch is limited exactly. Rows that are filled up with
//!   `<pad>` to the same length would waste tokens; [`DataReport`] says how many.
//! - **The order is computed, not stored.** Batch `i` of epoch `e` with seed `s` can be requested
//!   directly, so the numbers of the epoch and the batch are enough to resume a run. The state of a
//!   sequential random generator would have to be saved and restored.
//! - **Text is tokenised once.** The ids are in a file and are read for each batch, so a corpus may
//!   be larger than the memory, and a restart only computes a checksum. Hashes of the text, the
//!   tokenizer and the cleaning settings decide whether the file can be used again. Time stamps
//!   only show that a text has not changed, so that its hash need not be computed again.
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//! use taper_data::{DataConfig, Epochs, Position, Prefetcher, Task};
//!
//! # fn main() -> Result<(), taper_data::Error> {
//! let config = DataConfig { dir: "data/everyday-en-zh".into(), ..DataConfig::default() };
//! let prepared = Task::Translation.prepare(&config, "runs/first".as_ref())?;
//! let epochs = Arc::new(Epochs::new(prepared.train, &config.batching, 7));
//! let batches = Prefetcher::new(&epochs, epochs.positions(Position::default()));
//! for item in batches.take(10) {
//!     let batch = item?.batch;
//!     assert_eq!(batch.streams[1].ids.len(), batch.answers.len());
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod batch;
mod config;
mod corpora;
mod draws;
mod epochs;
mod error;
mod file_names;
mod files;
mod identification;
mod images;
mod prefetch;
mod tables;
mod tasks;
mod text;

pub use batch::{Batch, Position, Stream};
pub use config::{
    AUTO, BatchingConfig, CleaningConfig, DataConfig, Direction, FieldsConfig, Format, HubConfig,
    LanguageTag, LanguagesConfig, ModifiersConfig, Side, TokenizerConfig, TokenizerKind,
};
pub use corpora::{Corpora, Corpus, FileList};
pub use draws::{Draws, Epoch};
pub use epochs::{Epochs, Positions};
pub use error::{Error, Result};
pub use file_names::{hexadecimal, is_compressed, split_name};
pub use files::{
    fill_whole, not_a_file, put_in_new_place, put_in_place, read_regular, write_new, write_whole,
};
pub use identification::{
    IdentifiedLanguage, IdentifierTraining, LanguageIdentifier, own_letters, train_identifier,
};
pub use images::{Pixels, Resampling, Resize, write_png};
pub use prefetch::{Prefetched, Prefetcher};
pub use tables::require_plain_text;
pub use tasks::captions::config::CaptionsConfig;
pub use tasks::captions::dataset::{CaptionUse, CaptionedDataset, prepare_captions};
pub use tasks::captions::grammar::prompts;
pub use tasks::captions::report::CaptionReport;
pub use tasks::images::config::{ImageFormat, ImagesConfig};
pub use tasks::images::dataset::{ImageDataset, batch_of_images, prepare_images};
pub use tasks::images::report::ImageReport;
pub use tasks::labelled::config::{LabelledConfig, Pairs};
pub use tasks::labelled::dataset::{LabelOf, LabelledDataset, prepare_labelled};
pub use tasks::labelled::reader::{first_with_tab, labelled_texts};
pub use tasks::labelled::rows::{Row, rows_of, rows_of_each, rows_of_words};
pub use tasks::labelled::tagged::tagged_words;
pub use tasks::masked::config::MaskedConfig;
pub use tasks::masked::dataset::MaskedDataset;
pub use tasks::masked::prepare::{masked_split, prepare_masked};
pub use tasks::pairs::cache::Pair;
pub use tasks::pairs::cleaning::{Cleaner, DropReason, Dropped, DroppedPair};
pub use tasks::pairs::dataset::PairDataset;
pub use tasks::pairs::dataset::plan::PairPlan;
pub use tasks::pairs::hold_out::hold_out;
pub use tasks::pairs::hostile::{HostileLine, Hostility};
pub use tasks::pairs::links::PairLinks;
pub use tasks::pairs::modifiers::letters::is_ideographic;
pub use tasks::pairs::near_duplicates::{NearDuplicates, NearKeys};
pub use tasks::pairs::prepare::prepare_pairs;
pub use tasks::pairs::reader::{PairReader, RawPair, read_pairs, split_files};
pub use tasks::pairs::report::{
    BatchingReport, CorpusReport, DataReport, LengthBin, SideReport, UsualLengths,
};
pub use tasks::pairs::rules::TextRules;
pub use tasks::questions::config::QuestionsConfig;
pub use tasks::questions::squad::{Answer, Paragraph, Question, read_questions};
pub use tasks::questions::windows::{Context, QuestionWindow, best_windows, windows, windows_of};
pub use tasks::regression::config::RegressionConfig;
pub use tasks::regression::dataset::{RegressionDataset, batch_of_functions};
pub use tasks::regression::functions::LinearFunction;
pub use tasks::regression::report::RegressionReport;
pub use tasks::running_text::blocks::TextBlocks;
pub use tasks::running_text::config::{Documents, RunningTextConfig};
pub use tasks::running_text::dataset::TextDataset;
pub use tasks::running_text::prepare::prepare_text;
pub use tasks::running_text::report::TextReport;
pub use tasks::running_text::size::running_text_size;
pub use tasks::{Dataset, EpochPlan, Prepared, Report, Task};
pub use text::encoding::{read_text, text_of};
pub use text::fingerprint::recorded_text;
pub use text::lines::{LineReader, open_stream, open_text, split_lines, text_size, with_newlines};
pub use text::links::{NO_WORD, WordLink, check_links, parse_links};
pub use text::shards::{Share, TokenisingProgress};
pub use text::tokenizer::encoded::EncodedText;
pub use text::tokenizer::pair::TokenizerPair;
pub use text::tokenizer::special::{FolderTokens, SpecialTokens};
pub use text::tokenizer::spelled::SpelledSpecial;
pub use text::tokenizer::{END, PAD, SPECIAL_TOKENS, START, Tokenizer, UNKNOWN};
pub use text::words::words;
