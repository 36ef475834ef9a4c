//! Pipelines: a file of steps that need each other, from corpora to scored models.
//!
//! A [`Pipeline`] is read and checked as a whole: unknown steps, circles and missing files are
//! found before anything starts. Each step is a command of the program ([`Step::arguments`]) with a
//! folder of its own; the caller runs the commands and marks finished steps ([`Pipeline::finish`]),
//! so that a pipeline continues where it was stopped, even by a kill.

mod arguments;
mod file;
mod steps;

pub use file::Pipeline;
pub use steps::{Status, Step};
