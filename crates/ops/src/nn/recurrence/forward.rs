//! Forward pass of recurrent layers, step by step.

use super::attending::attend;
use super::cells::{gru_forward, lstm_forward};
use super::{Attended, AttentionHosts, PIECE, Repeated, Saved, Widths, backward, inputs};
use crate::float::Float;
use crate::host::Host;
use crate::packed_weights::PackedWeights;
use crate::parallel::add;
use crate::products::{Matrix, Products, product_into};
use crate::profile::{even, region};
use crate::shared::Shared;
use crate::spec::{AdditiveAttention, Cell, Recurred, Recurrence, RecurrenceSpec, TimeSteps};
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

/// Computes the result rows, and the data for the backward pass.
fn run<T: Float>(
    packs: Option<&PackedWeights>,
    given: &Recurrence<'_>,
    spec: &RecurrenceSpec,
    steps: &TimeSteps,
    widths: Widths,
) -> Result<(Vec<T>, Saved<T>)> {
    let (inputs, weight) = (Host::new(given.inputs)?, Host::new(given.weight)?);
    let bias = given.bias.map(Host::new).transpose()?;
    let no_bias = vec![T::default(); if bias.is_none() { widths.gates } else { 0 }];
    let attention = given.attention.as_ref().map(AttentionHosts::new).transpose()?;
    let layer = Layer {
        spec,
        steps,
        widths,
        inputs: inputs.elements::<T>()?,
        weight: Repeated::transposed(weight.elements()?, given.weight, packs, spec.products)?,
        bias: bias.as_ref().map(Host::elements::<T>).transpose()?.unwrap_or(&no_bias),
        attention: match (&attention, &given.attention) {
            (Some(hosts), Some(tensors)) => Some(attended(hosts, tensors, packs, spec.products)?),
            _ => None,
        },
    };
    let mut saved = Saved::new(spec, steps, widths);
    saved.begin(given.initial, spec, steps, widths.state)?;
    let mut out = vec![T::default(); steps.rows() * widths.out()];
    let sums = if widths.scores > 0 { spec.lengths.len() * widths.gates } else { 0 };
    let mut from_context = vec![T::default(); sums];
    for step in 0..steps.count() {
        if let Some(attention) = &layer.attention {
            layer.attend(step, attention, &mut saved, Shared::new(&mut out), &mut from_context);
        }
        layer.advance(step, &mut saved, Shared::new(&mut out), Shared::new(&mut from_context));
    }
    Ok((out, saved))
}

/// Prepares the operands of attention for the forward pass.
fn attended<'a, T: Float>(
    hosts: &'a AttentionHosts<'_>,
    tensors: &AdditiveAttention<'_>,
    packs: Option<&PackedWeights>,
    products: Products,
) -> Result<Attended<'a, T>> {
    let (query, context) = (hosts.query.elements()?, hosts.context.elements()?);
    Ok(Attended {
        query: Repeated::transposed(query, tensors.query, packs, products)?,
        context: Repeated::transposed(context, tensors.context, packs, products)?,
        energy: hosts.energy.elements()?,
        keys: hosts.keys.elements()?,
        values: hosts.values.elements()?,
    })
}

/// Operands and settings of a layer in the forward pass.
struct Layer<'a, T> {
    spec: &'a RecurrenceSpec,
    steps: &'a TimeSteps,
    widths: Widths,
    /// Contribution of the layer's input to the gates, `(N, G·H)`.
    inputs: &'a [T],
    weight: Repeated<'a, T>,
    bias: &'a [T],
    attention: Option<Attended<'a, T>>,
}

/// Memory to which a step writes; each row is written by a single task.
#[derive(Clone, Copy)]
struct Destinations<T> {
    states: Shared<T>,
    cells: Shared<T>,
    fresh: Shared<T>,
    out: Shared<T>,
    /// Contribution of the contexts to the gates; empty without attention.
    from_context: Shared<T>,
}

