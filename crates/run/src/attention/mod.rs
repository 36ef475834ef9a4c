//! Display of attention: weights between words, roles of heads, and attention to images. Also the
//! journey of an input through a model: all values on the way to the answer.

mod figures;
mod heads;
mod importance;
mod journey;
mod map;
mod picture;
mod positions;
mod reading;
mod rolling;
mod symmetrization;
mod view;
mod words;

pub(crate) use figures::mean_figure;
pub use figures::{attention_figure, attention_figures, rollout_figure};
pub use heads::{HeadProfile, profiles};
pub use importance::{HeadImportance, HeadLoss, head_importance};
pub use journey::{
    Answer, Branch, Choice, FoundTranslation, HeadInputs, Journey, Picture, Piece, StackNorms,
    StackVectors, VectorStep, journey_page,
};
pub use map::{AttentionLayer, AttentionMap, AttentionPart, Weights, shown_tokens};
pub use picture::{draw_attention, rolled_out};
pub use positions::{ByDistance, PositionFigures};
pub use reading::labelled_row;
pub(crate) use reading::require_words;
pub use rolling::rollout;
pub use symmetrization::Symmetrization;
pub use view::{ATTENTION_SCRIPT, attention_note, attention_page, attention_view};
pub use words::{WordAligner, WordAlignerSettings, count_links};
