//! Description of a split of linear functions.

use serde::{Deserialize, Serialize};

use crate::BatchingReport;

/// The data report of one split of linear functions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RegressionReport {
    /// The split.
    pub split: String,
    /// Whether each epoch has functions of its own.
    pub drawn_anew: bool,
    /// Functions: of training, those of an epoch.
    pub functions: usize,
    /// Numbers of an x.
    pub dimensions: usize,
    /// Points of a function.
    pub points: usize,
    /// The standard deviation of the noise on each y.
    pub noise: f64,
    /// Sizes of batches. There is one stream, the target's; a token is an x or a y.
    pub batching: BatchingReport,
}
