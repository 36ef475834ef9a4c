//! Data of a training: batches, and what is reported of them.

pub(super) mod batches;
pub(super) mod report;
mod summary;

pub use summary::DataSummary;
