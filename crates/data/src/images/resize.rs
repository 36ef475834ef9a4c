//! Rules for the size of resized pictures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Height and width to which pictures are resized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Resize {
    /// The height and width of `resize_to`, for any shape.
    Stretch,
    /// The shorter edge becomes the first number of `resize_to`, and the shape stays. A second
    /// number is the upper limit of the longer edge; to stay below it, both edges are reduced.
    ShortestEdge,
    /// The largest size within the height and width of `resize_to` that keeps the shape.
    Fit,
    /// The original size.
    None,
}
