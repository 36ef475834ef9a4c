//! Attention of packed sequences (one row for each real token, without padding): the CUDA library
//! computes the matrix products, and Taper's own kernels compute the rest.

use super::launch::{Argument, address_of, empty, launch, suffix, walking_in_pieces, word};
use super::softmax::{self, Softmax};
use crate::composed::CountedProduct;
use crate::composed::attention::{longest, mask};
use crate::composed::recent::Recent;
use crate::spec::{AttentionShape, AttentionSpec, Dropout};
use crate::tape::{Slot, Tape};
use candle_core::{CudaDevice, DType, Device, Result, Tensor, bail};
use std::sync::Arc;

/// Data for the attention of a batch, which all layers of the model share.
#[derive(Debug, Clone)]
pub(super) struct Sequences {
    pub(super) shape: AttentionShape,
    /// Numbers of queries and of keys in the longest sequences.
    pub(super) longest: [usize; 2],
    /// Numbers of packed rows of queries and of keys.
    pub(super) rows: [usize; 2],
    /// Index of the first packed row of each sequence, for queries and for keys, followed by the
    /// number of rows: `(B + 1,)` each, in u32.
    pub(super) starts: [Tensor; 2],
    /// Numbers that are added to the scores: `(B, H or 1, Tq, Tk)` in f32.
    pub(super) mask: Tensor,
    pub(super) dropout: Dropout,
}

impl Sequences {
    fn new(spec: &AttentionSpec, device: &Device) -> Result<Self> {
        static STARTS: Recent<Arc<[usize]>> = Recent::new();
        let starts = |lengths: &Arc<[usize]>| {
            STARTS.get(lengths.clone(), device, || {
                let mut starts = vec![0u32];
                starts.extend(lengths.iter().scan(0, |end, &length| {
                    *end += length as u32;
                    Some(*end)
                }));
                Tensor::from_slice(&starts, starts.len(), device)
            })
        };
        let [queries, keys] = longest(spec, device)?;
        Ok(Self {
            shape: spec.shape,
            longest: [queries, keys],
            rows: [&spec.query_lengths, &spec.key_lengths].map(|lengths| lengths.iter().sum()),
            starts: [starts(&spec.query_lengths)?, starts(&spec.key_lengths)?],
            mask: mask(spec, queries, keys, DType::F32, device)?,
            dropout: spec.dropout,
        })
    }
}

/// Computes self-attention without a bias; see [`crate::self_attention()`].
///
/// # Shapes
/// The shapes of [`crate::self_attention()`].
///
/// # Errors
/// If the shapes disagree.
pub(super) fn self_attention(
    tape: Option<&Tape>,
    qkv: &Tensor,
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let attention = Attention::new(Sequences::new(spec, qkv.device())?, qkv.dtype())?;
    let packed = qkv.detach().contiguous()?;
    let (rows, row) = packed.dims2()?;
    let columns = attention.columns_of_parts(address_of(&packed)?, row)?;
    let (out, saved) = attention.forward(packed.device(), columns, [rows; 2])?;
    if let Some(tape) = tape {
        let (of_qkv, shape) = (Slot::from(qkv), qkv.shape().clone());
        tape.record_tensors("attention", &[qkv], &out, move |gradient, adjoints| {
            let device = gradient.device().as_cuda_device()?;
            let of_all = empty(shape, gradient.dtype(), device)?;
            let columns = attention.columns_of_parts(address_of(&of_all)?, row)?;
            attention.back(&saved, &gradient, columns)?;
            adjoints.give_tensor(of_qkv, of_all)
        })?;
    }
    Ok(out)
}

/// Computes cross-attention without a bias; see [`crate::cross_attention()`]. The rows of `query`
/// must contain queries only.
///
/// # Shapes
/// The shapes of [`crate::cross_attention()`].
///
/// # Errors
/// If the shapes disagree.
pub(super) fn cross_attention(
    tape: Option<&Tape>,
    query: &Tensor,
    key_value: &Tensor,
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let ((rows, width), (key_rows, row)) = (query.dims2()?, key_value.dims2()?);
    let (shape, dtype) = (spec.shape, query.dtype());
    let fits = (width, row) == (shape.query_width(), 2 * shape.key_value_width());
    if !fits || key_value.dtype() != dtype {
        bail!(
            "keys and values in rows of {row} do not fit queries in rows of {width} and {shape:?}"
        );
    }
    let columns = move |query: &Tensor, key_value: &Tensor| -> Result<[Columns; 3]> {
        let first = address_of(key_value)?;
        let part = |index: usize| Columns::new(first, dtype, row, index * (row / 2));
        Ok([Columns::new(address_of(query)?, dtype, width, 0), part(0), part(1)])
    };
    let attention = Attention::new(Sequences::new(spec, query.device())?, dtype)?;
    let (queries, keys) = (query.detach().contiguous()?, key_value.detach().contiguous()?);
    let given = columns(&queries, &keys)?;
    let (out, saved) = attention.forward(query.device(), given, [rows, key_rows])?;
    if let Some(tape) = tape {
        let slots = [query, key_value].map(Slot::from);
        tape.record_tensors("attention", &[query, key_value], &out, move |gradient, adjoints| {
            let device = gradient.device().as_cuda_device()?;
            let of_query = empty((rows, width), dtype, device)?;
            let of_key_value = empty((key_rows, row), dtype, device)?;
            attention.back(&saved, &gradient, columns(&of_query, &of_key_value)?)?;
            adjoints.give_tensor(slots[0], of_query)?;
            adjoints.give_tensor(slots[1], of_key_value)
        })?;
    }
    Ok(out)
}

