//! Forward pass, step by step.

use super::attending::attend;
use super::cells::{gru_forward, lstm_forward};
use super::{AttentionHosts, PIECE, Repeated, Saved, Widths, backward, inputs};
use crate::float::Float;
use crate::host::Host;
use crate::packed_weights::PackedWeights;
use crate::parallel::add;
use crate::products::{Matrix, product_into};
use crate::profile::{even, region};
use crate::shared::Shared;
use crate::spec::{Cell, Recurred, Recurrence, RecurrenceSpec, TimeSteps};
use crate::tape::Tape;
use candle_core::{Device, Result, Tensor};
use rayon::prelude::*;

pub(super) fn forward<T: Float>(
    tape: Option<&Tape>,
    packs: Option<&PackedWeights>,
    given: &Recurrence<'_>,
    spec: &RecurrenceSpec,
) -> Result<Recurred> {
    let steps = TimeSteps::new(&spec.lengths, spec.backwards);
    let widths = Widths::new(given, spec.cell)?;
    let device = given.inputs.device();
    let (out, saved) = run::<T>(packs, given, spec, &steps, widths)?;
    let rows = Tensor::from_vec(out, (steps.rows(), widths.out()), device)?;
    let last = Tensor::from_vec(
        last_states(&saved, spec, &steps, widths),
        (spec.lengths.len(), spec.cell.vectors() * widths.state),
        device,
    )?;
    let weights = match given.attention.is_some() && spec.wants_weights {
        true => Some(dense_weights(&saved, spec, &steps, device)?),
        false => None,
    };
    if let Some(tape) = tape {
        backward::record::<T>(tape, &inputs(given), &rows, given, spec, (steps, saved))?;
    }
    Ok(Recurred { rows, last, weights })
}

/// Computes the output rows, and the data for the backward pass.
fn run<T: Float>(
    packs: Option<&PackedWeights>,
    given: &Recurrence<'_>,
    spec: &RecurrenceSpec,
    steps: &TimeSteps,
    widths: Widths,
) -> Result<(Vec<T>, Saved<T>)> {
    let Widths { state: width, gates: across, scores, values: of_value } = widths;
    let (count, rows) = (spec.lengths.len(), steps.rows());
    let input_host = Host::new(given.inputs)?;
    let input_values = input_host.elements::<T>()?;
    let weight_host = Host::new(given.weight)?;
    let weight =
        Repeated::transposed(weight_host.elements::<T>()?, given.weight, packs, spec.products)?;
    let bias = given.bias.map(Host::new).transpose()?;
    let no_bias = vec![T::default(); if bias.is_none() { across } else { 0 }];
    let bias = bias.as_ref().map(Host::elements::<T>).transpose()?.unwrap_or(&no_bias);
    let attention_hosts = given.attention.as_ref().map(AttentionHosts::new).transpose()?;
    let attention = match (&attention_hosts, &given.attention) {
        (Some(hosts), Some(tensors)) => Some((
            Repeated::transposed(
                hosts.query.elements::<T>()?,
                tensors.query,
                packs,
                spec.products,
            )?,
            Repeated::transposed(
                hosts.context.elements::<T>()?,
                tensors.context,
                packs,
                spec.products,
            )?,
            hosts.energy.elements::<T>()?,
            hosts.keys.elements::<T>()?,
            hosts.values.elements::<T>()?,
        )),
        _ => None,
    };
    let mut saved = Saved::new(spec, steps, widths);
    saved.begin(given.initial, spec, steps, width)?;
    let mut out = vec![T::default(); rows * widths.out()];
    let mut from_context = vec![T::default(); if scores > 0 { count * across } else { 0 }];
    let shared_out = Shared::new(&mut out);
    for step in 0..steps.count() {
        let of_step = steps.of_step(step);
        let (active, first, before) = (of_step.len(), of_step.start, steps.before(step));
        let states = Shared::new(&mut saved.states);
        // SAFETY: within a step, states of the previous step are read, and those of this one
        // written, each row by one task.
        let previous: &[T] = unsafe { states.range(before * width..(before + active) * width) };
        if let Some((query, context, energy, keys, values)) = &attention {
            let queries = Shared::new(&mut saved.queries[first * scores..]);
            let shape = (active, width, scores);
            // SAFETY: nobody else uses this memory.
            unsafe {
                product_into(
                    shape,
                    (previous, Matrix::rows(width)),
                    query.right(),
                    queries,
                    spec.products,
                    None,
                );
            }
            let (weights, contexts) =
                (Shared::new(&mut saved.weights), Shared::new(&mut saved.contexts));
            let one_row = |place: usize| {
                let row = first + place;
                let range = spec.attended[steps.order[place]].clone();
                let pairs = saved.first_weight[row]..saved.first_weight[row + 1];
                let to = steps.packed_row(place, step) * widths.out() + width;
                // SAFETY: each row has its own query, weights, context and place in the result.
                unsafe {
                    let context = contexts.range(row * of_value..(row + 1) * of_value);
                    attend(
                        queries.range(place * scores..(place + 1) * scores),
                        energy,
                        &keys[range.start * scores..range.end * scores],
                        &values[range.start * of_value..range.end * of_value],
                        weights.range(pairs),
                        context,
                    );
                    shared_out.write(to, context);
                }
            };
            region(even(active.div_ceil(PIECE)), || {
                (0..active).into_par_iter().with_min_len(PIECE).for_each(one_row);
            });
            // SAFETY: nobody else uses this memory, and the contexts have been written.
            unsafe {
                product_into(
                    (active, of_value, across),
                    (
                        &saved.contexts[first * of_value..(first + active) * of_value],
                        Matrix::rows(of_value),
                    ),
                    context.right(),
                    Shared::new(&mut from_context),
                    spec.products,
                    None,
                );
            }
        }
        let from_context = Shared::new(&mut from_context);
        let (cells, fresh) = (Shared::new(&mut saved.cells), Shared::new(&mut saved.fresh));
        let gates = Shared::new(&mut saved.gates[first * across..]);
        let finish = |row: usize, gates: &mut [T]| {
            for (place, gates) in (row..).zip(gates.chunks_exact_mut(across)) {
                let packed = steps.packed_row(place, step);
                let given = &input_values[packed * across..(packed + 1) * across];
                let state = spec.lengths.len() + first + place;
                let (old, new) = (before + place, state * width..(state + 1) * width);
                // SAFETY: each row is finished once, and has its own part of everything.
                unsafe {
                    let inputs = if scores > 0 {
                        let sum = from_context.range(place * across..(place + 1) * across);
                        add(sum, given);
                        sum
                    } else {
                        given
                    };
                    let state = states.range(new.clone());
                    match spec.cell {
                        Cell::Gru => {
                            let row = (first + place) * width;
                            let fresh = fresh.range(row..row + width);
                            let previous = &previous[place * width..(place + 1) * width];
                            gru_forward(gates, inputs, bias, previous, fresh, state);
                        }
                        Cell::Lstm => {
                            let previous = cells.range(old * width..(old + 1) * width);
                            let cell = cells.range(new);
                            lstm_forward(gates, inputs, bias, previous, cell, state);
                        }
                    }
                    shared_out.write(packed * widths.out(), state);
                }
            }
        };
        // SAFETY: nobody else uses this memory.
        unsafe {
            product_into(
                (active, width, across),
                (previous, Matrix::rows(width)),
                weight.right(),
                gates,
                spec.products,
                Some(&finish),
            );
        }
    }
    Ok((out, saved))
}

