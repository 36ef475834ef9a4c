//! Image classification: pictures, each of a class.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod report;
