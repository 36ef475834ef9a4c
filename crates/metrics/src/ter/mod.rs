//! Translation edit rate (Snover et al., 2006): options, and the score from the counts.

mod counter;
mod edit_distance;
mod tercom;

use std::fmt;

use serde::{Deserialize, Serialize};

use self::counter::TerCounter;
use crate::error::Result;
use crate::field::Field;
use crate::metric::{Metric, Segment, SegmentCounter, segments};
use crate::real::{Real, ResampledScore};
use crate::signature::{Signature, Trials};
use crate::statistics::Statistics;

/// Options of TER. The defaults are those of Tercom, the original program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ter {
    /// Whether to separate punctuation and remove markup; otherwise, only whitespace separates
    /// words.
    pub normalized: bool,
    /// Whether to remove punctuation.
    pub no_punct: bool,
    /// Whether to treat Chinese characters as words, and extend `normalized` and `no_punct` to
    /// their punctuation; has no effect by itself.
    pub asian_support: bool,
    /// Whether to distinguish case.
    pub case_sensitive: bool,
}

impl Ter {
    /// Scores a corpus; `references[k][i]` is the k-th reference of hypothesis i.
    ///
    /// # Errors
    /// When there is nothing to score or the line counts differ.
    pub fn corpus<S: AsRef<str>>(
        &self,
        hypotheses: &[S],
        references: &[Vec<S>],
    ) -> Result<TerScore> {
        self.score(&Statistics::count(self, &segments(hypotheses, references)?)?)
    }

    /// Scores one sentence.
    ///
    /// # Errors
    /// See [`Self::corpus`].
    pub fn sentence<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> Result<TerScore> {
        let references = references.iter().map(AsRef::as_ref).collect();
        self.score(&Statistics::count(self, &[Segment { hypothesis, references }])?)
    }

    /// Turns the statistics of a corpus into its score.
    ///
    /// # Errors
    /// When there are no segments, or they were counted with other options.
    pub fn score(&self, statistics: &Statistics) -> Result<TerScore> {
        let sums = statistics.sums(self)?;
        let signature = Signature::new(self, statistics.references(), Trials::default());
        Ok(TerScore {
            score: self.value(&sums),
            edits: sums[0] as u64,
            reference_length: sums[1],
            signature: signature.to_string(),
        })
    }
}

/// Edits per hundred reference words. If the references have no words, the rate is 100 if there are
/// edits, and otherwise 0.
fn rate<R: Real>(edits: R, reference_length: R) -> R {
    let zero = R::from_f64(0.0);
    if reference_length > zero {
        R::from_f64(100.0) * (edits / reference_length)
    } else if edits > zero {
        R::from_f64(100.0)
    } else {
        zero
    }
}

/// A row of counts has the number of edits against the closest reference, and the mean length of
/// the references.
impl Metric for Ter {
    fn name(&self) -> String {
        "TER".to_owned()
    }

    fn fields(&self) -> Vec<Field> {
        vec![
            Field::case(!self.case_sensitive),
            Field::new("tok", "t", "tercom"),
            Field::flag("norm", "nr", self.normalized),
            Field::flag("punct", "pn", !self.no_punct),
            Field::flag("asian", "as", self.asian_support),
        ]
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn columns(&self) -> usize {
        2
    }

    fn counter(&self) -> Box<dyn SegmentCounter + '_> {
        Box::new(TerCounter::new(self))
    }

    fn value(&self, sums: &[f64]) -> f64 {
        rate(sums[0], sums[1])
    }

    fn sample(&self, sums: &[f32]) -> ResampledScore {
        rate(ResampledScore::Single(sums[0]), ResampledScore::Single(sums[1]))
    }

    fn details(&self, _sums: &[f64]) -> String {
        String::new()
    }
}

/// A TER score with the quantities that it was computed from. Lower is better; with more edits than
/// reference words it exceeds 100.
///
/// `Display` writes sacreBLEU's line, `TER = 51.90`, with two decimals, or as many as the
/// formatter's precision says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TerScore {
    /// TER, at least 0.
    pub score: f64,
    /// Insertions, deletions, substitutions and shifts.
    pub edits: u64,
    /// Number of words in the references. For a segment with several references, this is their mean
    /// number of words.
    pub reference_length: f64,
    /// Settings and data that the score depends on, as text.
    pub signature: String,
}

impl TerScore {
    /// Line with its signature: `TER|nrefs:1|… = 51.90`.
    pub fn line(&self, decimals: usize) -> String {
        format!("TER|{} = {:.decimals$}", self.signature, self.score)
    }
}

impl fmt::Display for TerScore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = formatter.precision().unwrap_or(2);
        write!(formatter, "TER = {:.decimals$}", self.score)
    }
}
