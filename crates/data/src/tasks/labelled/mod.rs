//! Classification: texts, each with a label; and tagging: words, each with a label.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod reader;
pub(crate) mod rows;
pub(crate) mod tagged;
