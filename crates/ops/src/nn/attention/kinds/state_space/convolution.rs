//! A short convolution over time, with a filter for each channel, followed by a nonlinearity (Gu
//! and Dao 2023, section 3.4).

use crate::composed;
use crate::float::{Float, vectorised};
use crate::host::{Host, for_float};
use crate::parallel::{ROWS, combined};
use crate::profile::{even, region};
use crate::shared::{Shared, Write, filled};
use crate::spec::Activation;
use crate::spec::attention::kinds::ConvolutionSpec;
use crate::tape::{Adjoints, Slot, Tape, is_fused};
use candle_core::{Result, Tensor, bail};
use rayon::prelude::*;

/// Computes
///
/// ```text
/// out_t = silu(b + Σ_k w_k x_(t − K + 1 + k))
/// ```
///
/// for each token t of a sequence, and for each of the first E columns of `x`. Zeros take the place
/// of tokens before the first token. If `spec.reverse` is true, tokens are counted from the end of
/// the sequence.
///
/// # Shapes
/// `x (N, W)` with `W ≥ E`, `weight (E, K)`, `bias (E,)` → `(N, E)`.
///
/// # Errors
/// If the shapes disagree.
pub fn causal_convolution(
    tape: Option<&Tape>,
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    spec: &ConvolutionSpec,
) -> Result<Tensor> {
    check(x, weight, bias, spec)?;
    if !is_fused(tape, &[x, weight, bias])? {
        return composed::on_tape(tape, "convolution", &[x, weight, bias], |v| {
            composed::causal_convolution(&v[0], &v[1], &v[2], spec, None)
        });
    }
    crate::profile::time("convolution", || {
        for_float!(x, T => {
            let out = forward::<T>([x, weight, bias], spec, None)?;
            if let Some(tape) = tape {
                let kept = (tape.keep(x), weight.clone(), bias.clone(), spec.clone());
                tape.record::<T>("convolution", &[x, weight, bias], &out, move |adjoint, adjoints| {
                    let (x, weight, bias, spec) = &kept;
                    backward((&x.value()?, x.into()), [weight, bias], spec, &adjoint, adjoints)
                })?;
            }
            Ok(out)
        })
    })
}

/// Computes [`causal_convolution`] without gradients. `before` has the inputs of the last K − 1
/// tokens before each sequence, which replace the zeros.
///
/// # Shapes
/// `before (B, (K − 1)·E)` for B sequences → `(N, E)`.
///
/// # Errors
/// If the shapes disagree.
pub fn causal_convolution_after(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    spec: &ConvolutionSpec,
    before: &Tensor,
) -> Result<Tensor> {
    check(x, weight, bias, spec)?;
    let (channels, taps) = weight.dims2()?;
    if before.dims() != [spec.lengths.len(), (taps - 1) * channels] {
        bail!(
            "convolution: earlier inputs {:?} do not fit {} sequences",
            before.shape(),
            spec.lengths.len()
        );
    }
    if !is_fused(None, &[x, weight, bias, before])? {
        return composed::causal_convolution(x, weight, bias, spec, Some(before));
    }
    for_float!(x, T => forward::<T>([x, weight, bias], spec, Some(before)))
}

fn check(x: &Tensor, weight: &Tensor, bias: &Tensor, spec: &ConvolutionSpec) -> Result<()> {
    let ((tokens, width), (channels, taps)) = (x.dims2()?, weight.dims2()?);
    let in_sequences: usize = spec.lengths.iter().sum();
    if width < channels
        || channels == 0
        || taps == 0
        || bias.elem_count() != channels
        || in_sequences != tokens
    {
        bail!(
            "convolution: shapes do not fit together: input {:?}, weight {:?}, bias {:?}, \
             {in_sequences} tokens in sequences",
            x.shape(),
            weight.shape(),
            bias.shape()
        );
    }
    Ok(())
}

/// Filters of all channels, with the position of each token in its sequence.
struct Filters<T> {
    /// Weights, `(K, E)`.
    taps: Vec<T>,
    channels: usize,
    /// Width of a row of the input.
    width: usize,
    reverse: bool,
    /// For each token, the number of tokens before it and the number after it in its sequence.
    around: Vec<(usize, usize)>,
    /// For each token, the index of its sequence.
    sequences: Vec<usize>,
}

