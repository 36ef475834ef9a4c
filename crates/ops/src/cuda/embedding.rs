//! Embedding lookup, with a backward pass that sums the gradients for each row of the table.
//!
//! Candle's backward pass of a lookup adds to rows with one thread for each column. This thread
//! goes over all selected rows, which takes a millisecond, where other operations take
//! microseconds. Here the gradient with respect to each row is the sum over the row's uses, in
//! order. It is added in place to the buffer that holds the gradients of all parameters.

use super::launch::{THREADS, address_of, launch, suffix, word};
use super::rows::looked_up;
use crate::composed;
use crate::spec::EmbeddingSpec;
use crate::tape::{Adjoints, Slot, Tape};
use candle_core::{DType, Result, Shape, Tensor};
use std::sync::Arc;

/// Looks up embeddings; see [`crate::embedding()`], which has checked the indices.
///
/// # Shapes
/// The shapes of [`crate::embedding()`].
///
/// # Errors
/// If the device has no memory left.
pub(super) fn embedding(
    tape: Option<&Tape>,
    table: &Tensor,
    positions: Option<&Tensor>,
    spec: &EmbeddingSpec,
) -> Result<Tensor> {
    let found = |table: &Tensor, ids: &Arc<[u32]>| {
        let index = Tensor::from_slice(ids, ids.len(), table.device())?;
        looked_up(&table.detach(), &index)?.to_dtype(DType::F32)
    };
    let mut out = found(table, &spec.ids)?;
    if spec.scale != 1.0 {
        out = (out * spec.scale)?;
    }
    if let Some(positions) = positions {
        out = (out + found(positions, &spec.positions)?)?;
    }
    let out = composed::drop(&out, spec.dropout)?.to_dtype(table.dtype())?;
    if let Some(tape) = tape {
        let inputs: Vec<&Tensor> = [table].into_iter().chain(positions).collect();
        let place = |table: &Tensor| (Slot::from(table), table.shape().clone(), table.dtype());
        let (table, positions, spec) = (place(table), positions.map(place), spec.clone());
        tape.record_tensors("embedding", &inputs, &out, move |gradient, adjoints| {
            let gradient = composed::drop(&gradient, spec.dropout)?;
            let mut give = |(slot, shape, dtype), ids: &Arc<[u32]>, scale| {
                let uses = Uses { gradient: &gradient, ids, scale };
                uses.give(slot, shape, dtype, adjoints)
            };
            give(table, &spec.ids, spec.scale)?;
            match positions {
                Some(positions) => give(positions, &spec.positions, 1.0),
                None => Ok(()),
            }
        })?;
    }
    Ok(out)
}

/// Indices of looked-up rows of a table, with the gradient with respect to each result row:
/// `(M, D)`.
struct Uses<'a> {
    gradient: &'a Tensor,
    ids: &'a Arc<[u32]>,
    scale: f64,
}

impl Uses<'_> {
    /// Adds the gradient with respect to the table to the gradient that the tape has collected for
    /// it.
    fn give(
        &self,
        table: Slot,
        shape: Shape,
        dtype: DType,
        adjoints: &mut Adjoints<'_>,
    ) -> Result<()> {
        if !adjoints.wants(table) {
            return Ok(());
        }
        // The flat buffer is in f32, like the sums.
        if let Some((part, _)) = adjoints.part_of(table)? {
            return Uses { gradient: &self.gradient.to_dtype(DType::F32)?, ..*self }.add_to(&part);
        }
        let out = Tensor::zeros(shape, self.gradient.dtype(), self.gradient.device())?;
        self.add_to(&out)?;
        adjoints.give_tensor(table, out.to_dtype(dtype)?)
    }

    /// Adds to each row of `out`, which has the type of the gradient, the sum of gradients over the
    /// row's uses.
    fn add_to(&self, out: &Tensor) -> Result<()> {
        let Self { gradient, ids, scale } = *self;
        let width = gradient.dim(1)?;
        let mut order: Vec<u32> = (0..word(ids.len())?).collect();
        order.sort_by_key(|&at| ids[at as usize]);
        let (mut found, mut ends) = (Vec::new(), Vec::new());
        for same in order.chunk_by(|&a, &b| ids[a as usize] == ids[b as usize]) {
            found.push(ids[same[0] as usize]);
            ends.push(ends.last().copied().unwrap_or(0) + same.len() as u32);
        }
        let count = found.len();
        let numbers: Vec<u32> = [found, ends, order].concat();
        let numbers = Tensor::from_slice(&numbers, numbers.len(), gradient.device())?;
        let part = |start, len| address_of(&numbers.narrow(0, start, len)?);
        let arguments = [
            address_of(gradient)?.into(),
            part(0, count)?.into(),
            part(count, count)?.into(),
            part(2 * count, ids.len())?.into(),
            address_of(out)?.into(),
            word(width)?.into(),
            scale.into(),
        ];
        let name = format!("row_sums_{}", suffix(gradient.dtype())?);
        // Rows are in x, because a grid can have at most 65,535 blocks in y.
        let grid = (count, width.div_ceil(THREADS));
        // SAFETY: each id is the index of a row of `out`, as the lookup has checked; `order` has
        // the index of every row of the gradient.
        unsafe { launch(gradient.device().as_cuda_device()?, &name, grid, &arguments) }
    }
}
