//! Data for image classification: each picture has a class.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod report;
