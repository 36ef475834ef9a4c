//! Settings of an embedding lookup.

use super::dropout::Dropout;
use std::sync::Arc;

/// Settings of an embedding lookup, apart from its tables.
#[derive(Debug, Clone)]
pub struct EmbeddingSpec {
    /// Index of each token's row in the embedding table.
    pub ids: Arc<[u32]>,
    /// Index of each token's row in the position table.
    pub positions: Arc<[u32]>,
    /// Multiplier of the rows of the embedding table. Rows of the position table are not
    /// multiplied.
    pub scale: f64,
    /// Dropout on the sum of the two rows.
    pub dropout: Dropout,
}
