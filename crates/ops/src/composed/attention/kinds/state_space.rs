//! Operations of a state-space layer (Mamba), composed of Candle's operations: a short convolution
//! over time, and a scan.

use crate::composed::attention::{pad, unpad};
use crate::composed::wide;
use crate::spec::attention::kinds::{ConvolutionSpec, ScanInputs, ScanSpec};
use candle_core::{D, Result, Tensor};

/// Computes a convolution over time; see [`crate::causal_convolution`] and, for the rows `before`
/// the first token, [`crate::causal_convolution_after`].
///
/// # Shapes
/// The shapes of [`crate::causal_convolution`].
///
/// # Errors
/// If the shapes disagree.
pub fn causal_convolution(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    spec: &ConvolutionSpec,
    before: Option<&Tensor>,
) -> Result<Tensor> {
    let (channels, count) = weight.dims2()?;
    let (weight, bias) = (wide(weight)?, wide(bias)?);
    let padded = in_order(&wide(x)?.narrow(1, 0, channels)?, &spec.lengths, spec.reverse)?;
    let (batch, longest, _) = padded.dims3()?;
    let before = match before {
        Some(before) => wide(before)?.reshape((batch, count - 1, channels))?,
        None => Tensor::zeros((batch, count - 1, channels), padded.dtype(), padded.device())?,
    };
    let padded = Tensor::cat(&[before, padded], 1)?; // (B, K − 1 + T, E)
    let mut sum = bias.reshape((1, 1, channels))?.broadcast_as((batch, longest, channels))?;
    for tap in 0..count {
        let weight = weight.narrow(1, tap, 1)?.reshape((1, 1, channels))?;
        sum = (sum + padded.narrow(1, tap, longest)?.broadcast_mul(&weight)?)?;
    }
    let sum = sum.contiguous()?;
    let out = (&sum * sigmoid(&sum)?)?;
    out_of_order(&out, &spec.lengths, spec.reverse)?.to_dtype(x.dtype())
}

