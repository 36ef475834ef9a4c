//! BLEU and chrF with sacreBLEU's signatures: strings in, scores out.
//!
//! A metric is a plain configuration ([`Bleu`], [`Chrf`]). `corpus` scores whole files at
//! once; `counter` takes segments one at a time and yields statistics ([`BleuStatistics`],
//! [`ChrfStatistics`]) that are summed, never averaged, before `score` turns them into a
//! number. Scores equal those of sacreBLEU 2.x, quirks included, and carry its signature
//! fields; only the `version` field names this implementation (see [`SIGNATURE_VERSION`]).
//!
//! ```
//! use taper_metrics::{Bleu, Chrf};
//!
//! let hypotheses = ["The cat sat on the mat."];
//! let references = vec![vec!["The cat sat on a mat."]];
//! let bleu = Bleu::default().corpus(&hypotheses, &references)?;
//! let chrf = Chrf::plus_plus().corpus(&hypotheses, &references)?;
//! assert!(bleu.score > 40.0 && chrf.score > 70.0);
//! assert!(bleu.signature.starts_with("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|"));
//! # Ok::<(), taper_metrics::MetricError>(())
//! ```

mod bleu;
mod bleu_counter;
mod bleu_score;
mod chrf;
mod chrf_counter;
mod chrf_score;
mod error;
mod ngrams;
mod signature;
mod smoothing;
mod text;
mod tokenizer;

pub use bleu::Bleu;
pub use bleu_counter::{BleuCounter, BleuStatistics};
pub use bleu_score::BleuScore;
pub use chrf::Chrf;
pub use chrf_counter::{ChrfCounter, ChrfStatistics, OrderCounts};
pub use chrf_score::ChrfScore;
pub use error::MetricError;
pub use signature::{ReferenceCount, SIGNATURE_VERSION};
pub use smoothing::Smoothing;
pub use tokenizer::Tokenizer;
