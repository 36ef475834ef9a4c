//! Computes BLEU, chrF and TER of translations, which are given as strings, with sacreBLEU's
//! signatures.
//!
//! A metric is a plain configuration ([`Bleu`], [`Chrf`], [`Ter`]) with one interface ([`Metric`]).
//! Each segment, a hypothesis with its references, gives a row of [`Statistics`]. Rows are summed,
//! never averaged, and a sum gives a score. All metrics share the functions that need only this
//! interface: counting on all threads, confidence intervals and paired significance tests
//! ([`resampling`]), and signatures (texts that state the settings of a score). Scores, intervals
//! and p-values equal those of sacreBLEU 2.x, including its quirks and random numbers. Only the
//! `version` field of a signature names this implementation (see [`SIGNATURE_VERSION`]).
//!
//! ```
//! use taper_metrics::{Bleu, Chrf, Ter};
//!
//! let hypotheses = ["The cat sat on the mat."];
//! let references = vec![vec!["The cat sat on a mat."]];
//! let bleu = Bleu::default().corpus(&hypotheses, &references)?;
//! let chrf = Chrf::plus_plus().corpus(&hypotheses, &references)?;
//! let ter = Ter::default().corpus(&hypotheses, &references)?;
//! assert!(bleu.score > 40.0 && chrf.score > 70.0 && ter.score < 20.0);
//! assert!(bleu.signature.starts_with("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|"));
//! # Ok::<(), taper_metrics::MetricError>(())
//! ```
#![forbid(unsafe_code)]

mod alignment;
mod answers;
mod bleu;
mod chrf;
mod entities;
mod error;
mod expected;
mod field;
mod metric;
mod pruned;
mod real;
pub mod resampling;
mod score;
mod signature;
mod statistics;
mod ter;
mod text;

pub use alignment::{AlignmentCounts, AlignmentScore, Link};
pub use answers::{AnswerMeans, AnswerReport, AnswerScore, normalized_answer};
pub use bleu::{Bleu, BleuScore, Smoothing};
pub use chrf::{Chrf, ChrfScore};
pub use entities::{Entity, EntityCounts, EntityReport, EntityScore, entities};
pub use error::{MetricError, Result};
pub use expected::{WeightedReference, expected_scores};
pub use field::Field;
pub use metric::{Metric, Segment, SegmentCounter, ragged_segments, segments};
pub use pruned::{PrunedScores, Pruning, pruned_expected_scores};
pub use real::ResampledScore;
pub use score::Score;
pub use signature::{ReferenceCount, SIGNATURE_VERSION, Signature, Trials};
pub use statistics::Statistics;
pub use ter::{Ter, TerScore};
pub use text::{Tokenizer, trim_end};
