//! The `[evaluation]` section: scoring of decoded text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taper_metrics::Tokenizer;

/// Scoring of validation and test translations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluationConfig {
    /// BLEU's tokenizer: 13a, none, char, zh or intl. If the recipe names none, the tokenizer of
    /// the target language.
    #[schemars(
        extend("x-names" = "bleu_tokenize sacrebleu_tokenize eval_tokenize"),
        extend("x-idle" = ["no-beam"])
    )]
    pub tokenize: Tokenizer,
    /// Whether translations and references are lowercased before scoring.
    #[schemars(extend("x-idle" = ["no-beam"]))]
    pub lowercase: bool,
    /// Largest number of validation pairs decoded for BLEU and chrF during training, spread evenly
    /// over the set; 0 decodes none.
    #[schemars(
        extend("x-names" = "validation_limit max_valid_sentences"),
        extend("x-idle" = ["not-translation", "no-validation"])
    )]
    pub validation_sentences: usize,
    /// Number of sample translations that are printed after training.
    #[schemars(extend("x-idle" = ["not-translation", "no-test"]))]
    pub samples: usize,
    /// Whether the test sets are translated and scored when training ends.
    pub test_after_training: bool,
}

/// Tokenizer for BLEU on text in `language` if the recipe names no tokenizer for BLEU: the default
/// of sacreBLEU, except that text is split into characters where sacreBLEU uses the analyser MeCab.
pub(crate) fn usual_tokenizer(language: &str) -> Tokenizer {
    match language.split(['-', '_']).next().unwrap_or(language).to_lowercase().as_str() {
        "zh" | "zho" | "cmn" => Tokenizer::Chinese,
        "ja" | "jpn" | "ko" | "kor" => Tokenizer::Character,
        _ => Tokenizer::default(),
    }
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        Self {
            tokenize: Tokenizer::default(),
            lowercase: false,
            validation_sentences: 1000,
            samples: 5,
            test_after_training: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_without_spaces_are_not_scored_by_western_words() {
        for (language, tokenizer) in [
            ("zh", "zh"),
            ("zh-Hant", "zh"),
            ("cmn_Hans", "zh"),
            ("ja", "char"),
            ("ko", "char"),
            ("de", "13a"),
        ] {
            assert_eq!(usual_tokenizer(language).name(), tokenizer, "{language}");
        }
    }
}
