//! Questions about texts. The answer to a question is a span of its text.

pub(crate) mod config;
pub(crate) mod squad;
pub(crate) mod windows;