impl<T: Float> Saved<T> {
    fn new(spec: &RecurrenceSpec, steps: &TimeSteps, widths: Widths) -> Self {
        let (rows, count) = (steps.rows(), spec.lengths.len());
        let zeros = |count: usize| vec![T::default(); count];
        let is_lstm = spec.cell == Cell::Lstm;
        let mut first_weight = Vec::new();
        let mut pairs = 0;
        if widths.scores > 0 {
            first_weight.reserve(rows + 1);
            for step in 0..steps.count() {
                for place in 0..steps.of_step(step).len() {
                    first_weight.push(pairs);
                    pairs += spec.attended[steps.order[place]].len();
                }
            }
            first_weight.push(pairs);
        }
        Self {
            states: zeros((count + rows) * widths.state),
            cells: zeros(if is_lstm { (count + rows) * widths.state } else { 0 }),
            gates: zeros(rows * widths.gates),
            fresh: zeros(if is_lstm { 0 } else { rows * widths.state }),
            queries: zeros(rows * widths.scores),
            contexts: zeros(rows * widths.values),
            weights: zeros(pairs),
            first_weight,
        }
    }

    /// Writes the initial states to their places.
    fn begin(
        &mut self,
        initial: Option<&Tensor>,
        spec: &RecurrenceSpec,
        steps: &TimeSteps,
        width: usize,
    ) -> Result<()> {
        let Some(initial) = initial else { return Ok(()) };
        let host = Host::new(initial)?;
        let values = host.elements::<T>()?;
        let stride = spec.cell.vectors() * width;
        for (place, &sequence) in steps.order.iter().enumerate() {
            let (from, to) = (sequence * stride, place * width..(place + 1) * width);
            self.states[to.clone()].copy_from_slice(&values[from..from + width]);
            if spec.cell == Cell::Lstm {
                self.cells[to].copy_from_slice(&values[from + width..from + 2 * width]);
            }
        }
        Ok(())
    }
}

/// State after each sequence: `(B, S)`.
fn last_states<T: Float>(
    saved: &Saved<T>,
    spec: &RecurrenceSpec,
    steps: &TimeSteps,
    widths: Widths,
) -> Vec<T> {
    let width = widths.state;
    let stride = spec.cell.vectors() * width;
    let mut last = vec![T::default(); spec.lengths.len() * stride];
    for (place, &sequence) in steps.order.iter().enumerate() {
        let (at, to) = (steps.last(place) * width, sequence * stride);
        last[to..to + width].copy_from_slice(&saved.states[at..at + width]);
        if spec.cell == Cell::Lstm {
            last[to + width..to + stride].copy_from_slice(&saved.cells[at..at + width]);
        }
    }
    last
}

/// Weights of attention as a tensor `(B, T, S)`.
fn dense_weights<T: Float>(
    saved: &Saved<T>,
    spec: &RecurrenceSpec,
    steps: &TimeSteps,
    device: &Device,
) -> Result<Tensor> {
    let queries = steps.count();
    let keys = spec.attended.iter().map(std::ops::Range::len).max().unwrap_or(0);
    let mut dense = vec![T::default(); spec.lengths.len() * queries * keys];
    for step in 0..queries {
        for (place, row) in steps.of_step(step).enumerate() {
            let sequence = steps.order[place];
            let position = match spec.backwards {
                true => spec.lengths[sequence] - 1 - step,
                false => step,
            };
            let weights = &saved.weights[saved.first_weight[row]..saved.first_weight[row + 1]];
            let to = (sequence * queries + position) * keys;
            dense[to..to + weights.len()].copy_from_slice(weights);
        }
    }
    Tensor::from_vec(dense, (spec.lengths.len(), queries, keys), device)
}
