//! Settings of an embedding lookup.

use super::dropout::Dropout;
use std::sync::Arc;

/// Settings of an embedding lookup, apart from its tables.
#[derive(Debug, Clone)]
pub struct EmbeddingSpec {
    /// Row of the table for each token.
    pub ids: Arc<[u32]>,
    /// Row of the position table for each token.
    pub positions: Arc<[u32]>,
    /// Factor of the looked-up rows; positions are not multiplied.
    pub scale: f64,
    /// Dropout on the sum.
    pub dropout: Dropout,
}
