//! How good translations are: test sets, decoded and scored.

mod scores;
mod test_sets;

pub use scores::TextScores;
pub use test_sets::TestSetResult;
pub(crate) use test_sets::save;
