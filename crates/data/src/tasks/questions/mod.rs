//! Questions about texts, each answered by a span of its text.

pub(crate) mod config;
pub(crate) mod squad;
pub(crate) mod windows;
