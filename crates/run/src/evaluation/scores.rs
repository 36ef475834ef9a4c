//! BLEU, chrF and chrF++ of texts that a model has written, with signatures that state how they
//! were computed.

use anyhow::{Result, ensure};
use serde::Serialize;
use taper_metrics::{Bleu, BleuScore, Chrf, ChrfScore};

use crate::config::EvaluationConfig;

/// Scores of a set of translations or captions.
#[derive(Debug, Clone, Serialize)]
pub struct TextScores {
    /// Corpus BLEU.
    pub bleu: BleuScore,
    /// chrF, with a beta of 2.
    pub chrf: ChrfScore,
    /// chrF++, with a beta of 2.
    pub chrf_plus_plus: ChrfScore,
}

impl TextScores {
    /// Scores the texts `hypotheses`, which a model has written, against one reference each.
    ///
    /// # Errors
    /// When there is no hypothesis, or not one reference for each hypothesis.
    pub fn new(
        hypotheses: &[String],
        references: &[String],
        config: &EvaluationConfig,
    ) -> Result<Self> {
        Self::of_several(hypotheses, &[references.to_vec()], config)
    }

    /// Scores the texts `hypotheses`, which a model has written, against several references each.
    /// `references` has one list with the first reference of every hypothesis, one list with the
    /// second references, and so on.
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

    /// Lines for people: one for each metric, with its score and signature.
    pub fn lines(&self) -> [String; 3] {
        [self.bleu.line(2), self.chrf.line(2), self.chrf_plus_plus.line(2)]
    }
}
