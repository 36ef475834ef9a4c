//! Interface of the architectures of translation models: layers that read embedded sources, and
//! layers that write targets, as a whole or token by token.

use super::{DecodeState, EncoderOutput};
use crate::layers::attention::LayerPast;
use crate::layers::guidance::Guide;
use crate::{Pass, Sequences};
use candle_core::{Result, Tensor};
use std::fmt::Debug;
use std::sync::Arc;

/// Layers of a translation model. Embeddings, output projection and loss belong to the model.
pub(crate) trait EncoderDecoder: Debug + Send + Sync {
    /// Reads whole sources.
    ///
    /// # Shapes
    /// Embedded sources `(M, D)` → rows to which the decoder attends, `(M, E)`.
    fn encode(&self, x: Tensor, source: &Sequences, pass: &Pass) -> Result<Tensor>;

    /// Computes the states of whole targets (teacher forcing). Only the attention of a Transformer
    /// can be guided.
    ///
    /// # Shapes
    /// Embedded targets `(N, D)` → `(N, D)`.
    fn decode(
        &self,
        x: Tensor,
        target: &Sequences,
        encoded: &EncoderOutput,
        guide: Option<&Guide>,
        pass: &Pass,
    ) -> Result<Tensor>;

    /// Prepares decoding before the first token. Returns tensors that are computed once from the
    /// sources, and the state of each layer.
    fn start(&self, encoded: &EncoderOutput, pass: &Pass) -> Result<(Vec<Tensor>, Vec<LayerPast>)>;

    /// Computes the state for one token of each row of `state`; the tokens are at the positions
    /// `at`.
    ///
    /// # Shapes
    /// Embedded tokens `(R, D)` → `(R, D)`.
    fn step(
        &self,
        x: Tensor,
        state: &mut DecodeState,
        at: &Arc<[u32]>,
        pass: &Pass,
    ) -> Result<Tensor>;

    /// Name of the layer whose attention shows best from which source tokens a target token comes;
    /// `None` if no layer attends to the source.
    fn aligning_layer(&self) -> Option<String>;
}
