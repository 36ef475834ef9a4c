//! Description of a split of linear functions.

use serde::{Deserialize, Serialize};

use crate::BatchingReport;

/// The data report of one split of linear functions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RegressionReport {
    /// Name of the split.
    pub split: String,
    /// True if each epoch has different functions.
    pub drawn_anew: bool,
    /// Number of functions; for training, in each epoch.
    pub functions: usize,
    /// Number of dimensions of an x.
    pub dimensions: usize,
    /// Number of points of a function.
    pub points: usize,
    /// Standard deviation of the noise on each y.
    pub noise: f64,
    /// Sizes of batches. Each x and each y is one token, and is counted as a token of the target.
    pub batching: BatchingReport,
}
