//! Where models look: what their attention says of words and images.

mod picture;
mod symmetrization;
mod words;

pub use picture::{draw_attention, rolled_out};
pub use symmetrization::Symmetrization;
pub use words::{WordAligner, WordAlignerSettings, count_links};
