//! Pipelines: a file with steps that depend on each other, from corpora to scored models.
//!
//! A [`Pipeline`] is read and checked as a whole, so that unknown steps, circles and missing files
//! are found before anything starts. Each step is a command of the program ([`Step::arguments`]),
//! and has its own folder. The caller runs the commands and marks finished steps
//! ([`Pipeline::finish`]). A pipeline that was stopped or killed continues at the first step
//! without a mark.

mod arguments;
mod file;
mod steps;

pub use file::Pipeline;
pub(crate) use file::absolute;
pub use steps::{Status, Step};
