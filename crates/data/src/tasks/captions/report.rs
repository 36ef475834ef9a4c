//! Report on the content of a split of images with captions.

use serde::{Deserialize, Serialize};

use crate::ImageReport;

/// Data report of one split of images with captions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptionReport {
    /// Report on the images.
    #[serde(flatten)]
    pub images: ImageReport,
    /// Number of captions of all images. Omitted captions are not counted.
    pub captions: u64,
    /// Number of different captions.
    pub different: usize,
    /// Number of captions that were omitted because they have too many tokens.
    pub left_out: u64,
    /// Number of images that were omitted because all their captions were omitted.
    pub images_left_out: usize,
    /// Number of `<unk>` tokens in the distinct captions.
    pub unknown: u64,
    /// The hash of the tokenizer.
    pub tokenizer_hash: String,
}
