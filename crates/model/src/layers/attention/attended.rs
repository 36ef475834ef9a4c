//! Inputs of attention: [`Within`] for self-attention in whole sequences, and [`Attended`] for the
//! attention of a decoder to an encoder.

use std::sync::Arc;

use candle_core::Tensor;

use crate::Pass;
use crate::layers::guidance::Guide;
use crate::layers::positions::PreparedPositions;

/// Whole sequences within which tokens attend to each other: their lengths in tokens, the positions
/// of their tokens, and the pass.
#[derive(Clone, Copy)]
pub(crate) struct Within<'a> {
    pub(crate) lengths: &'a Arc<[usize]>,
    pub(crate) positions: &'a PreparedPositions,
    pub(crate) pass: &'a Pass,
}

/// Inputs of a decoder layer's attention to the encoder. They are the keys and values of the layer,
/// and the lengths in tokens of the decoder's sequences (queries) and of the encoder's sequences
/// (keys). An optional guide makes the attention weights follow word alignments.
pub(crate) struct Attended<'a> {
    pub(crate) key_value: &'a Tensor,
    pub(crate) query_lengths: &'a Arc<[usize]>,
    pub(crate) key_lengths: &'a Arc<[usize]>,
    pub(crate) guide: Option<&'a Guide>,
}
