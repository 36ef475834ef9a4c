//! The interface through which a search advances a model by one token at a time, and its
//! implementations.

mod ensemble;
mod numbered;
mod special;
pub(crate) mod step;
mod transformer;

pub use ensemble::Ensemble;
pub use numbered::NumberedSources;
pub use special::WithSpecialIds;
pub use step::StepModel;
