//! Search algorithms, which turn the rows of logits that a model predicts into hypotheses (finished
//! translations).

pub(crate) mod beam;
pub(crate) mod candidates;
pub(crate) mod constraints;
mod generate;
pub(crate) mod greedy;
pub(crate) mod hypothesis;
pub(crate) mod phrases;
pub(crate) mod sampling;
mod sentence_beam;
pub(crate) mod stepwise;

pub use beam::{beam_search, beam_tree};
pub use generate::generate;
pub use greedy::greedy_search;
pub use hypothesis::Hypothesis;
pub use sentence_beam::{BeamFate, BeamNode};
pub use stepwise::NewToken;
