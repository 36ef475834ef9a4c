//! Data for language models: running text is one sequence of token ids, which is cut into blocks.

pub(crate) mod blocks;
pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod prepare;
pub(crate) mod reader;
pub(crate) mod report;
pub(crate) mod size;
