//! Attention of packed sequences as one operation of Candle's graph: the products are the
//! library's, with kernels of our own between them.

use super::launch::{
    Argument, address, address_of, computes, empty, launch, no_host, room, suffix,
    walking_in_pieces, word,
};
use super::softmax::{self, Softmax};
use crate::composed::CountedProduct;
use crate::spec::{AttentionShape, Dropout};
use candle_core::backend::BackendStorage;
use candle_core::{
    CpuStorage, CudaDevice, CudaStorage, CustomOp1, CustomOp2, DType, Layout, Result, Shape,
    Tensor, bail,
};
use std::sync::OnceLock;

/// Data for the attention of a batch.
#[derive(Debug, Clone)]
pub(crate) struct Sequences {
    pub(crate) shape: AttentionShape,
    /// Lengths of the longest queries and keys.
    pub(crate) longest: [usize; 2],
    /// Numbers of packed rows of queries and keys.
    pub(crate) rows: [usize; 2],
    /// Starts of sequences in the packed rows of queries and of keys, followed by the number of
    /// rows: `(B + 1,)` each, in u32.
    pub(crate) starts: [Tensor; 2],
    /// Numbers added to scores: `(B, H or 1, Tq, Tk)` in f32.
    pub(crate) mask: Tensor,
    pub(crate) dropout: Dropout,
}

/// See [`crate::composed::self_attention`]; without a bias, and `None` for types without a kernel.
///
/// # Shapes
/// `qkv (N, Q + 2·K)` → `(N, Q)`.
pub(crate) fn self_attention(qkv: &Tensor, sequences: Sequences) -> Option<Result<Tensor>> {
    let computed = || qkv.contiguous()?.apply_op1(Attention::new(sequences, qkv.dtype())?);
    computes(qkv.dtype()).then(computed)
}

/// See [`crate::composed::cross_attention`]; without a bias, and `None` for types without a kernel.
///
/// # Shapes
/// `query (N, Q)`, `key_value (M, 2·K)` → `(N, Q)`.
pub(crate) fn cross_attention(
    query: &Tensor,
    key_value: &Tensor,
    sequences: Sequences,
) -> Option<Result<Tensor>> {
    let computed = || {
        let attention = Attention::new(sequences, query.dtype())?;
        query.contiguous()?.apply_op2(&key_value.contiguous()?, attention)
    };
    computes(query.dtype()).then(computed)
}

pub(super) struct Attention {
    sequences: Sequences,
    dtype: DType,
    /// Tensors for the backward pass.
    kept: OnceLock<SavedTensors>,
}

/// Queries (scaled), `(B, H, Tq, Dh)`; keys and values, `(B, K, Tk, Dh)` each; scores, and weights
/// after dropout, `(B, H, Tq, Tk)` each.
struct SavedTensors {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scores: Tensor,
    weights: Tensor,
}

/// Some columns of packed rows: address of their first element, and length of a row.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    address: u64,
    row: usize,
}

impl Columns {
    /// Makes the columns from `first` on, of rows with length `row`.
    pub(super) fn new(address: u64, dtype: DType, row: usize, first: usize) -> Self {
        Self { address: address + (first * dtype.size_in_bytes()) as u64, row }
    }
}

impl Attention {
    const NAME: &'static str = "attention";

    pub(super) fn new(sequences: Sequences, dtype: DType) -> Result<Self> {
        let Sequences { shape, longest: [queries, keys], starts, mask, .. } = &sequences;
        let (batch, mask_heads, mask_queries, mask_keys) = mask.dims4()?;
        let is_one = [mask_queries, mask_keys] == [*queries, *keys]
            && [1, shape.heads].contains(&mask_heads)
            && starts.iter().all(|starts| starts.elem_count() == batch + 1);
        if !is_one {
            bail!("attention of {queries} queries to {keys} keys by a mask {:?}", mask.shape());
        }
        Ok(Self { sequences, dtype, kept: OnceLock::new() })
    }

    /// Columns of query, key and value in packed rows of length `row`.
    fn columns_of_parts(&self, (first, dtype): (u64, DType), row: usize) -> Result<[Columns; 3]> {
        let shape = self.sequences.shape;
        if row != shape.projected_width() {
            bail!("queries, keys and values of {shape:?} in rows of {row}");
        }
        let key = shape.query_width();
        let columns = [0, key, key + shape.key_value_width()];
        Ok(columns.map(|column| Columns::new(first, dtype, row, column)))
    }

    fn batch(&self) -> usize {
        self.sequences.starts[0].elem_count() - 1
    }

    /// Arguments of the kernels that split and merge heads: the addresses of both sides, for
    /// queries (0) or keys (1).
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

