//! Images beside text: captions that a model writes, and which text belongs to which image.

mod describe;
mod matching;

pub(crate) use describe::{caption_search, describe};
pub use describe::{describe_images, describe_pixels};
pub(crate) use matching::{Placed, PlacedLabels, recalls};
pub use matching::{match_images, match_pixels};
