//! Options that several commands have.

mod items;
mod search;
mod weights;

pub(crate) use items::{ItemRules, SpecialTokenRule, SpecialTokens, Strict};
pub(crate) use search::{Control, Search};
pub(crate) use weights::{Checkpoint, Loading, Overrides, Weights};
