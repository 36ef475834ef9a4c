//! The commands that show attention.

pub(crate) mod align;
pub(crate) mod explain;
mod grid;
pub(crate) mod positions;
pub(crate) mod prune;
pub(crate) mod view;
