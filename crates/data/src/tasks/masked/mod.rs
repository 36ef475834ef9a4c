//! Masked language modelling: running text with hidden tokens, redrawn in each epoch.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod hiding;
pub(crate) mod prepare;
