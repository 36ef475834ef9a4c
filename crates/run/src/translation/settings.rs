//! Settings of translation.

use std::path::PathBuf;
use std::sync::Arc;

use taper_decoding::{AlignedAttention, DecodingConfig};
use taper_metrics::Tokenizer;

use super::{OverlongRule, Terms};
use crate::config::RunConfig;

/// Settings for translating lines.
#[derive(Debug, Clone)]
pub struct TranslationSettings {
    /// The search.
    pub decoding: DecodingConfig,
    /// Treatment of a line with too many tokens.
    pub overlong: OverlongRule,
    /// Largest number of tokens of a line; the limit is lower if the model has fewer positions.
    pub max_source_tokens: usize,
    /// Runs or checkpoint folders that form an ensemble with the run; they must have its tokenizer.
    pub ensemble: Vec<PathBuf>,
    /// Attention weights that serve as an alignment.
    pub aligned_by: AlignedAttention,
    /// Terms with prescribed translations.
    pub terms: Option<Arc<Terms>>,
    /// Source and target language.
    pub languages: [String; 2],
    /// BLEU's tokenizer, for the choice among candidates.
    pub tokenizer: Tokenizer,
    /// Results that are computed in addition to the text of the best translation.
    pub detail: TranslationDetail,
}

impl TranslationSettings {
    /// Settings for a run of the recipe `config`: its search; lines longer than in training are
    /// divided.
    #[must_use]
    pub fn from_config(config: &RunConfig) -> Self {
        Self {
            decoding: config.decoding.clone(),
            overlong: OverlongRule::Split,
            max_source_tokens: config.data.cleaning.max_tokens,
            ensemble: Vec::new(),
            aligned_by: aligned_by(config),
            terms: None,
            languages: [&config.data.source_language, &config.data.target_language]
                .map(Clone::clone),
            tokenizer: config.evaluation.tokenize,
            detail: TranslationDetail::default(),
        }
    }
}

/// Attention weights that serve as an alignment in a run of the recipe `config`: those of the head
/// that was trained with alignments, if there is one.
#[must_use]
fn aligned_by(config: &RunConfig) -> AlignedAttention {
    let guided = config.training.guided_alignment.guidance();
    guided.map_or_else(AlignedAttention::default, |guided| AlignedAttention {
        layer: guided.layer,
        head: Some(guided.head),
    })
}

/// Results for a line in addition to its best translation. What is not requested is not computed,
/// or not kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct TranslationDetail {
    /// True to return every translation, not only the best.
    pub all: bool,
    /// True to align each translation.
    pub alignments: bool,
    /// True if an alignment has tokens and weights, in addition to pairs.
    pub weights: bool,
}

/// Settings of a search for the best translation alone. A beam then returns only its first result;
/// samples all remain, because the best of them is chosen later.
pub fn for_the_best(config: &DecodingConfig) -> DecodingConfig {
    let n_best = if config.sampling.is_active() { config.n_best } else { 1 };
    DecodingConfig { n_best, ..config.clone() }
}
