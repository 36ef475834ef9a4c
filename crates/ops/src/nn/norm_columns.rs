//! Normalisation of groups of columns. For example, if query, key and value are side by side in a
//! row, the heads of queries and keys can be normalised.

use super::norm::{backward_rows, forward_rows};
use crate::composed;
use crate::float::Float;
use crate::host::{Host, for_float};
use crate::parallel::{ROWS, add, combined};
use crate::profile::{even, region};
use crate::shared::Write;
use crate::spec::{NormSpec, NormedColumns};
use crate::tape::{Adjoints, Slot, Tape, is_fused};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Normalises the leading columns of each row. These columns are divided into `parts` from left to
/// right. The columns of a part are divided into groups as wide as the part's weight. Each group is
/// normalised separately. All other columns are unchanged.
///
/// # Shapes
/// `x (N, W)` → `(N, W)`.
///
/// # Errors
/// If the columns of a part are not a multiple of its group width, if the parts have more columns
/// than `x`, or if `x` has none.
pub fn norm_columns(
    tape: Option<&Tape>,
    x: &Tensor,
    parts: &[NormedColumns<'_>],
    spec: &NormSpec,
) -> Result<Tensor> {
    let (_, width) = x.dims2()?;
    let fits = |part: &NormedColumns<'_>| {
        let group = part.weight.elem_count();
        group > 0
            && part.columns.is_multiple_of(group)
            && part.bias.is_none_or(|bias| bias.elem_count() == group)
    };
    let columns: usize = parts.iter().map(|part| part.columns).sum();
    if width == 0 || columns > width || !parts.iter().all(fits) {
        let groups: Vec<_> =
            parts.iter().map(|part| (part.columns, part.weight.elem_count())).collect();
        candle_core::bail!(
            "{} of columns in groups {groups:?} does not fit input {:?}",
            spec.name(),
            x.shape()
        );
    }
    let weights = parts.iter().flat_map(|part| [part.weight].into_iter().chain(part.bias));
    let inputs: Vec<&Tensor> = [x].into_iter().chain(weights).collect();
    if !is_fused(tape, &inputs)? {
        return composed::on_tape(tape, spec.name(), &inputs, |v| {
            let mut rest = v[1..].iter();
            let stand_in = |part: &NormedColumns<'_>| {
                let weight = rest.next()?;
                let bias = part.bias.and_then(|_| rest.next());
                Some(NormedColumns { columns: part.columns, weight, bias })
            };
            let parts: Vec<_> = parts.iter().filter_map(stand_in).collect();
            composed::norm_columns(&v[0], &parts, spec)
        });
    }
    crate::profile::time(
        spec.name(),
        || for_float!(x, T => forward::<T>(tape, x, parts, &inputs, *spec)),
    )
}

/// Weight and bias of one part of the columns, as tensors that the tape can own.
#[derive(Clone)]
struct Part {
    columns: usize,
    weight: Tensor,
    bias: Option<Tensor>,
}

/// Weight and bias of one part of the columns, as values on the host.
struct Values<'a, T> {
    columns: usize,
    weight: &'a [T],
    bias: Option<&'a [T]>,
}

impl<T> Values<'_, T> {
    /// Returns the number of values of weight and bias.
    fn count(&self) -> usize {
        self.weight.len() + self.bias.map_or(0, <[T]>::len)
    }
}

fn forward<T: Float>(
    tape: Option<&Tape>,
    x: &Tensor,
    parts: &[NormedColumns<'_>],
    inputs: &[&Tensor],
    spec: NormSpec,
) -> Result<Tensor> {
    let owned = |part: &NormedColumns<'_>| Part {
        columns: part.columns,
        weight: part.weight.clone(),
        bias: part.bias.cloned(),
    };
    let parts: Vec<Part> = parts.iter().map(owned).collect();
    let out = normalised::<T>(x, &parts, spec)?;
    if let Some(tape) = tape {
        let of_inputs = (x.clone(), parts.clone());
        tape.record::<T>(spec.name(), inputs, &out, move |adjoint, adjoints| {
            let (x, parts) = &of_inputs;
            backward(x, parts, &adjoint, spec, adjoints)
        })?;
        let x = x.clone();
        tape.recompute(&out, move || normalised::<T>(&x, &parts, spec));
    }
    Ok(out)
}

