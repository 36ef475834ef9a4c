//! Encoders of texts, and of images by attention or by convolutions.

pub(crate) mod convolutional;
pub(crate) mod text;
pub(crate) mod vision;
