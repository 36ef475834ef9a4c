//! Data of a training: batches, and a report about them.

pub(super) mod batches;
pub(super) mod report;
mod summary;

pub use summary::DataSummary;