impl<T: Float> Filters<T> {
    fn new(weight: &[T], channels: usize, width: usize, spec: &ConvolutionSpec) -> Self {
        let count = weight.len() / channels;
        let taps = (0..weight.len()).map(|i| weight[i % channels * count + i / channels]).collect();
        let around = |&length: &usize| (0..length).map(move |at| (at, length - 1 - at));
        let of_sequence = |(number, &length)| std::iter::repeat_n(number, length);
        Self {
            taps,
            channels,
            width,
            reverse: spec.reverse,
            around: spec.lengths.iter().flat_map(around).collect(),
            sequences: spec.lengths.iter().enumerate().flat_map(of_sequence).collect(),
        }
    }

    fn count(&self) -> usize {
        self.taps.len() / self.channels
    }

    fn tap(&self, number: usize) -> &[T] {
        &self.taps[number * self.channels..(number + 1) * self.channels]
    }

    /// Returns the token that is read `steps` steps before `token`; `None` if the sequence has no
    /// such token.
    fn before(&self, token: usize, steps: usize) -> Option<usize> {
        let (before, after) = self.around[token];
        match self.reverse {
            false => (steps <= before).then(|| token - steps),
            true => (steps <= after).then(|| token + steps),
        }
    }

    /// Returns the token that is read `steps` steps after `token`; `None` if the sequence has no
    /// such token.
    fn after(&self, token: usize, steps: usize) -> Option<usize> {
        let (before, after) = self.around[token];
        match self.reverse {
            false => (steps <= after).then(|| token + steps),
            true => (steps <= before).then(|| token - steps),
        }
    }

    /// Computes the convolution for one token, before the nonlinearity.
    fn sum(&self, x: &[T], bias: &[T], before: Option<&[T]>, token: usize, out: &mut [T]) {
        let count = self.count();
        out.copy_from_slice(bias);
        for number in 0..count {
            let steps = count - 1 - number;
            let values = match (self.before(token, steps), before) {
                (Some(other), _) => &x[other * self.width..][..self.channels],
                (None, Some(before)) => {
                    // The last input in `before` is one step before the first token.
                    let (first, last) = self.around[token];
                    let at = if self.reverse { last } else { first };
                    let row = self.sequences[token] * (count - 1) + (count - 1) - (steps - at);
                    &before[row * self.channels..][..self.channels]
                }
                (None, None) => continue,
            };
            add_product(out, values, self.tap(number));
        }
    }
}

vectorised! {
    /// Computes `total[i] += a[i] · b[i]`.
    fn add_product<T>(total: &mut [T], a: &[T], b: &[T]) {
        for ((total, a), b) in total.iter_mut().zip(a).zip(b) {
            *total += *a * *b;
        }
    }
}

vectorised! {
    fn activate<T>(values: &mut [T]) {
        for value in values {
            *value = Activation::Swish.value(*value);
        }
    }
}

vectorised! {
    /// Replaces the elements of `sums`, the inputs of the nonlinearity, with the gradients of the
    /// loss with respect to them; `adjoint` has the gradients with respect to the nonlinearity's
    /// outputs.
    fn deactivate<T>(sums: &mut [T], adjoint: &[T]) {
        for (sum, adjoint) in sums.iter_mut().zip(adjoint) {
            *sum = *adjoint * Activation::Swish.derivative(*sum);
        }
    }
}

fn forward<T: Float>(
    [x, weight, bias]: [&Tensor; 3],
    spec: &ConvolutionSpec,
    before: Option<&Tensor>,
) -> Result<Tensor> {
    let ((tokens, width), channels) = (x.dims2()?, weight.dim(0)?);
    let (x_host, weight_host, bias_host) = (Host::new(x)?, Host::new(weight)?, Host::new(bias)?);
    let before = before.map(Host::new).transpose()?;
    let before = before.as_ref().map(Host::elements::<T>).transpose()?;
    let filters = Filters::new(weight_host.elements::<T>()?, channels, width, spec);
    let (values, biases) = (x_host.elements::<T>()?, bias_host.elements::<T>()?);
    crate::profile::count(2 * filters.count() * channels * tokens);
    let run = |out: Shared<T>| {
        region(even(tokens.div_ceil(ROWS)), || {
            (0..tokens.div_ceil(ROWS)).into_par_iter().with_max_len(1).for_each(|piece| {
                let mut row = vec![T::default(); channels];
                for token in piece * ROWS..tokens.min((piece + 1) * ROWS) {
                    filters.sum(values, biases, before, token, &mut row);
                    activate(&mut row);
                    // SAFETY: each task has its own rows.
                    unsafe { out.write(token * channels, &row) };
                }
            });
        });
    };
    // SAFETY: every row is written.
    let (out, ()) = unsafe { filled(tokens * channels, run) };
    Tensor::from_vec(out, (tokens, channels), x.device())
}

