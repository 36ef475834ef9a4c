//! Recurrent layers, composed of Candle's operations, step by step.

use super::{CountedProduct, wide, wide_type};
use crate::spec::{Cell, Recurred, Recurrence, RecurrenceSpec, TimeSteps};
use candle_core::{D, DType, Result, Tensor};

/// Computes a recurrent layer; see [`crate::recurrence()`]. Everything after the matrix products is
/// computed in f32 or wider.
///
/// # Shapes
/// The shapes of [`crate::recurrence()`].
///
/// # Errors
/// If the shapes disagree.
pub fn recurrence(recurrence: &Recurrence<'_>, spec: &RecurrenceSpec) -> Result<Recurred> {
    let steps = TimeSteps::new(&spec.lengths, spec.backwards);
    let (width, count) = (recurrence.weight.dim(1)?, spec.lengths.len());
    let (dtype, device) = (recurrence.inputs.dtype(), recurrence.inputs.device());
    let wide_dtype = wide_type(dtype);
    let rows_of = |x: &Tensor, rows: Vec<usize>| {
        let rows: Vec<u32> = rows.into_iter().map(|row| row as u32).collect();
        let count = rows.len();
        x.index_select(&Tensor::from_vec(rows, count, device)?, 0)
    };
    let weight = recurrence.weight.to_dtype(dtype)?.t()?; // (H, G·H)
    let bias = recurrence.bias.map(|bias| bias.to_dtype(wide_dtype)).transpose()?;
    let initial = match recurrence.initial {
        Some(initial) => rows_of(&wide(initial)?, steps.order.clone())?, // (B, H or 2·H)
        None => Tensor::zeros((count, spec.cell.vectors() * width), wide_dtype, device)?,
    };
    let attention = Keys::new(recurrence, spec, &steps)?;
    let mut states = vec![initial];
    let (mut outputs, mut all_weights) = (Vec::new(), Vec::new());
    for step in 0..steps.count() {
        let active = steps.of_step(step).len();
        let state = states[step].narrow(0, 0, active)?; // (R, H or 2·H)
        let hidden = state.narrow(1, 0, width)?.to_dtype(dtype)?.contiguous()?;
        let packed = (0..active).map(|place| steps.packed_row(place, step)).collect();
        let mut inputs = wide(&rows_of(recurrence.inputs, packed)?)?; // (R, G·H)
        let mut context = None;
        if let Some(keys) = &attention {
            let (weights, of_row) = keys.attend(&hidden)?;
            inputs = (inputs + wide(&keys.to_gates(&of_row)?)?)?;
            all_weights.push(weights);
            context = Some(of_row);
        }
        let mut product = wide(&hidden.times(&weight)?)?;
        if let Some(bias) = &bias {
            product = product.broadcast_add(bias)?;
        }
        let next = cell(spec.cell, &inputs, &product, &state, width)?;
        let hidden = next.narrow(1, 0, width)?.to_dtype(dtype)?;
        outputs.push(match context {
            Some(context) => Tensor::cat(&[hidden, context.to_dtype(dtype)?], 1)?,
            None => hidden,
        });
        states.push(next);
    }
    let mut place_of = vec![0; steps.rows()];
    steps.packed_rows().into_iter().enumerate().for_each(|(row, packed)| place_of[packed] = row);
    let of_rows = match outputs.is_empty() {
        // All sequences are empty.
        true => {
            let context =
                recurrence.attention.map_or(Ok(0), |attention| attention.values.dim(1))?;
            Tensor::zeros((0, width + context), dtype, device)?
        }
        false => Tensor::cat(&outputs, 0)?,
    };
    let rows = rows_of(&of_rows, place_of)?;
    let mut place = vec![0; count];
    steps.order.iter().enumerate().for_each(|(at, &sequence)| place[sequence] = steps.last(at));
    let last = rows_of(&Tensor::cat(&states, 0)?, place)?.detach().to_dtype(dtype)?;
    let weights = match spec.wants_weights && attention.is_some() {
        true => Some(dense(&all_weights, spec, &steps)?),
        false => None,
    };
    Ok(Recurred { rows, last, weights })
}

/// Computes one step of a [`Cell`] for R sequences. `inputs` and `product` are what the layer's
/// input and its state add to the gates, `(R, G·H)` each. `state` and the returned next state have
/// the shape `(R, H)` for GRUs and `(R, 2·H)` for LSTMs.
fn cell(
    cell: Cell,
    inputs: &Tensor,
    product: &Tensor,
    state: &Tensor,
    width: usize,
) -> Result<Tensor> {
    let gate_of = |x: &Tensor, gate: usize| x.narrow(1, gate * width, width);
    let sum = |gate: usize| gate_of(inputs, gate)? + gate_of(product, gate)?;
    let sigmoid = |x: Tensor| (x.neg()?.exp()? + 1.0)?.recip();
    match cell {
        Cell::Gru => {
            let (r, z) = (sigmoid(sum(0)?)?, sigmoid(sum(1)?)?);
            let n = (gate_of(inputs, 2)? + (r * gate_of(product, 2)?)?)?.tanh()?;
            &n + (z * (state - &n)?)?
        }
        Cell::Lstm => {
            let (i, f) = (sigmoid(sum(0)?)?, sigmoid(sum(1)?)?);
            let (g, o) = (sum(2)?.tanh()?, sigmoid(sum(3)?)?);
            let next = ((f * state.narrow(1, width, width)?)? + (i * g)?)?;
            Tensor::cat(&[(o * next.tanh()?)?, next], 1)
        }
    }
}

