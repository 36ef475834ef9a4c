//! In-context regression: a model sees some points of a linear function, and predicts the value at
//! the next point.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod functions;
pub(crate) mod report;
