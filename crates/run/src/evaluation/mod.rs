//! How good translations are: test sets, decoded and scored.

mod scores;
mod test_sets;

pub use scores::Scores;
pub use test_sets::TestResult;
pub(crate) use test_sets::save;
