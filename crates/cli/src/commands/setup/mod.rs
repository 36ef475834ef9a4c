//! The commands that help with a first training, an installation or a package of the program.

pub(super) mod completions;
pub(super) mod docs;
pub(super) mod doctor;
pub(super) mod manual;
pub(super) mod quickstart;
