//! What a run has recorded, as figures and pages.
//!
//! [`RunData`] reads a run: its record, its recipe, what its data is and what it scored.
//! [`report`] makes a page of it, [`compare`] a page of several; [`RunData::figures`] are the same
//! pictures one by one. No model is loaded, but for the attention of sentences that are asked for
//! ([`RunData::look`]): a report of a run that still trains may be made at any time, on any machine
//! that has the run's folder and its text.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod chosen;
mod classified;
mod compare;
mod curves;
mod flaws;
mod page;
mod record;
mod regressed;
mod run_data;
mod scaling;
mod sentences;
mod translated;
mod words;

pub use chosen::{ChosenSentence, SentenceAddress};
pub use compare::{Comparison, SystemScores, compare};
pub use curves::{curves, layer_figures};
pub use flaws::Flaw;
pub use page::report;
pub use record::{Logged, Record, Validated};
pub use run_data::{NamedFigure, RunData};
pub use scaling::{Point, Study};
pub use sentences::{Sentence, SentenceSet};
