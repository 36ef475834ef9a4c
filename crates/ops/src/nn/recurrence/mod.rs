//! Recurrent layers over packed sequences (one row for each token, without padding): GRUs and
//! LSTMs, with or without additive attention in each step.
//!
//! The contribution of the layer's input to the gates is a single product for all rows, which a
//! separate linear layer computes. The rest is computed step by step. In a step, one product
//! multiplies the states of all sequences that still have a row. The gates of these rows are
//! computed while they are in the cache. In the backward pass, the gradient with respect to each
//! matrix is again a single product over all rows.
//!
//! In decoding, the same operation computes one step, on sequences of one row each.

mod attending;
mod backward;
mod cells;
mod forward;

use crate::composed;
use crate::float::Float;
use crate::host::{Host, for_float};
use crate::packed_weights::{PackedWeight, PackedWeights};
use crate::products::{Matrix, Packed, Packing, Products, Right, Threads};
use crate::spec::{AdditiveAttention, Cell, Recurred, Recurrence, RecurrenceSpec};
use crate::tape::{Tape, is_fused};
use candle_core::{Result, Tensor};
use std::sync::Arc;

/// Number of rows in one task, for work that treats each row separately.
const PIECE: usize = 4;

/// Runs a recurrent layer. [`Recurrence`] describes its inputs, and [`Cell`] its equations.
///
/// # Shapes
/// See [`Recurrence`] for the inputs, and [`Recurred`] for the results.
///
/// # Errors
/// If the shapes disagree.
pub fn recurrence(
    tape: Option<&Tape>,
    packs: Option<&PackedWeights>,
    given: &Recurrence<'_>,
    spec: &RecurrenceSpec,
) -> Result<Recurred> {
    check(given, spec)?;
    if !is_fused(tape, &inputs(given))? {
        return elsewhere(tape, given, spec);
    }
    crate::profile::time(
        "recurrence",
        || for_float!(given.inputs, T => forward::forward::<T>(tape, packs, given, spec)),
    )
}

/// Computes the layer by Candle's operations, and records it on the tape if there is one.
fn elsewhere(
    tape: Option<&Tape>,
    given: &Recurrence<'_>,
    spec: &RecurrenceSpec,
) -> Result<Recurred> {
    let Some(tape) = tape else { return composed::recurrence(given, spec) };
    let (mut last, mut weights) = (None, None);
    let rows = composed::on_tape(Some(tape), "recurrence", &inputs(given), |v| {
        let mut rest = v[2..].iter();
        let bias = given.bias.and_then(|_| rest.next());
        let initial = given.initial.and_then(|_| rest.next());
        let attention = match rest.as_slice() {
            [query, energy, keys, values, context] => {
                Some(AdditiveAttention { query, energy, keys, values, context })
            }
            _ => None,
        };
        let given = Recurrence { inputs: &v[0], weight: &v[1], bias, initial, attention };
        let recurred = composed::recurrence(&given, spec)?;
        last = Some(recurred.last.detach());
        weights = recurred.weights.map(|weights| weights.detach());
        Ok(recurred.rows)
    })?;
    let Some(last) = last else { candle_core::bail!("the recurrence gave no states") };
    Ok(Recurred { rows, last, weights })
}

/// Returns the input tensors in a fixed order.
fn inputs<'a>(given: &Recurrence<'a>) -> Vec<&'a Tensor> {
    let attention = given.attention.iter().flat_map(|attention| {
        let AdditiveAttention { query, energy, keys, values, context } = *attention;
        [query, energy, keys, values, context]
    });
    [given.inputs, given.weight]
        .into_iter()
        .chain(given.bias)
        .chain(given.initial)
        .chain(attention)
        .collect()
}

fn check(given: &Recurrence<'_>, spec: &RecurrenceSpec) -> Result<()> {
    let (rows, across) = given.inputs.dims2()?;
    let (outputs, width) = given.weight.dims2()?;
    let sequences = spec.lengths.len();
    let gates = spec.cell.gates() * width;
    let state = spec.cell.vectors() * width;
    if across != gates
        || outputs != gates
        || spec.lengths.iter().sum::<usize>() != rows
        || given.bias.is_some_and(|bias| bias.elem_count() != gates)
        || given.initial.is_some_and(|initial| initial.dims() != [sequences, state])
    {
        candle_core::bail!(
            "recurrence: inputs {:?}, weight {:?}, bias {:?} and initial states {:?} do not fit {} \
             rows of {sequences} sequences and {} gates",
            given.inputs.shape(),
            given.weight.shape(),
            given.bias.map(Tensor::shape),
            given.initial.map(Tensor::shape),
            spec.lengths.iter().sum::<usize>(),
            spec.cell.gates()
        );
    }
    let Some(attention) = &given.attention else { return Ok(()) };
    let ((keys, scores), (values, of_value)) = (attention.keys.dims2()?, attention.values.dims2()?);
    let is_inside = |range: &std::ops::Range<usize>| range.start < range.end && range.end <= keys;
    if keys != values
        || attention.query.dims() != [scores, width]
        || attention.energy.elem_count() != scores
        || attention.context.dims() != [gates, of_value]
        || spec.attended.len() != sequences
        || !spec.attended.iter().all(is_inside)
    {
        candle_core::bail!(
            "recurrence: shapes do not fit together: queries by {:?} of {sequences} sequences, \
             energies {:?}, keys {:?} and values {:?} for {} ranges, contexts by {:?}",
            attention.query.shape(),
            attention.energy.shape(),
            attention.keys.shape(),
            attention.values.shape(),
            spec.attended.len(),
            attention.context.shape()
        );
    }
    Ok(())
}

