//! PARITY of n bits in one layer, with weights that depend on n.
//!
//! A head without scores averages the bits before the end, and n + 1 of these averages are the
//! number of ones. Hats of three units, `|c − k| < 1` for each odd k, make its parity. So one layer
//! computes PARITY of a given length, in units as many as bits; what no layer does is to compute it
//! at every length with the same bounded weights (Hahn 2020, section 6).

use crate::TheoryError;
use crate::blueprint::{Blueprint, Decoder, Form, Head, Layer, Unit};

/// Token behind the bits 0 and 1.
pub const END_OF_BITS: usize = 2;

/// Assembles a decoder of one layer that answers [`END_OF_BITS`] after `length` bits with their
/// parity.
///
/// # Errors
/// If the model would be too large.
pub fn parity_decoder(length: usize) -> Result<Decoder, TheoryError> {
    let mut blueprint = Blueprint::new(3, 0);
    let (bit, share, parity) = (blueprint.column(), blueprint.column(), blueprint.column());
    blueprint.token(1, bit, 1.0);
    let ones = || Form::from(share) * (length + 1) as f64;
    let hats = (1..=length).step_by(2).flat_map(|odd| {
        [(-1.0, 1.0), (0.0, -2.0), (1.0, 1.0)]
            .map(|(shift, weight)| Unit::relu(ones() - (odd as f64 + shift)).adds(parity, weight))
    });
    let units = hats.collect();
    blueprint.layer(Layer { heads: vec![Head::default().value(bit, share)], units });
    blueprint.logit(0, 0.5);
    blueprint.logit(1, parity);
    blueprint.logit(END_OF_BITS, -1.0);
    blueprint.decoder()
}
