//! Backward pass of recurrent layers: backpropagation through time (Werbos 1990).

use super::attending::attend_backward;
use super::cells::{gru_backward, lstm_backward};
use super::{Attended, AttentionHosts, PIECE, Repeated, Saved, Widths};
use crate::float::Float;
use crate::host::Host;
use crate::parallel::{add, column_sums};
use crate::products::{Matrix, Threads, product, product_then};
use crate::profile::{even, region};
use crate::shared::Shared;
use crate::spec::{AdditiveAttention, Cell, Recurrence, RecurrenceSpec, TimeSteps};
use crate::tape::{Adjoints, Slot, Tape};
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;

/// Records the layer on the tape, with its backward pass.
pub(super) fn record<T: Float>(
    tape: &Tape,
    inputs: &[&Tensor],
    rows: &Tensor,
    given: &Recurrence<'_>,
    spec: &RecurrenceSpec,
    (steps, saved): (TimeSteps, Saved<T>),
) -> Result<()> {
    if given.attention.is_some() && !are_apart(&spec.attended) {
        candle_core::bail!(
            "recurrence: sequences attend to the same rows, for which there is no backward pass"
        );
    }
    let back = Back {
        inputs: given.inputs.into(),
        weight: given.weight.clone(),
        bias: given.bias.map(Slot::from),
        initial: given.initial.map(Slot::from),
        attention: given.attention.map(OwnedAttention::from_borrowed),
        widths: Widths::new(given, spec.cell)?,
        spec: spec.clone(),
    };
    tape.record::<T>("recurrence", inputs, rows, move |adjoint, adjoints| {
        back.run(&steps, &saved, &adjoint, adjoints)
    })
}

fn are_apart(ranges: &[Range<usize>]) -> bool {
    let mut sorted: Vec<&Range<usize>> = ranges.iter().collect();
    sorted.sort_by_key(|range| range.start);
    sorted.windows(2).all(|pair| pair[0].end <= pair[1].start)
}

struct OwnedAttention {
    query: Tensor,
    energy: Tensor,
    keys: Tensor,
    values: Tensor,
    context: Tensor,
}

impl OwnedAttention {
    fn from_borrowed(attention: AdditiveAttention<'_>) -> Self {
        let AdditiveAttention { query, energy, keys, values, context } = attention;
        Self {
            query: query.clone(),
            energy: energy.clone(),
            keys: keys.clone(),
            values: values.clone(),
            context: context.clone(),
        }
    }

    fn lent(&self) -> AdditiveAttention<'_> {
        let Self { query, energy, keys, values, context } = self;
        AdditiveAttention { query, energy, keys, values, context }
    }
}

/// Data of a layer that the tape keeps for the backward pass.
struct Back {
    inputs: Slot,
    weight: Tensor,
    bias: Option<Slot>,
    initial: Option<Slot>,
    attention: Option<OwnedAttention>,
    widths: Widths,
    spec: RecurrenceSpec,
}

/// Gradients that the steps compute. Rows are in the order of steps: by step, and within a step by
/// decreasing length of their sequences.
struct StepGradients<T> {
    /// Gradients with respect to the contribution of the layer's input to the gates: `(N, G·H)`.
    by_inputs: Vec<T>,
    /// Gradients with respect to the contribution `U h + b` to the gates; empty for LSTMs, where
    /// they equal `by_inputs`.
    by_product: Vec<T>,
    /// Gradients with respect to the state h and the cell c of each sequence: `(B, H)` each,
    /// longest sequence first. A step passes them to the step before it.
    carried: Vec<T>,
    carried_cells: Vec<T>,
    /// Gradients with respect to the queries, `(N, A)`.
    by_queries: Vec<T>,
    /// Gradients with respect to the vector v with which scores are computed, separately for each
    /// sequence: `(B, A)`.
    by_energies: Vec<T>,
    /// Gradients with respect to the keys, `(M, A)`.
    by_keys: Vec<T>,
    /// Gradients with respect to the values, `(M, V)`.
    by_values: Vec<T>,
}

impl Back {
    fn run<T: Float>(
        &self,
        steps: &TimeSteps,
        saved: &Saved<T>,
        adjoint: &[T],
        adjoints: &mut Adjoints<'_>,
    ) -> Result<()> {
        let gradients = self.through_time(steps, saved, adjoint)?;
        self.give(steps, saved, gradients, adjoints)
    }

