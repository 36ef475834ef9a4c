//! Masked language modelling: a model predicts hidden tokens of running text. Each epoch hides
//! different tokens.

pub(crate) mod config;
pub(crate) mod dataset;
pub(crate) mod hiding;
pub(crate) mod prepare;
