//! Models as a search sees them: rows that advance by one token at a time.

mod ensemble;
mod numbered;
mod special;
pub(crate) mod step;
mod transformer;

pub use ensemble::Ensemble;
pub use numbered::NumberedSources;
pub use special::WithSpecialIds;
pub use step::StepModel;
