//! The `[evaluation]` section: how decoded text is scored.

use serde::{Deserialize, Serialize};
use taper_metrics::Tokenizer;

/// How validation and test translations are scored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EvaluationConfig {
    /// BLEU's tokenizer: 13a, none, char, zh or intl.
    pub(crate) tokenize: Tokenizer,
    /// Lowercase both sides before scoring.
    pub(crate) lowercase: bool,
    /// At most this many validation pairs are decoded for BLEU and chrF during
    /// training, spread evenly over the set; 0 decodes none.
    pub(crate) validation_sentences: usize,
    /// Sample translations printed after training.
    pub(crate) samples: usize,
    /// Decode and score the test sets when training ends.
    pub(crate) test_after_training: bool,
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        Self { tokenize: Tokenizer::default(), lowercase: false, validation_sentences: 1000, samples: 5, test_after_training: true }
    }
}
