//! Attention of packed sequences as one operation of Candle's graph: the products are the
//! library's, with kernels of our own between them.

use super::launch::{
    Argument, address, address_of, computes, empty, launch, no_host, room, suffix, walking, word,
};
use super::softmax::{self, Softmax};
use crate::composed::CountedProduct;
use crate::spec::Dropout;
use candle_core::backend::BackendStorage;
use candle_core::{
    CpuStorage, CudaDevice, CudaStorage, CustomOp1, CustomOp2, DType, Layout, Result, Shape,
    Tensor, bail,
};
use std::sync::OnceLock;

/// Data for the attention of a batch.
#[derive(Debug, Clone)]
pub(crate) struct Sequences {
    pub(crate) heads: usize,
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
/// `qkv (N, 3D)` → `(N, D)`.
pub(crate) fn self_attention(qkv: &Tensor, sequences: Sequences) -> Option<Result<Tensor>> {
    let computed = || qkv.contiguous()?.apply_op1(Attention::new(sequences, qkv.dtype())?);
    computes(qkv.dtype()).then(computed)
}

/// See [`crate::composed::cross_attention`]; without a bias, and `None` for types without a kernel.
///
/// # Shapes
/// `query (N, D)`, `key_value (M, 2D)` → `(N, D)`.
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

struct Attention {
    sequences: Sequences,
    dtype: DType,
    /// Tensors for the backward pass.
    kept: OnceLock<SavedTensors>,
}

/// Queries (scaled), keys and values, `(B, H, T, Dh)` each; scores, and weights after dropout,
/// `(B, H, Tq, Tk)` each.
struct SavedTensors {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scores: Tensor,
    weights: Tensor,
}

/// Some columns of packed rows: address of their first element, and length of a row.
#[derive(Clone, Copy)]
struct Columns {
    address: u64,
    row: usize,
}

impl Columns {
    /// Makes the columns from `first` on, of rows with length `row`.
    fn new(address: u64, dtype: DType, row: usize, first: usize) -> Self {
        Self { address: address + (first * dtype.size_in_bytes()) as u64, row }
    }
}

impl Attention {
    const NAME: &'static str = "attention";

    fn new(sequences: Sequences, dtype: DType) -> Result<Self> {
        let Sequences { heads, longest: [queries, keys], starts, mask, .. } = &sequences;
        let (batch, mask_heads, mask_queries, mask_keys) = mask.dims4()?;
        let is_one = [mask_queries, mask_keys] == [*queries, *keys]
            && [1, *heads].contains(&mask_heads)
            && starts.iter().all(|starts| starts.elem_count() == batch + 1);
        if !is_one {
            bail!("attention of {queries} queries to {keys} keys by a mask {:?}", mask.shape());
        }
        Ok(Self { sequences, dtype, kept: OnceLock::new() })
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
        width: usize,
        scale: f64,
    ) -> Result<(usize, [Argument; 9])> {
        let (heads, longest) = (self.sequences.heads, self.sequences.longest[side]);
        let count = self.batch() * longest * width;
        let arguments = [
            from.into(),
            address_of(&self.sequences.starts[side])?.into(),
            to.into(),
            (count as u64).into(),
            word(heads)?.into(),
            word(longest)?.into(),
            word(width / heads.max(1))?.into(),
            word(row)?.into(),
            scale.into(),
        ];
        Ok((count, arguments))
    }

    /// Splits `width` columns of packed rows into `(B, H, T, Dh)`.
    fn split(
        &self,
        device: &CudaDevice,
        side: usize,
        columns: Columns,
        width: usize,
        scale: f64,
    ) -> Result<Tensor> {
        let (heads, longest) = (self.sequences.heads, self.sequences.longest[side]);
        let shape = (self.batch(), heads, longest, width / heads.max(1));
        let out = empty(shape, self.dtype, device)?;
        let addresses = [columns.address, address_of(&out)?];
        let (count, arguments) = self.heads(side, addresses, columns.row, width, scale)?;
        let name = format!("split_heads_{}", suffix(self.dtype)?);
        // SAFETY: rows of sequences end where `starts` says, and each has the columns.
        unsafe { launch(device, &name, walking(count), &arguments)? };
        Ok(out)
    }

