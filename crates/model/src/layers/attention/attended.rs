//! Inputs of attention within whole sequences, and to an encoder.

use std::sync::Arc;

use candle_core::Tensor;

use crate::Pass;
use crate::layers::guidance::Guide;
use crate::layers::positions::PreparedPositions;

/// Whole sequences within which tokens attend, and the pass.
#[derive(Clone, Copy)]
pub(crate) struct Within<'a> {
    pub(crate) lengths: &'a Arc<[usize]>,
    pub(crate) positions: &'a PreparedPositions,
    pub(crate) pass: &'a Pass,
}

/// Attention of a decoder layer to the encoder: keys and values of one layer, with the lengths of
/// both sides, and its guide, if any.
pub(crate) struct Attended<'a> {
    pub(crate) key_value: &'a Tensor,
    pub(crate) query_lengths: &'a Arc<[usize]>,
    pub(crate) key_lengths: &'a Arc<[usize]>,
    pub(crate) guide: Option<&'a Guide>,
}
