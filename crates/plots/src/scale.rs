//! Ratio between drawing units and CSS pixels. Drawing units are the coordinates of a drawing,
//! which is made larger than it is shown.

/// Number of drawing units in one CSS pixel.
pub(crate) const SCALE: i32 = 4;
