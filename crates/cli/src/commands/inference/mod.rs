//! The commands that use models, except for translation.

pub(super) mod evaluate;
pub(super) mod generate;
pub(super) mod predict;
pub(super) mod score;
