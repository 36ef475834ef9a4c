//! `taper bench`: speed and memory of training, decoding, attention, the matrix kernels, and
//! training over a network.

pub(crate) mod attention;
mod cores;
pub(crate) mod decode;
mod gpu_kernels;
pub(crate) mod kernels;
pub(crate) mod network;
pub(crate) mod train;

/// Rounds to a number of decimal digits.
fn round(value: f64, digits: i32) -> f64 {
    let factor = 10_f64.powi(digits);
    (value * factor).round() / factor
}
