//! In-context regression: each linear function is known by some of its points.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod functions;
pub(crate) mod report;