pub(super) struct Attention {
    sequences: Sequences,
    dtype: DType,
}

/// Tensors for the backward pass: scaled queries, `(B, H, Tq, Dh)`; keys and values,
/// `(B, K, Tk, Dh)` each; scores, and weights after dropout, `(B, H, Tq, Tk)` each.
struct SavedTensors {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scores: Tensor,
    weights: Tensor,
}

/// Some columns of packed rows: address of their first element, and width of a whole row.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    address: u64,
    row: usize,
}

impl Columns {
    /// Selects the columns from `first` on, in rows of width `row`.
    pub(super) fn new(address: u64, dtype: DType, row: usize, first: usize) -> Self {
        Self { address: address + (first * dtype.size_in_bytes()) as u64, row }
    }
}

impl Attention {
    pub(super) fn new(sequences: Sequences, dtype: DType) -> Result<Self> {
        let Sequences { shape, longest: [queries, keys], starts, mask, .. } = &sequences;
        let (batch, mask_heads, mask_queries, mask_keys) = mask.dims4()?;
        let is_one = [mask_queries, mask_keys] == [*queries, *keys]
            && [1, shape.heads].contains(&mask_heads)
            && starts.iter().all(|starts| starts.elem_count() == batch + 1);
        if !is_one {
            bail!(
                "attention of {queries} queries to {keys} keys does not fit a mask of {:?}",
                mask.shape()
            );
        }
        Ok(Self { sequences, dtype })
    }

    /// Returns the columns of query, key and value in packed rows of width `row`, whose first
    /// element is at `first`.
    fn columns_of_parts(&self, first: u64, row: usize) -> Result<[Columns; 3]> {
        let shape = self.sequences.shape;
        if row != shape.projected_width() {
            bail!("queries, keys and values of {shape:?} do not fit rows of {row}");
        }
        let key = shape.query_width();
        let columns = [0, key, key + shape.key_value_width()];
        Ok(columns.map(|column| Columns::new(first, self.dtype, row, column)))
    }

    fn batch(&self) -> usize {
        self.sequences.starts[0].elem_count() - 1
    }

    /// Returns the number of elements, and the arguments of the kernels that split and merge heads.
    /// The kernels copy from the first address to the second. `side` is 0 for queries, and 1 for
    /// keys and values.
    fn heads(
        &self,
        side: usize,
        [from, to]: [u64; 2],
        row: usize,
        heads: usize,
        scale: f64,
    ) -> Result<(usize, [Argument; 9])> {
        let (head, longest) = (self.sequences.shape.head_width, self.sequences.longest[side]);
        let count = self.batch() * longest * heads * head;
        let arguments = [
            from.into(),
            address_of(&self.sequences.starts[side])?.into(),
            to.into(),
            (count as u64).into(),
            word(heads)?.into(),
            word(longest)?.into(),
            word(head)?.into(),
            word(row)?.into(),
            scale.into(),
        ];
        Ok((count, arguments))
    }

    /// Copies columns of packed rows, which have `heads` heads, to a tensor `(B, heads, T, Dh)`,
    /// multiplied by `scale`.
    pub(super) fn split(
        &self,
        device: &CudaDevice,
        side: usize,
        columns: Columns,
        heads: usize,
        scale: f64,
    ) -> Result<Tensor> {
        let (head, longest) = (self.sequences.shape.head_width, self.sequences.longest[side]);
        let shape = (self.batch(), heads, longest, head);
        let out = empty(shape, self.dtype, device)?;
        let addresses = [columns.address, address_of(&out)?];
        let (count, arguments) = self.heads(side, addresses, columns.row, heads, scale)?;
        let name = format!("split_heads_{}", suffix(self.dtype)?);
        // SAFETY: the rows of a sequence end where `starts` says, and each row has these columns.
        unsafe { launch(device, &name, walking_in_pieces(count, self.dtype), &arguments)? };
        Ok(out)
    }

