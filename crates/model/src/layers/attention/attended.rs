//! Inputs of attention: within whole sequences, and from a decoder to an encoder.

use std::sync::Arc;

use candle_core::Tensor;

use crate::Pass;
use crate::layers::guidance::Guide;
use crate::layers::positions::PreparedPositions;

/// Whole sequences within which tokens attend to each other, with their positions and the pass.
#[derive(Clone, Copy)]
pub(crate) struct Within<'a> {
    pub(crate) lengths: &'a Arc<[usize]>,
    pub(crate) positions: &'a PreparedPositions,
    pub(crate) pass: &'a Pass,
}

/// What a decoder layer needs to attend to the encoder: the layer's keys and values, the lengths of
/// the sequences of decoder (queries) and encoder (keys), and a guide (the word links that the
/// weights should follow) if there is one.
pub(crate) struct Attended<'a> {
    pub(crate) key_value: &'a Tensor,
    pub(crate) query_lengths: &'a Arc<[usize]>,
    pub(crate) key_lengths: &'a Arc<[usize]>,
    pub(crate) guide: Option<&'a Guide>,
}
