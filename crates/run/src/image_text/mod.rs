//! Images beside text: captions that a model writes, and which text belongs to which image.

mod describe;
mod matching;

pub use describe::describe_images;
pub(crate) use describe::{caption_search, describe};
pub use matching::match_images;
pub(crate) use matching::{Placed, PlacedLabels, recalls};