/// A weight matrix that every step uses. It is packed (copied to the kernel's order) once, if the
/// kernel uses packed matrices.
struct Repeated<'a, T> {
    values: &'a [T],
    at: Matrix,
    packed: Option<PackedWeight>,
}

impl<'a, T: Float> Repeated<'a, T> {
    /// Prepares a matrix `(k, n)` whose elements lie as `at` describes.
    fn new(
        (values, at): (&'a [T], Matrix),
        (depth, columns): (usize, usize),
        products: Products,
    ) -> Self {
        let packed = T::as_f32(values).zip(Packing::best(products)).map(|(values, packing)| {
            let how = (packing, Threads::All);
            PackedWeight::Float(Arc::new(Packed::right((values, at), depth, columns, how)))
        });
        Self { values, at, packed }
    }

    /// Prepares the transpose of a weight `(outputs, inputs)`, for the forward pass.
    fn transposed(
        values: &'a [T],
        weight: &Tensor,
        packs: Option<&PackedWeights>,
        products: Products,
    ) -> Result<Self> {
        let (outputs, inputs) = weight.dims2()?;
        let at = Matrix::rows(inputs).transposed();
        Ok(match packs {
            Some(packs) => Self { values, at, packed: packs.get(weight, products)? },
            None => Self::new((values, at), (inputs, outputs), products),
        })
    }

    fn right(&self) -> Right<'_, T> {
        match &self.packed {
            Some(packed) => packed.right(),
            None => Right::Plain(self.values, self.at),
        }
    }
}

/// Data that the forward pass saves for the backward pass. Rows are in the order of steps: by step,
/// and within a step by place (longest sequence first).
struct Saved<T> {
    /// Initial states h by place, followed by the state of each row: `(B + N, H)`.
    states: Vec<T>,
    /// Initial cells c of an LSTM by place, followed by the cell of each row: `(B + N, H)`.
    cells: Vec<T>,
    /// Values of the gates: `(N, G·H)`.
    gates: Vec<T>,
    /// `U_n h + b_n` of a GRU: `(N, H)`.
    fresh: Vec<T>,
    /// With attention: the queries `W s`, `(N, A)`, and the contexts, `(N, V)`.
    queries: Vec<T>,
    contexts: Vec<T>,
    /// Attention weights of all rows, one row after the other. A row has one weight for each key
    /// that it attends to.
    weights: Vec<T>,
    /// Index in `weights` of the first weight of each row, followed by the total number of weights.
    first_weight: Vec<usize>,
}

/// Widths of states, gates, keys and values of a layer.
#[derive(Debug, Clone, Copy)]
struct Widths {
    /// Width of the state, H.
    state: usize,
    /// Width of all gates together, G·H.
    gates: usize,
    /// Width of queries and keys, A.
    scores: usize,
    /// Width of values, V.
    values: usize,
}

impl Widths {
    fn new(given: &Recurrence<'_>, cell: Cell) -> Result<Self> {
        let state = given.weight.dim(1)?;
        let (scores, values) = match &given.attention {
            Some(attention) => (attention.keys.dim(1)?, attention.values.dim(1)?),
            None => (0, 0),
        };
        Ok(Self { state, gates: cell.gates() * state, scores, values })
    }

    /// Returns the width of a result row: state and context.
    fn out(self) -> usize {
        self.state + self.values
    }
}

/// Elements of the tensors of attention, on the host.
struct AttentionHosts<'a> {
    query: Host<'a>,
    energy: Host<'a>,
    keys: Host<'a>,
    values: Host<'a>,
    context: Host<'a>,
}

impl<'a> AttentionHosts<'a> {
    fn new(attention: &AdditiveAttention<'a>) -> Result<Self> {
        Ok(Self {
            query: Host::new(attention.query)?,
            energy: Host::new(attention.energy)?,
            keys: Host::new(attention.keys)?,
            values: Host::new(attention.values)?,
            context: Host::new(attention.context)?,
        })
    }
}

/// Operands of attention. The matrices that every step uses are prepared for the current pass; they
/// are transposed in the forward pass.
struct Attended<'a, T> {
    context: Repeated<'a, T>,
    query: Repeated<'a, T>,
    energy: &'a [T],
    keys: &'a [T],
    values: &'a [T],
}
