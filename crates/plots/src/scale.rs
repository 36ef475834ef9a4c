//! Scale of drawings.

/// Number of drawing units in a CSS pixel.
pub(crate) const SCALE: i32 = 4;
