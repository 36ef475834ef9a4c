//! Attention of a model on a text, for clients.

use taper_data::Tokenizer;
use taper_model::TranslationModel;
use taper_run::attention::AttentionMap;

use super::limits::within;
use super::work::{Verb, weight_of};
use crate::error::Refusal;
use crate::settings::Limits;

/// Compute the attention of every layer and head on a text, and on its translation by the run.
#[derive(Debug)]
pub(crate) struct Attend {
    pub(crate) text: String,
}

impl Verb for Attend {
    type Model = TranslationModel;
    type Answer = AttentionMap;

    fn weight(&self, _beam: usize) -> usize {
        weight_of(self.text.len())
    }
}

/// Compute the attention of every layer and head on a text and a translation.
#[derive(Debug)]
pub(crate) struct AttendPair {
    pub(crate) text: String,
    pub(crate) target: String,
}

impl Verb for AttendPair {
    type Model = TranslationModel;
    type Answer = AttentionMap;

    fn weight(&self, _beam: usize) -> usize {
        weight_of(self.text.len() + self.target.len())
    }
}

/// Refuses a request for attention of a model that does not translate, if its text exceeds the
/// limit.
pub(super) fn attends(
    tokenizer: &Tokenizer,
    Attend { text }: &Attend,
    limits: &Limits,
) -> Result<(), Refusal> {
    within(tokenizer, std::slice::from_ref(text), limits.attention_tokens)
}