    fn through_time<T: Float>(
        &self,
        steps: &TimeSteps,
        saved: &Saved<T>,
        adjoint: &[T],
    ) -> Result<StepGradients<T>> {
        let (spec, rows) = (&self.spec, steps.rows());
        let Widths { state: width, gates: across, .. } = self.widths;
        let weight_host = Host::new(&self.weight)?;
        let weight = Repeated::new(
            (weight_host.elements::<T>()?, Matrix::rows(width)),
            (across, width),
            spec.products,
        );
        let lent = self.attention.as_ref().map(OwnedAttention::lent);
        let hosts = lent.as_ref().map(AttentionHosts::new).transpose()?;
        let attention = hosts.as_ref().map(|hosts| self.attended::<T>(hosts)).transpose()?;
        let mut gradients = self.zeros(rows, attention.as_ref());
        let mut norms = vec![0.0; if spec.state_gradients.is_some() { rows } else { 0 }];
        for step in (0..steps.count()).rev() {
            self.cells(step, steps, saved, adjoint, (&mut gradients, &mut norms));
            if let Some(attention) = &attention {
                self.attention(step, steps, saved, adjoint, attention, &mut gradients);
            }
            self.carry(steps.of_step(step), &weight, attention.as_ref(), &mut gradients);
        }
        if let Some(noted) = &spec.state_gradients {
            noted.set(norms);
        }
        Ok(gradients)
    }

    fn attended<'a, T: Float>(&self, hosts: &'a AttentionHosts<'_>) -> Result<Attended<'a, T>> {
        let Widths { state: width, gates: across, scores, values: of_value } = self.widths;
        let products = self.spec.products;
        let context = (hosts.context.elements()?, Matrix::rows(of_value));
        let query = (hosts.query.elements()?, Matrix::rows(width));
        Ok(Attended {
            context: Repeated::new(context, (across, of_value), products),
            query: Repeated::new(query, (scores, width), products),
            energy: hosts.energy.elements()?,
            keys: hosts.keys.elements()?,
            values: hosts.values.elements()?,
        })
    }

    /// Returns the gradients before the backward pass: zeros.
    fn zeros<T: Float>(
        &self,
        rows: usize,
        attention: Option<&Attended<'_, T>>,
    ) -> StepGradients<T> {
        let Widths { state: width, gates: across, scores, .. } = self.widths;
        let count = self.spec.lengths.len();
        let zeros = |count: usize| vec![T::default(); count];
        let is_lstm = self.spec.cell == Cell::Lstm;
        let of_keys = attention.map_or((0, 0), |it| (it.keys.len(), it.values.len()));
        StepGradients {
            by_inputs: zeros(rows * across),
            by_product: zeros(if is_lstm { 0 } else { rows * across }),
            carried: zeros(count * width),
            carried_cells: zeros(if is_lstm { count * width } else { 0 }),
            by_queries: zeros(rows * scores),
            by_energies: zeros(count * scores),
            by_keys: zeros(of_keys.0),
            by_values: zeros(of_keys.1),
        }
    }

    /// Adds the gradients with respect to the states before a step to `carried`. They come from the
    /// gates and the queries of the step.
    fn carry<T: Float>(
        &self,
        of_step: Range<usize>,
        weight: &Repeated<'_, T>,
        attention: Option<&Attended<'_, T>>,
        gradients: &mut StepGradients<T>,
    ) {
        let Widths { state: width, gates: across, scores, .. } = self.widths;
        let products = self.spec.products;
        let by_product = match self.spec.cell {
            Cell::Lstm => &gradients.by_inputs,
            Cell::Gru => &gradients.by_product,
        };
        let carried = Shared::new(&mut gradients.carried);
        let onto_carried = |row: usize, sums: &mut [T]| {
            // SAFETY: each row is written by a single task.
            add(unsafe { carried.range(row * width..row * width + sums.len()) }, sums);
        };
        let left = &by_product[of_step.start * across..of_step.end * across];
        let (shape, left) = ((of_step.len(), across, width), (left, Matrix::rows(across)));
        product_then(shape, left, weight.right(), products, Some(&onto_carried));
        if let Some(attention) = attention {
            let left = &gradients.by_queries[of_step.start * scores..of_step.end * scores];
            let (shape, left) = ((of_step.len(), scores, width), (left, Matrix::rows(scores)));
            product_then(shape, left, attention.query.right(), products, Some(&onto_carried));
        }
    }

