//! A score of any metric, and its printed form.

use crate::error::Result;
use crate::metric::Metric;
use crate::resampling::{Confidence, confidence};
use crate::signature::{Signature, Trials};
use crate::statistics::Statistics;

/// A corpus-level score with everything that is printed about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Name of the metric.
    pub name: String,
    /// The score.
    pub value: f64,
    /// Quantities that the score was computed from, as text; empty for metrics without any.
    pub details: String,
    /// Settings and data that the score depends on.
    pub signature: Signature,
    /// Confidence interval; `None` if none was requested.
    pub confidence: Option<Confidence>,
}

impl Score {
    /// Computes the score of a corpus.
    ///
    /// # Errors
    /// When there are no segments, or they were counted with other options.
    pub fn new(metric: &dyn Metric, statistics: &Statistics) -> Result<Self> {
        let sums = statistics.sums(metric)?;
        Ok(Self {
            name: metric.name(),
            value: metric.value(&sums),
            details: metric.details(&sums),
            signature: Signature::new(metric, statistics.references(), Trials::default()),
            confidence: None,
        })
    }

    /// Computes the score of a corpus, with a confidence interval from `resamples` bootstrap
    /// resamples.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn with_confidence(
        metric: &dyn Metric,
        statistics: &Statistics,
        resamples: usize,
        seed: u64,
    ) -> Result<Self> {
        let trials = Trials { bootstrap: Some(resamples), seed: Some(seed), ..Trials::default() };
        Ok(Self {
            signature: Signature::new(metric, statistics.references(), trials),
            confidence: Some(confidence(metric, statistics, resamples, seed)?),
            ..Self::new(metric, statistics)?
        })
    }

    /// Formats the score with its confidence interval, if it has one: `38.2 (μ = 36.2 ± 24.4)`.
    pub fn number(&self, decimals: usize) -> String {
        match self.shown_confidence() {
            Some(confidence) => {
                format!("{:.decimals$} ({})", self.value, confidence.text(decimals))
            }
            None => format!("{:.decimals$}", self.value),
        }
    }

    /// Formats the line that reports the score, with its long or short signature.
    pub fn line(&self, decimals: usize, short: bool) -> String {
        let signature =
            if short { format!("{:#}", self.signature) } else { self.signature.to_string() };
        let separator = if self.details.is_empty() { "" } else { " " };
        format!("{}|{signature} = {}{separator}{}", self.name, self.number(decimals), self.details)
    }

    /// Confidence interval to print. `None` if none was requested, or if its mean is zero, because
    /// such an interval has no meaning.
    pub fn shown_confidence(&self) -> Option<Confidence> {
        self.confidence.filter(|confidence| confidence.mean > 0.0)
    }
}
