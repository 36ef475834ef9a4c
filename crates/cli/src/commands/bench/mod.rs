//! `taper bench`: speed and memory of training, of decoding, of attention and of the matrix
//! kernels.

pub(crate) mod attention;
mod cores;
pub(crate) mod decode;
pub(crate) mod kernels;
pub(crate) mod train;
