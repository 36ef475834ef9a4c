//! Settings of a search that are one of a few choices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taper_ops::CacheType;

/// Base of the length penalty, for `n` tokens including `</s>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LengthPenaltyForm {
    /// `(5 + n) / 6` (Wu et al. 2016, equation 14).
    #[default]
    Gnmt,
    /// `n` itself, so that an exponent of 1 compares means, as in fairseq and CTranslate2.
    Power,
}

/// Type in which keys and values of earlier tokens are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CachePrecision {
    /// The type in which the model computes.
    #[default]
    Exact,
    /// bf16, rounded to the nearest.
    Bf16,
    /// int8, with a scale for each key and each value of a head.
    Int8,
}

impl CachePrecision {
    pub(super) fn is_exact(&self) -> bool {
        *self == Self::Exact
    }
}

impl From<CachePrecision> for CacheType {
    fn from(precision: CachePrecision) -> Self {
        match precision {
            CachePrecision::Exact => Self::Exact,
            CachePrecision::Bf16 => Self::Bf16,
            CachePrecision::Int8 => Self::Int8,
        }
    }
}

/// Rules by which a beam search stops and scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SearchRules {
    /// A sentence's search stops once nothing can change its result any more, or by `patience`; an
    /// end that is forced at the maximum length counts in the score.
    #[default]
    Exact,
    /// The rules of `generate` in the library Transformers, so that an imported model gives its
    /// results. `beam_size` finished hypotheses are kept. Once there are that many, the search
    /// stops when the best live hypothesis, scored at its present length, does not exceed the worst
    /// finished one; with `patience` above 0, also when `beam_size * patience` hypotheses have
    /// finished. Forced tokens cost nothing. A language model's repetition penalty also applies to
    /// tokens of the prompt.
    Transformers,
    /// The rules of `"transformers"` for a model without `forced_eos_token_id`: no end is forced at
    /// the maximum length; a translation stops there without an end.
    TransformersOpen,
}

impl SearchRules {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
