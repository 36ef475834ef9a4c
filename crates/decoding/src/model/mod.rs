//! Models as a search sees them: rows that advance by one token at a time.

mod ensemble;
pub(crate) mod step;
mod transformer;

pub use ensemble::Ensemble;
pub use step::StepModel;
