//! Ways to resize pictures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// To which height and width pictures are resized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Resize {
    /// To the height and width of `resize_to`, whatever the shape.
    Stretch,
    /// In its shape, so that the shorter edge becomes the first number of `resize_to`; a second
    /// number is the most of the longer edge, for which the shorter gives way.
    ShortestEdge,
    /// In its shape, as large as it fits into the height and width of `resize_to`.
    Fit,
    /// Not at all.
    None,
}
