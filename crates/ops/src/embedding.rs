//! Embedding lookup: `dropout(table[ids] · scale + positions[position])` (Vaswani et al. 2017, section 3.4).

use crate::dropout::{Dropout, dropped};
use crate::parallel::CHUNK;
use crate::real::{Host, elements, for_real, is_fused};
use crate::residual::drop_elements;
use candle_core::{CpuStorage, CustomOp1, CustomOp2, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use std::sync::Arc;

/// What an embedding lookup computes, beside its tables.
#[derive(Debug, Clone)]
pub struct Embedding {
    /// Row of the table for each token.
    pub ids: Arc<[u32]>,
    /// Row of the position table for each token.
    pub positions: Arc<[u32]>,
    /// Factor of the looked-up rows, not of the positions.
    pub scale: f64,
    /// Dropout on the sum.
    pub dropout: Dropout,
}

/// Looks up `spec.ids`, scales, adds positions and drops.
///
/// # Shapes
/// `table (V, D)`, `positions (P, D)`, N ids → `(N, D)`.
///
/// # Errors
/// When an id or position is not in its table, or the widths differ.
pub fn embedding(table: &Tensor, positions: Option<&Tensor>, spec: &Embedding) -> Result<Tensor> {
    let inside = |what: &str, rows: &[u32], count: usize| match rows.iter().find(|&&row| row as usize >= count) {
        Some(row) => candle_core::bail!("embedding: {what} {row} in a table of {count} rows"),
        None => Ok(()),
    };
    inside("id", &spec.ids, table.dim(0)?)?;
    if let Some(positions) = positions {
        inside("position", &spec.positions, positions.dim(0)?)?;
        if positions.dim(1)? != table.dim(1)? || spec.positions.len() != spec.ids.len() {
            candle_core::bail!(
                "embedding: {} ids and {} positions, tables {:?} and {:?}",
                spec.ids.len(),
                spec.positions.len(),
                table.shape(),
                positions.shape()
            );
        }
    }
    if !is_fused(table) {
        return crate::composed::embedding(table, positions, spec);
    }
    let op = Lookup { spec: spec.clone(), learn_positions: positions.is_some_and(Tensor::track_op) };
    match positions {
        Some(positions) => table.contiguous()?.apply_op2(&positions.contiguous()?, op),
        None => table.contiguous()?.apply_op1(op),
    }
}

struct Lookup {
    spec: Embedding,
    learn_positions: bool,
}

impl Lookup {
    fn forward<T: crate::real::Real>(&self, table: &[T], positions: Option<&[T]>, width: usize) -> (CpuStorage, Shape) {
        let rows = self.spec.ids.len();
        let scale = T::of(self.spec.scale);
        let mut out = vec![T::default(); rows * width];
        let piece = (CHUNK / width.max(1)).max(1);
        out.par_chunks_mut(piece * width).enumerate().for_each(|(chunk, out)| {
            let mut sum = vec![T::default(); out.len()];
            for (row, sum) in sum.chunks_exact_mut(width).enumerate() {
                let id = self.spec.ids[chunk * piece + row] as usize;
                for (sum, value) in sum.iter_mut().zip(&table[id * width..(id + 1) * width]) {
                    *sum = *value * scale;
                }
                if let Some(positions) = positions {
                    let position = self.spec.positions[chunk * piece + row] as usize;
                    for (sum, value) in sum.iter_mut().zip(&positions[position * width..(position + 1) * width]) {
                        *sum += *value;
                    }
                }
            }
            if self.spec.dropout.is_active() {
                dropped(&sum, out, chunk * piece * width, self.spec.dropout);
            } else {
                out.copy_from_slice(&sum);
            }
        });
        (T::to_cpu_storage_owned(out), Shape::from((rows, width)))
    }

    /// Adds each row of the gradient to its row of the table, in the order of the tokens.
    fn backward(&self, table: &Tensor, positions: Option<&Tensor>, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        let width = table.dim(1)?;
        for_real!(&grad, T => {
            let grad = if self.spec.dropout.is_active() { drop_elements::<T>(&grad, self.spec.dropout)? } else { grad };
            let host = Host::new(&grad);
            let values = host.elements::<T>()?;
            let scatter = |shape: &Tensor, rows: &[u32], scale: T| -> Result<Tensor> {
                let mut out = vec![T::default(); shape.elem_count()];
                for (row, grad) in rows.iter().zip(values.chunks_exact(width)) {
                    let start = *row as usize * width;
                    for (out, grad) in out[start..start + width].iter_mut().zip(grad) {
                        *out += *grad * scale;
                    }
                }
                Tensor::from_vec(out, shape.shape(), shape.device())
            };
            let grad_table = scatter(table, &self.spec.ids, <T as crate::real::Real>::of(self.spec.scale))?;
            let grad_positions = match positions {
                Some(positions) if self.learn_positions => Some(scatter(positions, &self.spec.positions, <T as crate::real::Real>::of(1.0))?),
                _ => None,
            };
            Ok((Some(grad_table), grad_positions))
        })
    }
}

impl CustomOp1 for Lookup {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn cpu_fwd(&self, table: &CpuStorage, at: &Layout) -> Result<(CpuStorage, Shape)> {
        let (_, width) = at.shape().dims2()?;
        for_real!(table, T => Ok(self.forward(elements::<T>(table, at)?, None, width)))
    }

    fn bwd(&self, table: &Tensor, _res: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        Ok(self.backward(table, None, grad)?.0)
    }
}

impl CustomOp2 for Lookup {
    fn name(&self) -> &'static str {
        "embedding-positions"
    }

    fn cpu_fwd(&self, table: &CpuStorage, at: &Layout, positions: &CpuStorage, positions_at: &Layout) -> Result<(CpuStorage, Shape)> {
        let (_, width) = at.shape().dims2()?;
        for_real!(table, T => Ok(self.forward(elements::<T>(table, at)?, Some(elements::<T>(positions, positions_at)?), width)))
    }

    fn bwd(&self, table: &Tensor, positions: &Tensor, _res: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        self.backward(table, Some(positions), grad)
    }
}
