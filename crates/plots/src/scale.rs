//! Scale of drawings.

/// Drawing units in a CSS pixel.
pub(crate) const SCALE: i32 = 4;
