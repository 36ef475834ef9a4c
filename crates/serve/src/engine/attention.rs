//! Requests for the attention weights of a model on a text.

use taper_model::TranslationModel;
use taper_run::attention::AttentionMap;

use super::work::{Verb, weight_of};

/// Request for the attention weights of every layer and head on a text. A translation model also
/// translates the text, and the answer includes the attention on this translation.
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

/// Request for the attention weights of every layer and head on a text and its translation
/// `target`.
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
