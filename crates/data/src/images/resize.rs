//! Rules for the size to which a picture is resized.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Height and width to which pictures are resized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Resize {
    /// Resizes to the height and width of `resize_to`, whatever the shape of the picture.
    Stretch,
    /// Resizes so that the shorter edge has the length that is the first number of `resize_to`. The
    /// ratio of the edges is kept. A second number limits the longer edge; if it would be longer,
    /// both edges are reduced.
    ShortestEdge,
    /// Resizes to the largest size within the height and width of `resize_to`. The ratio of the
    /// edges is kept.
    Fit,
    /// Keeps the original size.
    None,
}