    /// Splits columns of `heads` heads of packed rows into `(B, heads, T, Dh)`.
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
        // SAFETY: rows of sequences end where `starts` says, and each has the columns.
        unsafe { launch(device, &name, walking_in_pieces(count, self.dtype), &arguments)? };
        Ok(out)
    }

    /// Merges `x (B, heads, T, Dh)` into columns of packed rows.
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
        // SAFETY: like in splitting.
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

    /// Views heads of queries as the rows of the heads of keys that they share:
    /// `(B, H, Tq, W)` → `(B, K, G·Tq, W)`.
    fn grouped(&self, x: &Tensor) -> Result<Tensor> {
        let (shape, (batch, _, queries, width)) = (self.sequences.shape, x.dims4()?);
        x.reshape((batch, shape.key_value_heads, shape.group() * queries, width))
    }

    /// Inverts [`grouped`](Self::grouped).
    fn ungrouped(&self, x: &Tensor) -> Result<Tensor> {
        let (shape, (batch, _, _, width)) = (self.sequences.shape, x.dims4()?);
        x.reshape((batch, shape.heads, self.sequences.longest[0], width))
    }

    /// Attends: `(N, Q)`, and tensors for the backward pass.
    fn forward(
        &self,
        device: &CudaDevice,
        [query, key, value]: [Columns; 3],
        [rows, key_rows]: [usize; 2],
    ) -> Result<(CudaStorage, Shape)> {
        let shape = self.sequences.shape;
        if [rows, key_rows] != self.sequences.rows || shape.fault().is_some() {
            bail!(
                "attention of {shape:?} of {rows} rows to {key_rows}, for sequences of {:?}",
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
        let out = room(device, self.dtype, rows * width)?;
        let address = address(&out, &Layout::contiguous(rows * width))?;
        self.merge(0, &mixed, Columns::new(address, self.dtype, width, 0), 1.0)?;
        // Set once, since an operation computes once.
        let _ = self.kept.set(SavedTensors { query, key, value, scores, weights });
        Ok((out, (rows, width).into()))
    }

    /// Writes the gradients of queries, keys and values into columns.
    fn back(&self, gradient: &Tensor, [query, key, value]: [Columns; 3]) -> Result<()> {
        let Some(kept) = self.kept.get() else {
            bail!("attention was never computed");
        };
        let gradient = gradient.contiguous()?;
        let (shape, width) = (self.sequences.shape, gradient.dim(1)?);
        let device = gradient.device().as_cuda_device()?;
        let columns = Columns::new(address_of(&gradient)?, self.dtype, width, 0);
        // Products over the rows of a group are sums over its heads.
        let mixed = self.grouped(&self.split(device, 0, columns, shape.heads, 1.0)?)?;
        self.merge(1, &self.grouped(&kept.weights)?.t()?.times(&mixed)?, value, 1.0)?;
        let of_weights = self.ungrouped(&mixed.times(&kept.value.t()?)?)?;
        let Sequences { mask, starts, .. } = &self.sequences;
        let of_scores =
            softmax::back(self.softmax()?, &kept.scores, mask, &starts[0], &of_weights)?;
        let of_scores = self.grouped(&of_scores)?;
        self.merge(0, &self.ungrouped(&of_scores.times(&kept.key)?)?, query, shape.scale)?;
        self.merge(1, &of_scores.t()?.times(&self.grouped(&kept.query)?)?, key, 1.0)
    }
}

impl CustomOp1 for Attention {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        no_host(Self::NAME)
    }

    fn cuda_fwd(&self, qkv: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let (rows, row) = layout.shape().dims2()?;
        let first = address(qkv, layout)?;
        let columns = self.columns_of_parts((first, qkv.dtype()), row)?;
        self.forward(&qkv.device, columns, [rows; 2])
    }

    fn bwd(&self, qkv: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let out = empty(qkv.shape(), qkv.dtype(), qkv.device().as_cuda_device()?)?;
        let (row, first) = (qkv.dim(1)?, address_of(&out)?);
        self.back(gradient, self.columns_of_parts((first, qkv.dtype()), row)?)?;
        Ok(Some(out))
    }
}

impl CustomOp2 for Attention {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        no_host(Self::NAME)
    }

    fn cuda_fwd(
        &self,
        query: &CudaStorage,
        layout: &Layout,
        key_value: &CudaStorage,
        key_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (rows, width) = layout.shape().dims2()?;
        let (key_rows, row) = key_layout.shape().dims2()?;
        let (shape, key_width) = (self.sequences.shape, self.sequences.shape.key_value_width());
        let fits = (width, row) == (shape.query_width(), 2 * key_width);
        if !fits || key_value.dtype() != query.dtype() {
            bail!("keys and values in rows of {row} for queries of {width} of {shape:?}");
        }
        let dtype = query.dtype();
        let first = address(key_value, key_layout)?;
        let part = |index: usize| Columns::new(first, dtype, row, index * key_width);
        let query_columns = Columns::new(address(query, layout)?, dtype, width, 0);
        self.forward(&query.device, [query_columns, part(0), part(1)], [rows, key_rows])
    }

    fn bwd(
        &self,
        query: &Tensor,
        key_value: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (device, dtype) = (query.device().as_cuda_device()?, query.dtype());
        let of_query = empty(query.shape(), dtype, device)?;
        let of_key_value = empty(key_value.shape(), dtype, device)?;
        let (width, row) = (query.dim(1)?, key_value.dim(1)?);
        let first = address_of(&of_key_value)?;
        let part = |index: usize| Columns::new(first, dtype, row, index * (row / 2));
        let query_columns = Columns::new(address_of(&of_query)?, dtype, width, 0);
        self.back(gradient, [query_columns, part(0), part(1)])?;
        Ok((Some(of_query), Some(of_key_value)))
    }
}