    /// Computes the gradients with respect to the gates' inputs at a step. They come from the
    /// gradients with respect to the states of the step.
    fn cells<T: Float>(
        &self,
        step: usize,
        steps: &TimeSteps,
        saved: &Saved<T>,
        adjoint: &[T],
        (found, norms): (&mut StepGradients<T>, &mut [f64]),
    ) {
        let Widths { state: width, gates: across, .. } = self.widths;
        let (of_step, before) = (steps.of_step(step), steps.before(step));
        let (first, count) = (of_step.start, self.spec.lengths.len());
        let carried = Shared::new(&mut found.carried);
        let carried_cells = Shared::new(&mut found.carried_cells);
        let (by_inputs, by_product) =
            (Shared::new(&mut found.by_inputs), Shared::new(&mut found.by_product));
        let norms = Shared::new(norms);
        let one_row = |place: usize| {
            let row = first + place;
            let packed = steps.packed_row(place, step);
            let state_adjoint = &adjoint[packed * self.widths.out()..][..width];
            let of_place = place * width..(place + 1) * width;
            let (old, new) = ((before + place) * width, (count + row) * width);
            let of_gates = row * across..(row + 1) * across;
            let gates = &saved.gates[of_gates.clone()];
            // SAFETY: each sequence has its own row of every array.
            unsafe {
                let carried = carried.range(of_place.clone());
                add(carried, state_adjoint);
                if norms.len() > 0 {
                    let square: f64 = carried.iter().map(|value| value.wide() * value.wide()).sum();
                    norms.write(packed, &[square.sqrt()]);
                }
                let by_inputs = by_inputs.range(of_gates.clone());
                match self.spec.cell {
                    Cell::Gru => gru_backward(
                        gates,
                        &saved.fresh[row * width..(row + 1) * width],
                        &saved.states[old..old + width],
                        carried,
                        by_inputs,
                        by_product.range(of_gates),
                    ),
                    Cell::Lstm => lstm_backward(
                        gates,
                        &saved.cells[new..new + width],
                        &saved.cells[old..old + width],
                        carried,
                        carried_cells.range(of_place),
                        by_inputs,
                    ),
                }
            }
        };
        let active = of_step.len();
        region(even(active.div_ceil(PIECE)), || {
            (0..active).into_par_iter().with_min_len(PIECE).for_each(one_row);
        });
    }

    /// Computes the gradients with respect to queries, keys, values and energies at a step. They
    /// come from the gradients with respect to the gates' inputs, and with respect to the contexts
    /// in the layer's result.
    fn attention<T: Float>(
        &self,
        step: usize,
        steps: &TimeSteps,
        saved: &Saved<T>,
        adjoint: &[T],
        attention: &Attended<'_, T>,
        gradients: &mut StepGradients<T>,
    ) {
        let (spec, widths) = (&self.spec, self.widths);
        let Widths { state: width, gates: across, scores, values: of_value } = widths;
        let of_step = steps.of_step(step);
        let (first, active) = (of_step.start, of_step.len());
        let left = &gradients.by_inputs[first * across..of_step.end * across];
        let mut by_contexts = product_then(
            (active, across, of_value),
            (left, Matrix::rows(across)),
            attention.context.right(),
            spec.products,
            None,
        );
        let by_contexts = Shared::new(&mut by_contexts);
        let by_queries = Shared::new(&mut gradients.by_queries);
        let by_energies = Shared::new(&mut gradients.by_energies);
        let (by_keys, by_values) =
            (Shared::new(&mut gradients.by_keys), Shared::new(&mut gradients.by_values));
        let one_row = |place: usize| {
            let row = first + place;
            let packed = steps.packed_row(place, step);
            let context_adjoint = &adjoint[packed * widths.out() + width..][..of_value];
            let Range { start, end } = spec.attended[steps.order[place]];
            let weights = &saved.weights[saved.first_weight[row]..saved.first_weight[row + 1]];
            // SAFETY: each place has its own rows, and the ranges of keys to which sequences attend
            // do not overlap.
            unsafe {
                let by_context = by_contexts.range(place * of_value..(place + 1) * of_value);
                add(by_context, context_adjoint);
                attend_backward(
                    &saved.queries[row * scores..(row + 1) * scores],
                    attention.energy,
                    &attention.keys[start * scores..end * scores],
                    &attention.values[start * of_value..end * of_value],
                    weights,
                    by_context,
                    &mut vec![T::default(); weights.len()],
                    by_queries.range(row * scores..(row + 1) * scores),
                    by_energies.range(place * scores..(place + 1) * scores),
                    by_keys.range(start * scores..end * scores),
                    by_values.range(start * of_value..end * of_value),
                );
            }
        };
        region(even(active.div_ceil(PIECE)), || {
            (0..active).into_par_iter().with_min_len(PIECE).for_each(one_row);
        });
    }

