//! Image classification: pictures with a class each.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod report;