impl<T: Float> Layer<'_, T> {
    /// Computes the contexts of a step from the previous states, and the contributions of the
    /// contexts to the gates.
    fn attend(
        &self,
        step: usize,
        attention: &Attended<'_, T>,
        saved: &mut Saved<T>,
        out: Shared<T>,
        from_context: &mut [T],
    ) {
        let Widths { state: width, gates: across, scores, values: of_value } = self.widths;
        let (spec, steps) = (self.spec, self.steps);
        let of_step = steps.of_step(step);
        let (active, first, before) = (of_step.len(), of_step.start, steps.before(step));
        let previous = &saved.states[before * width..(before + active) * width];
        let queries = Shared::new(&mut saved.queries[first * scores..]);
        let shape = (active, width, scores);
        let left = (previous, Matrix::rows(width));
        // SAFETY: no other thread uses this memory.
        unsafe {
            product_into(shape, left, attention.query.right(), queries, spec.products, None);
        }
        let (weights, contexts) =
            (Shared::new(&mut saved.weights), Shared::new(&mut saved.contexts));
        let one_row = |place: usize| {
            let row = first + place;
            let range = spec.attended[steps.order[place]].clone();
            let pairs = saved.first_weight[row]..saved.first_weight[row + 1];
            let to = steps.packed_row(place, step) * self.widths.out() + width;
            // SAFETY: each row has its own query, weights, context and place in `out`.
            unsafe {
                let context = contexts.range(row * of_value..(row + 1) * of_value);
                attend(
                    queries.range(place * scores..(place + 1) * scores),
                    attention.energy,
                    &attention.keys[range.start * scores..range.end * scores],
                    &attention.values[range.start * of_value..range.end * of_value],
                    weights.range(pairs),
                    context,
                );
                out.write(to, context);
            }
        };
        region(even(active.div_ceil(PIECE)), || {
            (0..active).into_par_iter().with_min_len(PIECE).for_each(one_row);
        });
        let contexts = &saved.contexts[first * of_value..(first + active) * of_value];
        let (shape, left) = ((active, of_value, across), (contexts, Matrix::rows(of_value)));
        let (right, sums) = (attention.context.right(), Shared::new(from_context));
        // SAFETY: no other thread uses this memory, and the contexts have been written.
        unsafe { product_into(shape, left, right, sums, spec.products, None) };
    }

    /// Computes the gates and the states of a step.
    fn advance(&self, step: usize, saved: &mut Saved<T>, out: Shared<T>, from_context: Shared<T>) {
        let Widths { state: width, gates: across, .. } = self.widths;
        let of_step = self.steps.of_step(step);
        let (active, first, before) = (of_step.len(), of_step.start, self.steps.before(step));
        let to = Destinations {
            states: Shared::new(&mut saved.states),
            cells: Shared::new(&mut saved.cells),
            fresh: Shared::new(&mut saved.fresh),
            out,
            from_context,
        };
        let gates = Shared::new(&mut saved.gates[first * across..]);
        // SAFETY: a step reads the states of the previous step, and writes its own states, each row
        // in a single task.
        let previous: &[T] = unsafe { to.states.range(before * width..(before + active) * width) };
        let finish = |row: usize, gates: &mut [T]| {
            for (place, gates) in (row..).zip(gates.chunks_exact_mut(across)) {
                let previous = &previous[place * width..(place + 1) * width];
                // SAFETY: each row is finished once, and has its own part of every array.
                unsafe { self.finish(step, place, gates, previous, &to) };
            }
        };
        let (shape, left) = ((active, width, across), (previous, Matrix::rows(width)));
        let (right, products) = (self.weight.right(), self.spec.products);
        // SAFETY: no other thread uses this memory.
        unsafe { product_into(shape, left, right, gates, products, Some(&finish)) };
    }

    /// Computes the gates and the state of one row of a step. On entry, `gates` is the product of
    /// the weight and the row's previous state.
    ///
    /// # Safety
    /// No other thread reads or writes the row at the same time.
    #[inline]
    unsafe fn finish(
        &self,
        step: usize,
        place: usize,
        gates: &mut [T],
        previous: &[T],
        to: &Destinations<T>,
    ) {
        let Widths { state: width, gates: across, scores, .. } = self.widths;
        let packed = self.steps.packed_row(place, step);
        let given = &self.inputs[packed * across..(packed + 1) * across];
        let row = self.steps.of_step(step).start + place;
        let state = self.spec.lengths.len() + row;
        let (old, new) = (self.steps.before(step) + place, state * width..(state + 1) * width);
        // SAFETY: as the caller promises.
        unsafe {
            let inputs = if scores > 0 {
                let sum = to.from_context.range(place * across..(place + 1) * across);
                add(sum, given);
                sum
            } else {
                given
            };
            let state = to.states.range(new.clone());
            match self.spec.cell {
                Cell::Gru => {
                    let fresh = to.fresh.range(row * width..(row + 1) * width);
                    gru_forward(gates, inputs, self.bias, previous, fresh, state);
                }
                Cell::Lstm => {
                    let previous = to.cells.range(old * width..(old + 1) * width);
                    let cell = to.cells.range(new);
                    lstm_forward(gates, inputs, self.bias, previous, cell, state);
                }
            }
            to.out.write(packed * self.widths.out(), state);
        }
    }
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

    /// Writes the initial states, sorted by place (longest sequence first).
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

/// Returns the last state of each sequence, with the shape of [`Recurrence::initial`].
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

/// Returns the attention weights as a tensor, padded with zeros; see [`Recurred::weights`].
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
            let position = if spec.backwards { spec.lengths[sequence] - 1 - step } else { step };
            let weights = &saved.weights[saved.first_weight[row]..saved.first_weight[row + 1]];
            let to = (sequence * queries + position) * keys;
            dense[to..to + weights.len()].copy_from_slice(weights);
        }
    }
    Tensor::from_vec(dense, (spec.lengths.len(), queries, keys), device)
}