/// Keys and values that each sequence attends to. They are padded to S keys, the largest number of
/// keys of a sequence. Sequences are sorted by decreasing length.
struct Keys {
    query: Tensor,
    energy: Tensor,
    context: Tensor,
    /// Keys, `(B, S, A)`.
    keys: Tensor,
    /// Values, `(B, S, V)`.
    values: Tensor,
    /// Mask added to the scores, `(B, S)`: 0, or −∞ for keys that a sequence does not attend to.
    mask: Tensor,
}

impl Keys {
    fn new(
        recurrence: &Recurrence<'_>,
        spec: &RecurrenceSpec,
        steps: &TimeSteps,
    ) -> Result<Option<Self>> {
        let Some(attention) = &recurrence.attention else { return Ok(None) };
        let (dtype, device) = (recurrence.inputs.dtype(), recurrence.inputs.device());
        let (count, longest) =
            (steps.order.len(), spec.attended.iter().map(std::ops::Range::len).max().unwrap_or(0));
        let (mut rows, mut mask) = (Vec::new(), Vec::new());
        for &sequence in &steps.order {
            let range = spec.attended[sequence].clone();
            rows.extend((0..longest).map(|at| range.clone().nth(at).unwrap_or(0) as u32));
            mask.extend(
                (0..longest).map(|at| if at < range.len() { 0.0 } else { f64::NEG_INFINITY }),
            );
        }
        let rows = Tensor::from_vec(rows, count * longest, device)?;
        let padded = |x: &Tensor| {
            let width = x.dim(1)?;
            wide(&x.index_select(&rows, 0)?)?.reshape((count, longest, width))
        };
        let mask = Tensor::from_vec(mask, (count, longest), device)?;
        Ok(Some(Self {
            query: attention.query.to_dtype(dtype)?.t()?,
            energy: attention.energy.to_dtype(wide_type(dtype))?,
            context: attention.context.to_dtype(dtype)?.t()?,
            keys: padded(attention.keys)?,
            values: padded(attention.values)?,
            mask: mask.to_dtype(wide_type(dtype))?,
        }))
    }

    /// Attends from the states `hidden (R, H)` of the first R sequences. Returns weights `(R, S)`
    /// and contexts `(R, V)`.
    fn attend(&self, hidden: &Tensor) -> Result<(Tensor, Tensor)> {
        let active = hidden.dim(0)?;
        let queries = wide(&hidden.times(&self.query)?)?.unsqueeze(1)?; // (R, 1, A)
        let sums = self.keys.narrow(0, 0, active)?.broadcast_add(&queries)?.tanh()?;
        let scores = sums.broadcast_mul(&self.energy)?.sum(D::Minus1)?; // (R, S)
        let scores = (scores + self.mask.narrow(0, 0, active)?)?;
        let exp = scores.broadcast_sub(&scores.detach().max_keepdim(1)?)?.exp()?;
        let weights = exp.broadcast_div(&exp.sum_keepdim(1)?)?; // (R, S)
        let values = self.values.narrow(0, 0, active)?;
        let context = values.broadcast_mul(&weights.unsqueeze(2)?)?.sum(1)?; // (R, V)
        Ok((weights, context))
    }

    /// Returns the contribution of contexts to the gates: `(R, V)` → `(R, G·H)`.
    fn to_gates(&self, context: &Tensor) -> Result<Tensor> {
        context.to_dtype(self.context.dtype())?.times(&self.context)
    }
}

/// Arranges the attention weights of each step, `(R, S)`, by sequence and position: `(B, T, S)`.
fn dense(of_steps: &[Tensor], spec: &RecurrenceSpec, steps: &TimeSteps) -> Result<Tensor> {
    let keys = spec.attended.iter().map(std::ops::Range::len).max().unwrap_or(0);
    let mut all = vec![0.0_f64; spec.lengths.len() * steps.count() * keys];
    for (step, weights) in of_steps.iter().enumerate() {
        let weights = weights.to_dtype(DType::F64)?.to_vec2::<f64>()?;
        for (place, row) in weights.iter().enumerate() {
            let sequence = steps.order[place];
            let position = if spec.backwards { spec.lengths[sequence] - 1 - step } else { step };
            let to = (sequence * steps.count() + position) * keys;
            all[to..to + keys].copy_from_slice(row);
        }
    }
    let shape = (spec.lengths.len(), steps.count(), keys);
    let device = of_steps.first().map_or(&candle_core::Device::Cpu, Tensor::device);
    Tensor::from_vec(all, shape, &candle_core::Device::Cpu)?
        .to_dtype(of_steps.first().map_or(DType::F32, Tensor::dtype))?
        .to_device(device)
}
