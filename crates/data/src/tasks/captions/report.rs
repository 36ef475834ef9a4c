//! What a split of images with captions holds.

use serde::{Deserialize, Serialize};

use crate::ImageReport;

/// The data report of one split of images with captions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptionReport {
    /// The images.
    #[serde(flatten)]
    pub images: ImageReport,
    /// Captions of all images, those that are left out not counted.
    pub captions: u64,
    /// How many of them differ.
    pub different: usize,
    /// Captions with too many tokens.
    pub left_out: u64,
    /// Images that have no other.
    pub images_left_out: usize,
    /// Tokens of the different captions that are `<unk>`.
    pub unknown: u64,
    /// The hash of the tokenizer.
    pub tokenizer_hash: String,
}
