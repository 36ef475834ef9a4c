//! Recurrent layers over packed sequences: GRUs and LSTMs, by themselves or with additive attention
//! in each step.
//!
//! What the inputs add to the gates is one product for all rows, which a linear layer makes. What is
//! left runs over time steps: in each, one product for the states of all sequences that still have a
//! row, with the gates computed on its rows while they are in cache. On the way back the gradients of
//! the matrices are one product over all rows again.
//!
//! A step of decoding is the same operation on sequences of one row each.

mod attending;
mod backward;
mod cells;
mod forward;

pub(crate) use cells::sigmoid;

use crate::float::Float;
use crate::host::{Host, for_float};
use crate::packed_weights::{PackedWeight, PackedWeights};
use crate::products::{Matrix, Packed, Packing, Products, Right, Threads};
use crate::spec::{AdditiveAttention, Cell, Recurred, Recurrence, RecurrenceSpec};
use crate::tape::{Tape, is_fused};
use candle_core::{Result, Tensor};
use std::sync::Arc;

/// Rows that a thread takes at a time where rows are computed one by one.
const PIECE: usize = 4;

/// Runs a recurrent layer: [`Recurrence`] says what goes in, [`Cell`] what is computed.
///
/// # Shapes
/// As [`Recurrence`] and [`Recurred`] have them.
///
/// # Errors
/// When the shapes disagree.
pub fn recurrence(
    tape: Option<&Tape>,
    packs: Option<&PackedWeights>,
    given: &Recurrence<'_>,
    spec: &RecurrenceSpec,
) -> Result<Recurred> {
    check(given, spec)?;
    if !is_fused(tape, &inputs(given))? {
        return crate::composed::recurrence(given, spec);
    }
    crate::profile::time(
        "recurrence",
        || for_float!(given.inputs, T => forward::forward::<T>(tape, packs, given, spec)),
    )
}

/// The tensors that go in, in a fixed order.
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
            "recurrence: inputs {:?}, weight {:?}, bias {:?} and initial states {:?} for {} rows of \
             {sequences} sequences and {} gates",
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
            "recurrence: queries by {:?} of {sequences} sequences, energies {:?}, keys {:?} and \
             values {:?} for {} ranges, contexts by {:?}",
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

/// A weight that is multiplied with at each step, packed once where a kernel packs.
struct Repeated<'a, T> {
    values: &'a [T],
    at: Matrix,
    packed: Option<PackedWeight>,
}

impl<'a, T: Float> Repeated<'a, T> {
    /// A matrix `(k, n)` as it lies at `at`.
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

    /// The transpose of a weight `(outputs, inputs)`, for the way forward.
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

/// What the way back needs of the way forward, rows in the order of steps.
struct Saved<T> {
    /// The initial states by place, then the state of each row: `(B + N, H)`.
    states: Vec<T>,
    /// The same of the cells of an LSTM.
    cells: Vec<T>,
    /// The gates: `(N, G·H)`.
    gates: Vec<T>,
    /// Of GRUs `U_n h + b_n`: `(N, H)`.
    fresh: Vec<T>,
    /// With attention `W s`, `(N, A)`, and the contexts, `(N, V)`.
    queries: Vec<T>,
    contexts: Vec<T>,
    /// The weights of attention, of each row as many as it attends to.
    weights: Vec<T>,
    /// Where those of each row begin, and how many there are in all.
    first_weight: Vec<usize>,
}

/// Widths of everything.
#[derive(Debug, Clone, Copy)]
struct Widths {
    /// Of the state, H.
    state: usize,
    /// Of the gates together, G·H.
    gates: usize,
    /// Of queries and keys, A.
    scores: usize,
    /// Of values, V.
    values: usize,
}

impl Widths {
    fn of(given: &Recurrence<'_>, cell: Cell) -> Result<Self> {
        let state = given.weight.dim(1)?;
        let (scores, values) = match &given.attention {
            Some(attention) => (attention.keys.dim(1)?, attention.values.dim(1)?),
            None => (0, 0),
        };
        Ok(Self { state, gates: cell.gates() * state, scores, values })
    }

    /// Of a row that is given.
    fn out(self) -> usize {
        self.state + self.values
    }
}

/// The tensors of attention on the host.
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
