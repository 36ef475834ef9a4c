//! The angles of rotary position embedding (Su et al. 2021, section 3.2).

use std::ops::Range;

/// The base of the angles.
const THETA: f64 = 10_000.0;

/// Cosines and sines of some positions: `(positions, Dh/2)` each.
pub(crate) fn angles(positions: Range<usize>, head: usize) -> (Vec<f64>, Vec<f64>) {
    let half = head / 2;
    let angle = |n: usize| (n / half) as f64 * THETA.powf(-2.0 * (n % half) as f64 / head as f64);
    let places = positions.start * half..positions.end * half;
    (places.clone().map(|n| angle(n).cos()).collect(), places.map(|n| angle(n).sin()).collect())
}
