//! PARITY of n bits in one layer, with weights that depend on n.
//!
//! A head whose scores are all zero averages the bits and the end token, so that n + 1 times the
//! average is the number of ones, c. For each odd k, three units compute the function
//! max(0, 1 − |c − k|), which is 1 if c = k, and 0 for every other integer c. The sum of these
//! functions is the parity of c. So one layer computes PARITY of a given length n, with about 1.5 n
//! units. But no layer computes it at every length with the same bounded weights (Hahn 2020,
//! section 6).

use crate::TheoryError;
use crate::blueprint::{Blueprint, Decoder, Form, Head, Layer, Unit};

/// Token after the last bit; tokens 0 and 1 are the bits.
pub const END_OF_BITS: usize = 2;

/// Assembles a decoder of one layer for texts of `length` bits and [`END_OF_BITS`]: its answer at
/// [`END_OF_BITS`] is the parity of the bits.
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
