//! Contents of a split of images with captions.

use serde::{Deserialize, Serialize};

use crate::ImageReport;

/// Data report of one split of images with captions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptionReport {
    /// The images.
    #[serde(flatten)]
    pub images: ImageReport,
    /// Number of captions of all images, without those that are left out.
    pub captions: u64,
    /// Number of different captions.
    pub different: usize,
    /// Number of captions left out for too many tokens.
    pub left_out: u64,
    /// Number of images left out for lack of another caption.
    pub images_left_out: usize,
    /// Tokens of the different captions that are `<unk>`.
    pub unknown: u64,
    /// The hash of the tokenizer.
    pub tokenizer_hash: String,
}