/// Calls `run` with the values of the parts' weights and biases.
fn with_values<T: Float, R>(
    parts: &[Part],
    run: impl FnOnce(&[Values<'_, T>]) -> Result<R>,
) -> Result<R> {
    let hosts = parts.iter().map(|part| {
        Ok((part.columns, Host::new(&part.weight)?, part.bias.as_ref().map(Host::new).transpose()?))
    });
    let hosts = hosts.collect::<Result<Vec<_>>>()?;
    let values = hosts.iter().map(|(columns, weight, bias)| {
        let bias = bias.as_ref().map(Host::elements::<T>).transpose()?;
        Ok(Values { columns: *columns, weight: weight.elements::<T>()?, bias })
    });
    run(&values.collect::<Result<Vec<_>>>()?)
}

fn normalised<T: Float>(x: &Tensor, parts: &[Part], spec: NormSpec) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let x_host = Host::new(x)?;
    let values = x_host.elements::<T>()?;
    let mut out = Vec::with_capacity(values.len());
    let room = &mut out.spare_capacity_mut()[..values.len()];
    with_values::<T, _>(parts, |parts| {
        let row = |(out, x): (&mut [_], &[T])| {
            let mut first = 0;
            for part in parts {
                let columns = first..first + part.columns;
                first = columns.end;
                forward_rows(&x[columns.clone()], part.weight, part.bias, &mut out[columns], spec);
            }
            out[first..].write_copy_of_slice(&x[first..]);
        };
        region(even(rows.div_ceil(ROWS)), || {
            let rows = room.par_chunks_mut(width).zip(values.par_chunks(width));
            rows.with_min_len(ROWS).for_each(row);
        });
        Ok(())
    })?;
    // SAFETY: all columns of all rows have been written.
    unsafe { out.set_len(values.len()) };
    Tensor::from_vec(out, x.shape(), x.device())
}

/// Computes the gradient with respect to the rows `x`. Depending on `write`, it replaces the values
/// of `out` or is added to them. Returns the gradients with respect to the weights and biases of
/// all parts, one after the other.
fn back_rows<T: Float>(
    parts: &[Values<'_, T>],
    width: usize,
    (x, adjoint): (&[T], &[T]),
    (out, write): (&mut [T], Write),
    spec: NormSpec,
) -> Vec<T> {
    let is_added = write == Write::Add;
    let mut sums = vec![T::default(); parts.iter().map(Values::count).sum()];
    let rows = x.chunks_exact(width).zip(adjoint.chunks_exact(width));
    for (out, (x, adjoint)) in out.chunks_exact_mut(width).zip(rows) {
        let (mut first, mut sums) = (0, &mut sums[..]);
        for part in parts {
            let columns = first..first + part.columns;
            first = columns.end;
            let (own, others) = sums.split_at_mut(part.count());
            sums = others;
            let (x, adjoint) = (&x[columns.clone()], &adjoint[columns.clone()]);
            backward_rows(x, part.weight, adjoint, &mut out[columns], is_added, own, spec);
        }
        match write {
            Write::Replace => out[first..].copy_from_slice(&adjoint[first..]),
            Write::Add => add(&mut out[first..], &adjoint[first..]),
        }
    }
    sums
}

fn backward<T: Float>(
    x: &Tensor,
    parts: &[Part],
    adjoint: &[T],
    spec: NormSpec,
    adjoints: &mut Adjoints<'_>,
) -> Result<()> {
    let (_, width) = x.dims2()?;
    let x_host = Host::new(x)?;
    let values = x_host.elements::<T>()?;
    let mut sums = Vec::new();
    let mut back = |out: &mut [T], write| {
        with_values::<T, _>(parts, |parts| {
            let piece = ROWS * width;
            let partial: Vec<Vec<T>> = region(even(values.len().div_ceil(piece)), || {
                out.par_chunks_mut(piece)
                    .zip(values.par_chunks(piece))
                    .zip(adjoint.par_chunks(piece))
                    .with_max_len(1)
                    .map(|((out, x), adjoint)| {
                        back_rows(parts, width, (x, adjoint), (out, write), spec)
                    })
                    .collect()
            });
            sums = combined(partial, parts.iter().map(Values::count).sum());
            Ok(())
        })
    };
    if adjoints.wants(x) {
        adjoints.add_with(x, back)?;
    } else {
        back(&mut vec![T::default(); values.len()], Write::Replace)?;
    }
    for part in parts {
        for trained in [Some(&part.weight), part.bias.as_ref()].into_iter().flatten() {
            let others = sums.split_off(trained.elem_count());
            adjoints.give(Slot::from(trained), std::mem::replace(&mut sums, others))?;
        }
    }
    Ok(())
}
