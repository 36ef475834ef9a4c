//! Training text that models make, and pipelines of such steps.

#[path = "../common/mod.rs"]
mod common;

mod commands;
mod pipelines;