    /// Copies `x (B, heads, T, Dh)` to columns of packed rows, multiplied by `scale`.
    pub(super) fn merge(
        &self,
        side: usize,
        x: &Tensor,
        columns: Columns,
        scale: f64,
    ) -> Result<()> {
        let x = x.contiguous()?;
        let heads = x.dim(1)?;
        let addresses = [address_of(&x)?, columns.address];
        let (count, arguments) = self.heads(side, addresses, columns.row, heads, scale)?;
        let name = format!("merge_heads_{}", suffix(self.dtype)?);
        // SAFETY: as in `split`.
        unsafe {
            let grid = walking_in_pieces(count, self.dtype);
            launch(x.device().as_cuda_device()?, &name, grid, &arguments)
        }
    }

    pub(super) fn softmax(&self) -> Result<Softmax> {
        let Sequences { shape, longest, mask, dropout, .. } = &self.sequences;
        let shape = [shape.heads, mask.dim(1)?, longest[0], longest[1]];
        Ok(Softmax { dropout: *dropout, shape })
    }

    /// Views the heads of queries that share a key head as rows of this head: `(B, H, Tq, W)` →
    /// `(B, K, G·Tq, W)`.
    fn grouped(&self, x: &Tensor) -> Result<Tensor> {
        let (shape, (batch, _, queries, width)) = (self.sequences.shape, x.dims4()?);
        x.reshape((batch, shape.key_value_heads, shape.group() * queries, width))
    }

    /// Inverts [`grouped`](Self::grouped).
    fn ungrouped(&self, x: &Tensor) -> Result<Tensor> {
        let (shape, (batch, _, _, width)) = (self.sequences.shape, x.dims4()?);
        x.reshape((batch, shape.heads, self.sequences.longest[0], width))
    }

    /// Computes attention: returns the result, `(N, Q)`, and tensors for the backward pass.
    fn forward(
        &self,
        device: &Device,
        [query, key, value]: [Columns; 3],
        [rows, key_rows]: [usize; 2],
    ) -> Result<(Tensor, SavedTensors)> {
        let (shape, device) = (self.sequences.shape, device.as_cuda_device()?);
        if [rows, key_rows] != self.sequences.rows || shape.fault().is_some() {
            bail!(
                "attention of {shape:?} of {rows} rows to {key_rows} rows does not fit sequences \
                 of {:?} rows",
                self.sequences.rows
            );
        }
        let width = shape.query_width();
        let query = self.split(device, 0, query, shape.heads, shape.scale)?;
        let key = self.split(device, 1, key, shape.key_value_heads, 1.0)?;
        let value = self.split(device, 1, value, shape.key_value_heads, 1.0)?;
        let scores = self.ungrouped(&self.grouped(&query)?.times(&key.t()?)?)?;
        let Sequences { mask, starts, .. } = &self.sequences;
        let weights = softmax::forward(self.softmax()?, &scores, mask, &starts[0])?;
        let mixed = self.ungrouped(&self.grouped(&weights)?.times(&value)?)?;
        let out = empty((rows, width), self.dtype, device)?;
        self.merge(0, &mixed, Columns::new(address_of(&out)?, self.dtype, width, 0), 1.0)?;
        Ok((out, SavedTensors { query, key, value, scores, weights }))
    }

    /// Writes the gradients with respect to queries, keys and values to their columns.
    fn back(
        &self,
        saved: &SavedTensors,
        gradient: &Tensor,
        [query, key, value]: [Columns; 3],
    ) -> Result<()> {
        let (shape, width) = (self.sequences.shape, gradient.dim(1)?);
        let device = gradient.device().as_cuda_device()?;
        let columns = Columns::new(address_of(gradient)?, self.dtype, width, 0);
        // Each product sums over the rows of a group, and therefore over the query heads that share
        // a key head.
        let mixed = self.grouped(&self.split(device, 0, columns, shape.heads, 1.0)?)?;
        self.merge(1, &self.grouped(&saved.weights)?.t()?.times(&mixed)?, value, 1.0)?;
        let of_weights = self.ungrouped(&mixed.times(&saved.value.t()?)?)?;
        let Sequences { mask, starts, .. } = &self.sequences;
        let of_scores =
            softmax::back(self.softmax()?, &saved.scores, mask, &starts[0], &of_weights)?;
        let of_scores = self.grouped(&of_scores)?;
        self.merge(0, &self.ungrouped(&of_scores.times(&saved.key)?)?, query, shape.scale)?;
        self.merge(1, &of_scores.t()?.times(&self.grouped(&saved.query)?)?, key, 1.0)
    }
}
