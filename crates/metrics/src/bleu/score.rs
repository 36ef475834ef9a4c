//! A BLEU score and its printed form.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A BLEU score with the quantities that it was computed from.
///
/// `Display` writes sacreBLEU's verbose line. The score has two decimals, or as many as the
/// formatter's precision says: `{score:.1}` prints one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BleuScore {
    /// BLEU, from 0 to 100.
    pub score: f64,
    /// Smoothed n-gram precisions in percent, by order.
    pub precisions: Vec<f64>,
    /// Clipped n-gram matches before smoothing, by order.
    pub matches: Vec<u64>,
    /// N-grams in the hypotheses before smoothing, by order.
    pub totals: Vec<u64>,
    /// Factor for hypotheses shorter than their references, from 0 to 1.
    pub brevity_penalty: f64,
    /// Number of words in the hypotheses.
    pub hypothesis_length: u64,
    /// Number of words in the references. For each segment, only the reference whose length is
    /// closest to that of the hypothesis is counted.
    pub reference_length: u64,
    /// Settings and data that the score depends on, as text.
    pub signature: String,
    /// True if the hypotheses look tokenized. The score is then not comparable, and needs a
    /// warning. Always false with `force`.
    pub looks_tokenized: bool,
}

impl BleuScore {
    /// Length of the hypotheses relative to the references; 0 without reference words.
    pub fn length_ratio(&self) -> f64 {
        if self.reference_length == 0 {
            return 0.0;
        }
        self.hypothesis_length as f64 / self.reference_length as f64
    }

    /// Verbose line with its signature: `BLEU|nrefs:1|… = 25.31 58.2/… (…)`.
    pub fn line(&self, decimals: usize) -> String {
        format!("BLEU|{} = {:.decimals$} {}", self.signature, self.score, self.details())
    }

    /// Part of the line after the score: precisions, brevity penalty and lengths.
    pub(crate) fn details(&self) -> String {
        let precisions: Vec<String> =
            self.precisions.iter().map(|precision| format!("{precision:.1}")).collect();
        format!(
            "{} (BP = {:.3} ratio = {:.3} hyp_len = {} ref_len = {})",
            precisions.join("/"),
            self.brevity_penalty,
            self.length_ratio(),
            self.hypothesis_length,
            self.reference_length,
        )
    }
}

impl fmt::Display for BleuScore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = formatter.precision().unwrap_or(2);
        write!(formatter, "BLEU = {:.decimals$} {}", self.score, self.details())
    }
}
