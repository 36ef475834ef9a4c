//! The interface through which a search advances a model by one token at a time, and its
//! implementations.

pub(crate) mod columns;
mod ensemble;
mod numbered;
mod special;
pub(crate) mod step;
mod transformer;

pub use ensemble::{Ensemble, EnsembleState};
pub use numbered::NumberedSources;
pub use special::WithSpecialIds;
pub use step::StepModel;
