//! BLEU, chrF and chrF++ of decoded text, with signatures.

use anyhow::{Result, ensure};
use serde::Serialize;
use taper_metrics::{Bleu, BleuScore, Chrf, ChrfScore};

use crate::config::EvaluationConfig;

/// Scores of one set of translations.
#[derive(Debug, Clone, Serialize)]
pub struct TextScores {
    /// Corpus BLEU.
    pub bleu: BleuScore,
    /// chrF2.
    pub chrf: ChrfScore,
    /// chrF2++.
    pub chrf_plus_plus: ChrfScore,
}

impl TextScores {
    /// Scores `hypotheses` against one reference each.
    ///
    /// # Errors
    /// When the counts differ or there is nothing to score.
    pub fn new(
        hypotheses: &[String],
        references: &[String],
        config: &EvaluationConfig,
    ) -> Result<Self> {
        Self::of_several(hypotheses, &[references.to_vec()], config)
    }

    /// Scores `hypotheses` against several references each: `references` has a list of the first
    /// reference of every hypothesis, then a list of the second ones, and so on.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn of_several(
        hypotheses: &[String],
        references: &[Vec<String>],
        config: &EvaluationConfig,
    ) -> Result<Self> {
        ensure!(!hypotheses.is_empty(), "there is nothing to score: the set has no sentences");
        let bleu =
            Bleu { tokenizer: config.tokenize, lowercase: config.lowercase, ..Bleu::default() };
        let chrf = Chrf { lowercase: config.lowercase, ..Chrf::default() };
        let chrf_plus_plus = Chrf { lowercase: config.lowercase, ..Chrf::plus_plus() };
        Ok(Self {
            bleu: bleu.corpus(hypotheses, references)?,
            chrf: chrf.corpus(hypotheses, references)?,
            chrf_plus_plus: chrf_plus_plus.corpus(hypotheses, references)?,
        })
    }

    /// One line for each metric, with its signature.
    pub fn lines(&self) -> [String; 3] {
        [self.bleu.line(2), self.chrf.line(2), self.chrf_plus_plus.line(2)]
    }
}
