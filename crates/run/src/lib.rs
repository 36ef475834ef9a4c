//! Everything between a recipe (the TOML file with the settings of a training) and its results: the
//! folder of the training, the trained model, translations and scores.
//!
//! The quickstart, from its recipe to a translation:
//!
//! ```
//! use std::{path::Path, sync::atomic::AtomicBool};
//!
//! use taper_run::{LineTranslator, LoadSettings, LoadedRun, RunConfig, RunEvent, RunFolder};
//! use taper_run::{TrainSettings, TranslationSettings, training};
//!
//! fn main() -> anyhow::Result<()> {
//!     # std::env::set_current_dir("../..")?;
//!     let config = RunConfig::load(Path::new("configs/quickstart.toml"), &[])?;
//!     let folder = RunFolder::new(Path::new("runs/quickstart"));
//!     # let (config, temporary) = shortened(config)?;
//!     # let folder = RunFolder::new(&temporary.path().join("run"));
//!     let mut observer = |event: &RunEvent<'_>| Ok(println!("{event:?}"));
//!     let stop = AtomicBool::new(false);
//!     training::start(&folder, &config, &TrainSettings::default(), &mut observer, &stop)?;
//!
//!     let run = LoadedRun::open(folder.root(), &LoadSettings::default())?;
//!     let translator = LineTranslator::new(&run, &TranslationSettings::from_config(&run.config))?;
//!     for line in translator.translate(&["I love you.".to_owned()], &[], 1, |_| {})? {
//!         println!("{}", line?.translations[0].text);
//!     }
//!     Ok(())
//! }
//! # // Twenty updates instead of 500 in this test of the program above.
//! # fn shortened(mut config: RunConfig) -> anyhow::Result<(RunConfig, tempfile::TempDir)> {
//! #     config.training.max_updates = 20;
//! #     config.training.schedule.warmup = 5;
//! #     config.evaluation.validation_sentences = 0;
//! #     config.evaluation.test_after_training = false;
//! #     config.decoding.max_length = 20;
//! #     Ok((config, tempfile::tempdir()?))
//! # }
//! ```
//!
//! [`RunConfig`] is the content of a recipe. [`training::start`] makes a folder on disk, called a
//! run, and trains a model in it; [`training::resume`] continues this training. [`LoadedRun`] opens
//! a run for translation and scoring. A [`RunObserver`] receives [`RunEvent`]s: nothing in this
//! crate prints, reads arguments, handles signals or ends the process. Training ends early, with a
//! checkpoint, when its stop flag is set.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod advice;
pub mod attention;
pub mod checks;
pub mod config;
pub mod engines;
pub mod evaluation;
mod event;
mod finite;
pub mod folder;
pub mod folders;
pub mod generation;
mod hand_made;
pub mod image_text;
pub mod init;
mod items;
mod loaded_run;
pub mod made_text;
mod merging;
mod model_card;
pub mod numbers;
mod parameter_groups;
pub mod pipeline;
pub mod prediction;
pub mod processes;
mod protobuf;
mod quantization;
pub mod scaling;
pub mod sentence_vectors;
pub mod shapes;
pub mod shortlist;
pub mod student;
pub mod tasks;
pub mod training;
pub mod translation;
pub mod word_vectors;

pub use advice::{one_line, one_line_with};
pub use config::RunConfig;
pub use event::{
    FolderNotice, ImportNotice, Notice, RecipeNotice, RunEvent, RunObserver, TextNotice,
    truncated_translations,
};
pub use finite::NotFinite;
pub use folder::{RunFolder, RunState, RunSummary, list_runs};
pub use generation::{GenerationSettings, Generator};
pub use hand_made::save_by_hand;
pub use items::{BadItem, answer_each};
pub use loaded_run::{LoadSettings, LoadedRun, WeightType};
pub use merging::merge_adapters;
pub use quantization::{Quantized, quantize};
pub use tasks::require_unedited;
pub use training::{Outcome, TrainSettings};
pub use translation::{LineTranslator, TranslationSettings};
