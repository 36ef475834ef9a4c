//! Masked language modelling: tokens of running text are hidden, others in each epoch.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod hiding;
pub(crate) mod prepare;