    /// Adds each gradient to the gradient that has been collected for its tensor.
    fn give<T: Float>(
        &self,
        steps: &TimeSteps,
        saved: &Saved<T>,
        gradients: StepGradients<T>,
        adjoints: &mut Adjoints<'_>,
    ) -> Result<()> {
        let (spec, widths) = (&self.spec, self.widths);
        let Widths { state: width, gates: across, scores, values: of_value } = widths;
        let (count, rows) = (spec.lengths.len(), steps.rows());
        let StepGradients { by_inputs, by_product, carried, carried_cells, .. } = gradients;
        let by_product = if spec.cell == Cell::Lstm { &by_inputs } else { &by_product };
        let before = states_before(&saved.states, steps, width);
        let onto = |adjoints: &mut Adjoints<'_>,
                    weight: &Tensor,
                    (grad, outputs): (&[T], usize),
                    (x, inputs): (&[T], usize)| {
            adjoints.add_with(weight, |out: &mut [T], write| {
                product(
                    (outputs, rows, inputs),
                    (grad, Matrix::rows(outputs).transposed()),
                    (x, Matrix::rows(inputs)),
                    (out, Matrix::rows(inputs)),
                    write,
                    (spec.products, Threads::All),
                );
                Ok(())
            })
        };
        onto(adjoints, &self.weight, (by_product, across), (&before, width))?;
        if let Some(bias) = self.bias {
            adjoints.give(bias, column_sums(by_product, across))?;
        }
        if let Some(attention) = &self.attention {
            let (inputs, queries) = ((&*by_inputs, across), (&*gradients.by_queries, scores));
            onto(adjoints, &attention.context, inputs, (&saved.contexts, of_value))?;
            onto(adjoints, &attention.query, queries, (&before, width))?;
            adjoints.give(&attention.energy, column_sums(&gradients.by_energies, scores))?;
            adjoints.give(&attention.keys, gradients.by_keys)?;
            adjoints.give(&attention.values, gradients.by_values)?;
        }
        if let Some(initial) = self.initial {
            let stride = spec.cell.vectors() * width;
            let mut by_initial = vec![T::default(); count * stride];
            for (place, &sequence) in steps.order.iter().enumerate() {
                let (from, to) = (place * width..(place + 1) * width, sequence * stride);
                by_initial[to..to + width].copy_from_slice(&carried[from.clone()]);
                if spec.cell == Cell::Lstm {
                    by_initial[to + width..to + stride].copy_from_slice(&carried_cells[from]);
                }
            }
            adjoints.give(initial, by_initial)?;
        }
        if adjoints.wants(self.inputs) {
            adjoints.give(self.inputs, packed(&by_inputs, steps, across))?;
        }
        Ok(())
    }
}

/// Returns the state before each row: `(N, H)`, in the order of steps.
fn states_before<T: Float>(states: &[T], steps: &TimeSteps, width: usize) -> Vec<T> {
    let mut before = Vec::with_capacity(steps.rows() * width);
    for step in 0..steps.count() {
        let (from, rows) = (steps.before(step), steps.of_step(step).len());
        before.extend_from_slice(&states[from * width..(from + rows) * width]);
    }
    before
}

/// Reorders rows from the order of steps to the order of the packed sequences.
fn packed<T: Float>(rows: &[T], steps: &TimeSteps, width: usize) -> Vec<T> {
    let mut out = vec![T::default(); rows.len()];
    for (to, row) in steps.packed_rows().into_iter().zip(rows.chunks_exact(width.max(1))) {
        out[to * width..(to + 1) * width].copy_from_slice(row);
    }
    out
}
