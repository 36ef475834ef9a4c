//! Figures and HTML pages about runs. A run is one training, with all its files in one folder.
//!
//! [`RunData`] reads a run: the record of its training, its recipe, the statistics of its data and
//! its scores. [`report`] makes a page about one run, and [`compare`] compares several runs.
//! [`RunData::figures`] returns the figures of a report without the page.
//!
//! A model is loaded only to compute the attention on selected sentences ([`RunData::look`]). A
//! report can therefore be made while a run still trains, on any machine that has the folder and
//! the text of the run.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod classified;
mod compare;
mod curves;
mod figures;
mod flaws;
mod page;
mod paths;
mod record;
mod regressed;
mod ridges;
mod run_data;
mod scaling;
mod sentences;
mod translated;
mod words;

pub use compare::{Comparison, SystemScores, compare};
pub use curves::{curves, layer_figures};
pub use figures::NamedFigure;
pub use flaws::Flaw;
pub use page::report;
pub use record::{Logged, Record, Validated};
pub use ridges::spread_figures;
pub use run_data::chosen::{ChosenSentence, SentenceAddress};
pub use run_data::{Parent, RunData};
pub use scaling::{Point, Study};
pub use sentences::{Sentence, SentenceSet};
