//! Interface of architectures of translation models: layers that read embedded sources, and layers
//! that write targets as a whole or token by token.

use super::{DecodeState, EncoderOutput};
use crate::layers::attention::LayerPast;
use crate::layers::guidance::Guide;
use crate::{Pass, Sequences};
use candle_core::{Result, Tensor};
use std::fmt::Debug;
use std::sync::Arc;

/// Layers of a translation model. Embeddings, output and loss belong to the model.
pub(crate) trait EncoderDecoder: Debug + Send + Sync {
    /// Reads whole sources.
    ///
    /// # Shapes
    /// Embedded `(M, D)` → rows that the decoder attends to, `(M, E)`.
    fn encode(&self, x: Tensor, source: &Sequences, pass: &Pass) -> Result<Tensor>;

    /// Writes whole targets (teacher forcing). Only a Transformer's attention can be guided.
    ///
    /// # Shapes
    /// Embedded `(N, D)` → `(N, D)`.
    fn decode(
        &self,
        x: Tensor,
        target: &Sequences,
        encoded: &EncoderOutput,
        guide: Option<&Guide>,
        pass: &Pass,
    ) -> Result<Tensor>;

    /// Prepares for the first token: tensors that are computed once from the sources, and the state
    /// of each layer.
    fn start(&self, encoded: &EncoderOutput, pass: &Pass) -> Result<(Vec<Tensor>, Vec<LayerPast>)>;

    /// Writes one token for each row of `state`, at positions `at`.
    ///
    /// # Shapes
    /// Embedded `(R, D)` → `(R, D)`.
    fn step(
        &self,
        x: Tensor,
        state: &mut DecodeState,
        at: &Arc<[u32]>,
        pass: &Pass,
    ) -> Result<Tensor>;

    /// Layer whose attention shows best which source tokens a target token comes from; `None`
    /// without attention to the source.
    fn aligning_layer(&self) -> Option<String>;
}