fn backward<T: Float>(
    (x, slot): (&Tensor, Slot),
    [weight, bias]: [&Tensor; 2],
    spec: &ConvolutionSpec,
    adjoint: &[T],
    adjoints: &mut Adjoints<'_>,
) -> Result<()> {
    let ((tokens, width), (channels, count)) = (x.dims2()?, weight.dims2()?);
    let (x_host, weight_host) = (Host::new(x)?, Host::new(weight)?);
    let filters = Filters::new(weight_host.elements::<T>()?, channels, width, spec);
    let values = x_host.elements::<T>()?;
    let bias_host = Host::new(bias)?;
    let biases = bias_host.elements::<T>()?;
    let pieces = tokens.div_ceil(ROWS);
    let rows = |piece: usize| piece * ROWS..tokens.min((piece + 1) * ROWS);
    let run = |out: Shared<T>| {
        region(even(pieces), || {
            let of_piece = |piece: usize| {
                // Sums over the tokens of this task: gradients with respect to the weights,
                // followed by the gradient with respect to the bias.
                let mut sums = vec![T::default(); (count + 1) * channels];
                let mut row = vec![T::default(); channels];
                for token in rows(piece) {
                    filters.sum(values, biases, None, token, &mut row);
                    deactivate(&mut row, &adjoint[token * channels..][..channels]);
                    for number in 0..count {
                        if let Some(other) = filters.before(token, count - 1 - number) {
                            let sums = &mut sums[number * channels..][..channels];
                            add_product(sums, &values[other * width..][..channels], &row);
                        }
                    }
                    crate::parallel::add(&mut sums[count * channels..], &row);
                    // SAFETY: each task has its own rows.
                    unsafe { out.write(token * channels, &row) };
                }
                sums
            };
            (0..pieces).into_par_iter().with_max_len(1).map(of_piece).collect::<Vec<_>>()
        })
    };
    // SAFETY: every row is written.
    let (of_sums, parts) = unsafe { filled(tokens * channels, run) };
    let mut sums = combined(parts, (count + 1) * channels);
    adjoints.give(bias, sums.split_off(count * channels))?;
    let of_weight = (0..sums.len()).map(|i| sums[i % count * channels + i / count]).collect();
    adjoints.give(weight, of_weight)?;
    adjoints.add_with(slot, |total: &mut [T], write| {
        add_to_input(total, write, &of_sums, &filters, count);
        Ok(())
    })
}

/// Writes or adds the gradient with respect to `x`. `of_sums` is the gradient with respect to the
/// inputs of the nonlinearity, and `count` is the number of taps, K.
fn add_to_input<T: Float>(
    total: &mut [T],
    write: Write,
    of_sums: &[T],
    filters: &Filters<T>,
    count: usize,
) {
    let (channels, width) = (filters.channels, filters.width);
    let (total, tokens) = (Shared::new(total), of_sums.len() / channels.max(1));
    let pieces = tokens.div_ceil(ROWS);
    let rows = |piece: usize| piece * ROWS..tokens.min((piece + 1) * ROWS);
    region(even(pieces), || {
        (0..pieces).into_par_iter().with_max_len(1).for_each(|piece| {
            for token in rows(piece) {
                // SAFETY: each task has its own rows.
                let row = unsafe { total.range(token * width..(token + 1) * width) };
                if write == Write::Replace {
                    row.fill(T::default());
                }
                for number in 0..count {
                    if let Some(other) = filters.after(token, count - 1 - number) {
                        let of_sum = &of_sums[other * channels..][..channels];
                        add_product(&mut row[..channels], of_sum, filters.tap(number));
                    }
                }
            }
        });
    });
}
