//! `taper bench`: speed and memory of training, of decoding, of attention, of the matrix kernels,
//! and of training over a network.

pub(crate) mod attention;
mod cores;
pub(crate) mod decode;
pub(crate) mod kernels;
pub(crate) mod network;
pub(crate) mod train;
