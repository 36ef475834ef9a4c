//! Tests of training text that models make, and of pipelines that make it.

#[path = "../common/mod.rs"]
mod common;

mod commands;
mod pipelines;
mod students;
