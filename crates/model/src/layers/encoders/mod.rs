//! Encoders of what is read: texts, and images by attention or by convolutions.

pub(crate) mod convolutional;
pub(crate) mod text;
pub(crate) mod vision;
