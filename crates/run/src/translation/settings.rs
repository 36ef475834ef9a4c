//! How lines are translated.

use std::path::PathBuf;

use taper_decoding::{AlignedAttention, DecodingConfig};

use super::OverlongRule;
use crate::config::RunConfig;

/// How lines are translated.
#[derive(Debug, Clone)]
pub struct TranslationSettings {
    /// The search.
    pub decoding: DecodingConfig,
    /// What becomes of a line with too many tokens.
    pub overlong: OverlongRule,
    /// The most tokens of a line. A model that has positions for fewer allows no more than those.
    pub max_source_tokens: usize,
    /// Runs or checkpoint folders that decide together with the run; they need its tokenizer.
    pub ensemble: Vec<PathBuf>,
    /// Whose weights are read as an alignment.
    pub aligned_by: AlignedAttention,
    /// What is computed beside the text of the best translation.
    pub detail: Detail,
}

impl TranslationSettings {
    /// Those of a run of the recipe `config`: its search, and lines in parts of the length that it
    /// was trained on.
    #[must_use]
    pub fn of(config: &RunConfig) -> Self {
        Self {
            decoding: config.decoding.clone(),
            overlong: OverlongRule::Split,
            max_source_tokens: config.data.cleaning.max_tokens,
            ensemble: Vec::new(),
            aligned_by: aligned_by(config),
            detail: Detail::default(),
        }
    }
}

/// Whose weights are read as an alignment of a run of the recipe `config`: those of the head that
/// was guided, if one was.
#[must_use]
fn aligned_by(config: &RunConfig) -> AlignedAttention {
    let guided = config.training.guided_alignment.guidance();
    guided.map_or_else(AlignedAttention::default, |guided| AlignedAttention {
        layer: guided.layer,
        head: Some(guided.head),
    })
}

/// What is computed of a line beside its best translation. The rest is not computed, or not kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct Detail {
    /// Every translation that is found, not only the best.
    pub all: bool,
    /// The alignment of each.
    pub alignments: bool,
    /// Its tokens and weights too, not only its pairs.
    pub weights: bool,
}

/// The same settings for the best translation alone: the first that a search returns, and the best
/// of all that are drawn.
pub fn for_the_best(config: &DecodingConfig) -> DecodingConfig {
    let n_best = if config.sampling.is_active() { config.n_best } else { 1 };
    DecodingConfig { n_best, ..config.clone() }
}
