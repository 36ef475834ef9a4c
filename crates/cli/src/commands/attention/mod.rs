//! The commands that show where models look.

pub(crate) mod align;
