//! Embedding lookup, composed of Candle's operations.

use super::dropout::drop;
use super::wide;
use crate::spec::EmbeddingSpec;
use candle_core::{Result, Tensor};
use std::sync::Arc;

/// Looks up embeddings; see [`crate::embedding()`].
///
/// # Shapes
/// The shapes of [`crate::embedding()`].
///
/// # Errors
/// If an id is not in its table.
pub fn embedding(
    table: &Tensor,
    positions: Option<&Tensor>,
    spec: &EmbeddingSpec,
) -> Result<Tensor> {
    let device = table.device();
    let rows = |table: &Tensor, ids: &Arc<[u32]>| {
        table.index_select(&Tensor::from_vec(ids.to_vec(), ids.len(), device)?, 0)
    };
    // The table can consist of activations, whose type can differ from the type of the position
    // table.
    let mut out = (wide(&rows(table, &spec.ids)?)? * spec.scale)?;
    if let Some(positions) = positions {
        out = (out + wide(&rows(positions, &spec.positions)?)?)?;
    }
    drop(&out, spec.dropout)?.to_dtype(table.dtype())
}
