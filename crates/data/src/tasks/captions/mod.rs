//! Images with captions. The captions come from a table, or are sentences of a small grammar that
//! are true of the image. A model learns to write captions, or to match them with images.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod grammar;
pub(crate) mod report;
