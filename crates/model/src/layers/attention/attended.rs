//! Input of attention to an encoder.

use std::sync::Arc;

use candle_core::Tensor;

use crate::layers::guidance::Guide;

/// Attention of a decoder layer to the encoder: keys and values of one layer, with the lengths of
/// both sides, and its guide, if any.
pub(crate) struct Attended<'a> {
    pub(crate) key_value: &'a Tensor,
    pub(crate) query_lengths: &'a Arc<[usize]>,
    pub(crate) key_lengths: &'a Arc<[usize]>,
    pub(crate) guide: Option<&'a Guide>,
}
