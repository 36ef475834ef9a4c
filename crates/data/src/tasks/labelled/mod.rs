//! Data for classification, in which each text has a label, and for tagging, in which each word has
//! a label.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod reader;
pub(crate) mod rows;
pub(crate) mod tagged;
