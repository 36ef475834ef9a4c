//! Kinds of requests that a run (a trained model) answers. Other requests are refused before they
//! are queued.

use std::any::TypeId;

use super::work::Verb;
use crate::error::Refusal;

/// Kinds of requests that a run answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Verbs {
    /// Action of the model in messages: a verb phrase in the third person, such as `translates`.
    does: &'static str,
    kinds: Vec<TypeId>,
}

impl Verbs {
    /// Makes the set of the request types `kinds`. `does` is the action of the model in messages: a
    /// verb phrase in the third person, such as `translates`.
    pub(super) fn new(does: &'static str, kinds: Vec<TypeId>) -> Self {
        Self { does, kinds }
    }

    /// Refuses requests of a kind that the run does not answer.
    ///
    /// # Errors
    /// When the run does not answer requests of kind `V`; the message is for the client.
    pub(super) fn require<V: Verb>(&self) -> Result<(), Refusal> {
        if self.kinds.contains(&TypeId::of::<V>()) {
            return Ok(());
        }
        let does = self.does;
        Err(Refusal::Unfit(format!("the run {does}, and nothing else: see /api/runs")))
    }
}