    /// Merges `x (B, H, T, Dh)` into columns of packed rows.
    fn merge(&self, side: usize, x: &Tensor, columns: Columns, scale: f64) -> Result<()> {
        let x = x.contiguous()?;
        let (_, heads, _, width) = x.dims4()?;
        let addresses = [address_of(&x)?, columns.address];
        let (count, arguments) = self.heads(side, addresses, columns.row, heads * width, scale)?;
        let name = format!("merge_heads_{}", suffix(self.dtype)?);
        // SAFETY: as for splitting.
        unsafe { launch(x.device().as_cuda_device()?, &name, walking(count), &arguments) }
    }

    fn softmax(&self) -> Result<Softmax> {
        let Sequences { heads, longest, mask, dropout, .. } = &self.sequences;
        Ok(Softmax { dropout: *dropout, shape: [*heads, mask.dim(1)?, longest[0], longest[1]] })
    }

    fn scale(&self, width: usize) -> f64 {
        ((width / self.sequences.heads.max(1)) as f64).powf(-0.5)
    }

    /// Attends: `(N, D)`, and tensors for the backward pass.
    fn forward(
        &self,
        device: &CudaDevice,
        [query, key, value]: [Columns; 3],
        [rows, key_rows]: [usize; 2],
        width: usize,
    ) -> Result<(CudaStorage, Shape)> {
        let heads = self.sequences.heads;
        if [rows, key_rows] != self.sequences.rows || heads == 0 || !width.is_multiple_of(heads) {
            bail!(
                "attention of {heads} heads of {rows} rows of {width} to {key_rows}, for sequences \
                 of {:?}",
                self.sequences.rows
            );
        }
        let query = self.split(device, 0, query, width, self.scale(width))?;
        let key = self.split(device, 1, key, width, 1.0)?;
        let value = self.split(device, 1, value, width, 1.0)?;
        let scores = query.times(&key.t()?)?;
        let Sequences { mask, starts, .. } = &self.sequences;
        let weights = softmax::forward(self.softmax()?, &scores, mask, &starts[0])?;
        let mixed = weights.times(&value)?;
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
        let width = gradient.dim(1)?;
        let device = gradient.device().as_cuda_device()?;
        let columns = Columns::new(address_of(&gradient)?, self.dtype, width, 0);
        let mixed = self.split(device, 0, columns, width, 1.0)?;
        self.merge(1, &kept.weights.t()?.times(&mixed)?, value, 1.0)?;
        let of_weights = mixed.times(&kept.value.t()?)?;
        let Sequences { mask, starts, .. } = &self.sequences;
        let of_scores =
            softmax::back(self.softmax()?, &kept.scores, mask, &starts[0], &of_weights)?;
        self.merge(0, &of_scores.times(&kept.key)?, query, self.scale(width))?;
        self.merge(1, &of_scores.t()?.times(&kept.query)?, key, 1.0)
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
        if !row.is_multiple_of(3) {
            bail!("queries, keys and values in rows of {row}");
        }
        let (width, first) = (row / 3, address(qkv, layout)?);
        let part = |index: usize| Columns::new(first, qkv.dtype(), row, index * width);
        self.forward(&qkv.device, [part(0), part(1), part(2)], [rows; 2], width)
    }

    fn bwd(&self, qkv: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let out = empty(qkv.shape(), qkv.dtype(), qkv.device().as_cuda_device()?)?;
        let (row, first) = (qkv.dim(1)?, address_of(&out)?);
        let part = |index: usize| Columns::new(first, qkv.dtype(), row, index * (row / 3));
        self.back(gradient, [part(0), part(1), part(2)])?;
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
        if row != 2 * width || key_value.dtype() != query.dtype() {
            bail!("keys and values in rows of {row} for queries of {width}");
        }
        let dtype = query.dtype();
        let first = address(key_value, key_layout)?;
        let part = |index: usize| Columns::new(first, dtype, row, index * width);
        let query_columns = Columns::new(address(query, layout)?, dtype, width, 0);
        self.forward(&query.device, [query_columns, part(0), part(1)], [rows, key_rows], width)
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
        let part = |index: usize| Columns::new(first, dtype, row, index * width);
        let query_columns = Columns::new(address_of(&of_query)?, dtype, width, 0);
        self.back(gradient, [query_columns, part(0), part(1)])?;
        Ok((Some(of_query), Some(of_key_value)))
    }
}
