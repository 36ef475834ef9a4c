//! A nonlinearity with dropout as a separate operation. Linear layers that do not end in a single
//! matrix product need it, such as layers with low-rank adapters.

use crate::composed::{self, on_tape};
use crate::float::Float;
use crate::host::{Host, for_float};
use crate::nn::linear::{Slopes, activate, deactivate};
use crate::parallel::CHUNK;
use crate::profile::{even, region};
use crate::spec::{Activation, Dropout};
use crate::tape::{Slot, Tape, is_fused};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Computes `dropout(activation(x))`. The index of an element in `x` is also its index in the
/// dropout mask.
///
/// # Shapes
/// `x` → a tensor of the same shape.
///
/// # Errors
/// If the device has no memory left.
pub fn activation(
    tape: Option<&Tape>,
    x: &Tensor,
    activation: Activation,
    dropout: Dropout,
) -> Result<Tensor> {
    if activation == Activation::Identity && !dropout.is_active() {
        return Ok(x.clone());
    }
    if !is_fused(tape, &[x])? {
        return on_tape(tape, "activation", &[x], |v| {
            composed::activation(&v[0], activation, dropout)
        });
    }
    crate::profile::time(
        "activation",
        || for_float!(x, T => forward::<T>(tape, x, activation, dropout)),
    )
}

fn forward<T: Float>(
    tape: Option<&Tape>,
    x: &Tensor,
    activation: Activation,
    dropout: Dropout,
) -> Result<Tensor> {
    let mut values = Host::new(x)?.elements::<T>()?.to_vec();
    let mut slopes = vec![T::default(); if tape.is_some() { values.len() } else { 0 }];
    let pieces = values.len().div_ceil(CHUNK);
    region(even(pieces), || match tape {
        Some(_) => {
            let slopes = slopes.par_chunks_mut(CHUNK);
            values.par_chunks_mut(CHUNK).zip(slopes).enumerate().for_each(
                |(chunk, (values, slopes))| {
                    activate(values, slopes, chunk * CHUNK, activation, dropout);
                },
            );
        }
        None => values.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, values)| {
            activate(values, &mut [], chunk * CHUNK, activation, dropout);
        }),
    });
    let out = Tensor::from_vec(values, x.shape(), x.device())?;
    if let Some(tape) = tape {
        let slot = Slot::from(x);
        tape.record::<T>("activation", &[x], &out, move |mut adjoint, adjoints| {
            region(even(pieces), || {
                let slopes = slopes.par_chunks(CHUNK);
                adjoint.par_chunks_mut(CHUNK).zip(slopes).enumerate().for_each(
                    |(chunk, (adjoint, slopes))| {
                        deactivate(Slopes::Kept(slopes), adjoint, chunk * CHUNK, dropout);
                    },
                );
            });
            adjoints.give(slot, adjoint)
        })?;
    }
    Ok(out)
}
