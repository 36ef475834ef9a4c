//! Report on the content of a split of images.

use serde::{Deserialize, Serialize};

use crate::BatchingReport;

/// Data report of one split of images.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageReport {
    /// Name of the split.
    pub split: String,
    /// Number of images.
    pub images: usize,
    /// Number of images of each class, in the order of the labels.
    pub of_classes: Vec<usize>,
    /// Height of each image in pixels, which is also its width.
    pub size: usize,
    /// Number of channels: 1 or 3.
    pub channels: usize,
    /// Sizes of batches. The patches of images are counted as tokens of the target.
    pub batching: BatchingReport,
    /// SHA-256 of the files, decompressed.
    pub text_hash: String,
}
