//! The commands that make new weights from existing ones: averaged, merged, rounded, or in other
//! formats.

pub(super) mod average;
pub(super) mod exchange;
#[cfg(feature = "hub")]
pub(super) mod hub;
pub(super) mod merge;
pub(super) mod page;
pub(super) mod quantize;
pub(super) mod shortlist;
