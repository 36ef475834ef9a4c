//! Parts of models: embeddings, positions, attention, layers, stacks, output heads.
//!
//! Each part states its [cost](crate::Cost) in the code that builds it.

pub(crate) mod attention;
pub(crate) mod embedding;
pub(crate) mod encoders;
pub(crate) mod feed_forward;
pub(crate) mod gated_convolution;
pub(crate) mod guidance;
pub(crate) mod head;
pub(crate) mod linear;
pub(crate) mod norm;
pub(crate) mod places;
pub mod positions;
pub(crate) mod recurrent;
pub(crate) mod stack;
pub(crate) mod weight;
