//! In-context regression: linear functions, each known by some of its points.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod functions;
pub(crate) mod report;
