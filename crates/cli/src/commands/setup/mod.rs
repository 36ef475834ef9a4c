//! The commands for newcomers and packagers.

pub(super) mod completions;
pub(super) mod docs;
pub(super) mod doctor;
pub(super) mod manual;
pub(super) mod quickstart;