/// Computes a scan over time; see [`crate::selective_scan`] and, for an initial `state`,
/// [`crate::selective_scan_after`].
///
/// All times are computed at once by an associative scan. A step is a pair (a, b) that maps a state
/// h to a·h + b. Two consecutive steps are equivalent to the single step (a₂a₁, a₂b₁ + b₂). Each
/// round joins every step with the step just before it. The joined steps are twice as long
/// (Blelloch 1990, "Prefix Sums and Their Applications", section 1.4; Hillis and Steele 1986). A
/// sequence of n tokens takes ⌈log₂ n⌉ rounds.
///
/// # Shapes
/// The shapes of [`crate::selective_scan_after`].
///
/// # Errors
/// If the shapes disagree.
pub fn selective_scan(
    inputs: ScanInputs<'_>,
    spec: &ScanSpec,
    state: Option<&Tensor>,
) -> Result<(Tensor, Tensor)> {
    let shape = inputs.shape(spec)?;
    let (channels, states) = (shape.channels, shape.states);
    let ordered = |x: &Tensor| in_order(&wide(x)?, &spec.lengths, spec.reverse);
    let x = ordered(inputs.x)?; // (B, T, E)
    let (batch, longest, _) = x.dims3()?;
    let gate = ordered(&inputs.gated.narrow(1, channels, channels)?)?;
    let decay = wide(inputs.log_decay)?.reshape((channels, states))?.exp()?.neg()?;
    let sides = wide(inputs.in_out)?;
    // `into` and `from`, the matrices B and C of the state space, have the shape (N or 1, T or 1,
    // E or 1, S) for N sequences.
    let (delta, into, from) = if spec.selective {
        let sides = in_order(&sides, &spec.lengths, spec.reverse)?;
        let side = |first| sides.narrow(2, first, states)?.unsqueeze(2);
        (ordered(inputs.delta)?, side(0)?, side(states)?)
    } else {
        let sides = sides.reshape((1, 1, channels, 2 * states))?;
        let delta = wide(inputs.delta)?.reshape((1, 1, channels))?;
        let delta = delta.broadcast_as((batch, longest, channels))?.contiguous()?;
        (delta, sides.narrow(3, 0, states)?, sides.narrow(3, states, states)?)
    };
    // Beyond the end of a sequence, step sizes are zero, so that states do not change.
    let is_real: Vec<f32> = spec
        .lengths
        .iter()
        .flat_map(|&length| (0..longest).map(move |at| f32::from(at < length)))
        .collect();
    let is_real = Tensor::from_vec(is_real, (batch, longest, 1), x.device())?;
    let delta = softplus(&delta)?.broadcast_mul(&is_real.to_dtype(delta.dtype())?)?;
    let mut powers = delta.unsqueeze(D::Minus1)?.broadcast_mul(&decay)?.exp()?; // (B, T, E, S)
    let scaled = (&delta * &x)?.unsqueeze(D::Minus1)?;
    let mut sums = scaled.broadcast_mul(&into)?;
    let mut by = 1;
    while by < longest {
        let earlier = |x: &Tensor, fill: &Tensor| {
            Tensor::cat(&[&fill.narrow(1, 0, by)?, &x.narrow(1, 0, longest - by)?], 1)
        };
        sums = (&sums + (&powers * earlier(&sums, &sums.zeros_like()?)?)?)?;
        powers = (&powers * earlier(&powers, &powers.ones_like()?)?)?;
        by *= 2;
    }
    if let Some(state) = state {
        let state = wide(state)?.reshape((batch, 1, channels, states))?;
        sums = (sums + powers.broadcast_mul(&state)?)?;
    }
    let skipped = x.broadcast_mul(&wide(inputs.skip)?.reshape(channels)?)?;
    let out = (sums.broadcast_mul(&from)?.sum(D::Minus1)? + skipped)?;
    let out = (out * (&gate * sigmoid(&gate)?)?)?;
    let last = match longest {
        0 => Tensor::zeros((batch, channels * states), x.dtype(), x.device())?,
        _ => sums.narrow(1, longest - 1, 1)?.reshape((batch, channels * states))?,
    };
    let out = out_of_order(&out, &spec.lengths, spec.reverse)?;
    Ok((out.to_dtype(inputs.x.dtype())?, last.contiguous()?))
}

/// Computes `ln(1 + eˣ)`.
fn softplus(x: &Tensor) -> Result<Tensor> {
    let size = x.abs()?;
    x.relu()? + (size.neg()?.exp()? + 1.0)?.log()?
}

fn sigmoid(x: &Tensor) -> Result<Tensor> {
    (x.neg()?.exp()? + 1.0)?.recip()
}

/// Pads the rows of each sequence with zeros, in the order in which they are read: `(N, W)` →
/// `(B, T, W)`.
fn in_order(x: &Tensor, lengths: &[usize], reverse: bool) -> Result<Tensor> {
    pad(&turned(x, lengths, reverse)?, lengths)
}

/// Removes the padding and restores the original order of the rows: `(B, T, W)` → `(N, W)`.
fn out_of_order(x: &Tensor, lengths: &[usize], reverse: bool) -> Result<Tensor> {
    let (batch, longest, width) = x.dims3()?;
    let packed = unpad(&x.contiguous()?.reshape((batch * longest, width))?, lengths, longest)?;
    turned(&packed, lengths, reverse)
}

/// Reverses the rows of each sequence if `reverse` is set.
fn turned(x: &Tensor, lengths: &[usize], reverse: bool) -> Result<Tensor> {
    if !reverse {
        return x.contiguous();
    }
    let mut first = 0;
    let of_sequence = |&length: &usize| {
        first += length as u32;
        (first - length as u32..first).rev()
    };
    let rows: Vec<u32> = lengths.iter().flat_map(of_sequence).collect();
    let rows = Tensor::from_vec(rows, x.dim(0)?, x.device())?;
    x.contiguous()?.index_select(&rows, 0)
}
