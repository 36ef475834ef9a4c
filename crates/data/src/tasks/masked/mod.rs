//! Masked language modelling: running text of which some tokens are hidden, anew in each epoch.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod hiding;
pub(crate) mod prepare;
