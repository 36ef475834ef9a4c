//! Images with what is said of them: a table of captions, or sentences of a small grammar that are
//! true of an image. A model learns to write them, or to tell which belongs to which.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod grammar;
pub(crate) mod report;
