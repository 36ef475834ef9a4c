//! Images with captions, which come from a table or are sentences of a small grammar that are true
//! of an image. A model learns to write them, or to match them with images.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod grammar;
pub(crate) mod report;
