//! Operations of a state-space layer (Gu and Dao 2023, "Mamba: Linear-Time Sequence Modeling with
//! Selective State Spaces"): a short convolution over time, and a scan.

mod backward;
mod convolution;
mod forward;
mod lanes;

pub use convolution::{causal_convolution, causal_convolution_after};

use crate::composed;
use crate::host::{Host, for_float};
use crate::spec::attention::kinds::{ScanInputs, ScanSpec};
use crate::tape::{Tape, is_fused};
use candle_core::{Result, Tensor};
use forward::{Operands, Ran};

/// Computes the selective scan
///
/// ```text
/// Δ = softplus(delta),   A = −exp(log_decay)
/// h_t = exp(Δ_t A) h_(t−1) + Δ_t B_t u_t,   y_t = (C_t h_t + D u_t) · silu(z_t)
/// ```
///
/// in each channel separately, where the state h has S numbers (Gu and Dao 2023, equation 2a and
/// algorithm 2). The other symbols are fields of [`ScanInputs`]: u is `x`, B and C are the halves
/// of `in_out`, D is `skip`, and z is the second half of `gated`. A is discretised exactly and B by
/// Euler's rule, as in the authors' implementation. If Δ, B and C do not depend on the token, this
/// is algorithm 1, a diagonal S4 (Gu et al. 2022, "On the Parameterization and Initialization of
/// Diagonal State Space Models").
///
/// The states of a sequence stay in registers, for sixteen channels at a time; channels and
/// sequences are processed in parallel. The state before every thirty-second token is kept for the
/// backward pass, which recomputes the states between them (section 3.3.2 of the paper).
///
/// # Shapes
/// The inputs of [`ScanInputs`] → `(N, E)`.
///
/// # Errors
/// If the shapes disagree.
pub fn selective_scan(
    tape: Option<&Tape>,
    inputs: ScanInputs<'_>,
    spec: &ScanSpec,
) -> Result<Tensor> {
    let shape = inputs.shape(spec)?;
    if !is_fused(tape, &inputs.all())? {
        return composed::on_tape(tape, "scan", &inputs.all(), |v| {
            let inputs = ScanInputs {
                x: &v[0],
                delta: &v[1],
                in_out: &v[2],
                log_decay: &v[3],
                skip: &v[4],
                gated: &v[5],
            };
            Ok(composed::selective_scan(inputs, spec, None)?.0)
        });
    }
    crate::profile::time("scan", || {
        let hosts = hosts(&inputs)?;
        for_float!(inputs.x, T => {
            let operands = Operands::<T>::new(&hosts, shape, spec)?;
            let Ran { out, kept, .. } = forward::run(&operands, None, tape.is_some());
            let out = Tensor::from_vec(out, (shape.tokens, shape.channels), inputs.x.device())?;
            if let Some(tape) = tape {
                backward::record::<T>(tape, inputs, (shape, spec), kept, &out)?;
            }
            Ok(out)
        })
    })
}

/// Computes [`selective_scan`] without gradients. It begins with the states `state`, such as those
/// after earlier tokens, or with zeros if this is `None`. Also returns the states after the last
/// token of each sequence.
///
/// # Shapes
/// `state (B, E·S)` for B sequences → `(N, E)`, `(B, E·S)`.
///
/// # Errors
/// If the shapes disagree.
pub fn selective_scan_after(
    inputs: ScanInputs<'_>,
    spec: &ScanSpec,
    state: Option<&Tensor>,
) -> Result<(Tensor, Tensor)> {
    let shape = inputs.shape(spec)?;
    let states = (spec.lengths.len(), shape.channels * shape.states);
    if let Some(state) = state.filter(|state| state.dims() != [states.0, states.1]) {
        candle_core::bail!("scan: states {:?}, but {states:?} are expected", state.shape());
    }
    if !is_fused(None, &inputs.all())? {
        return composed::selective_scan(inputs, spec, state);
    }
    let hosts = hosts(&inputs)?;
    let state = state.map(Host::new).transpose()?;
    for_float!(inputs.x, T => {
        let operands = Operands::<T>::new(&hosts, shape, spec)?;
        let state = state.as_ref().map(Host::elements::<T>).transpose()?;
        let Ran { out, last, .. } = forward::run(&operands, state, false);
        let device = inputs.x.device();
        let out = Tensor::from_vec(out, (shape.tokens, shape.channels), device)?;
        Ok((out, Tensor::from_vec(last, states, device)?))
    })
}

fn hosts<'a>(inputs: &ScanInputs<'a>) -> Result<[Host<'a>; 6]> {
    let [x, delta, in_out, log_decay, skip, gated] = inputs.all();
    Ok([
        Host::new(x)?,
        Host::new(delta)?,
        Host::new(in_out)?,
        Host::new(log_decay)?,
        Host::new(skip)?,
        Host::new(gated)?,
    ])
}
