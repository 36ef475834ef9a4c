//! Embedding lookup in Candle's primitives.

use super::dropout::drop;
use crate::spec::EmbeddingSpec;
use candle_core::{Result, Tensor};

/// See [`crate::embedding()`].
///
/// # Shapes
/// As [`crate::embedding()`].
///
/// # Errors
/// When an id is not in its table.
pub fn embedding(
    table: &Tensor,
    positions: Option<&Tensor>,
    spec: &EmbeddingSpec,
) -> Result<Tensor> {
    let device = table.device();
    let rows = |table: &Tensor, ids: &[u32]| {
        table.index_select(&Tensor::from_vec(ids.to_vec(), ids.len(), device)?, 0)
    };
    let mut out = (rows(table, &spec.ids)? * spec.scale)?;
    if let Some(positions) = positions {
        out = (out + rows(positions, &spec.positions)?)?;
    }
    drop(&out, spec.dropout)
}
