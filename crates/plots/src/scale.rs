//! Ratio between drawing units and CSS pixels.

/// Number of drawing units in one CSS pixel.
pub(crate) const SCALE: i32 = 4;
