//! Replacement for the module `png` in a build without the cargo feature `png`.

use crate::error::PlotError;

/// Refuses to draw a PNG.
///
/// # Errors
/// Always [`PlotError::WithoutPng`].
pub(crate) fn picture(_svg: &str, _size: (u32, u32), _zoom: f32) -> Result<Vec<u8>, PlotError> {
    Err(PlotError::WithoutPng)
}
