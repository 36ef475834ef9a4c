//! Data for question answering: the answer to a question is a span of the text that the question is
//! about.

pub(crate) mod config;
pub(crate) mod squad;
pub(crate) mod windows;
