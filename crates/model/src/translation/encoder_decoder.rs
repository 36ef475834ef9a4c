//! Interface of the architectures of translation models: encoder layers, which read embedded
//! sources, and decoder layers, which read embedded targets as whole sequences or token by token.

use super::{DecodeState, EncoderOutput};
use crate::layers::attention::LayerPast;
use crate::layers::guidance::Guide;
use crate::{Pass, Sequences};
use candle_core::{Result, Tensor};
use std::fmt::Debug;
use std::sync::Arc;

/// Layers of a translation model. Embeddings, output projection and loss belong to the model.
///
/// In the shapes, M is the number of source tokens, N the number of target tokens, R the number of
/// rows that are decoded (hypotheses), D the width of the model, and E the width of the encoder's
/// output.
pub(crate) trait EncoderDecoder: Debug + Send + Sync {
    /// Reads whole sources.
    ///
    /// # Shapes
    /// Embedded sources `(M, D)` → rows to which the decoder attends, `(M, E)`.
    fn encode(&self, x: Tensor, source: &Sequences, pass: &Pass) -> Result<Tensor>;

    /// Computes the states of whole targets (teacher forcing). `guide` trains the attention of a
    /// Transformer to follow word alignments; the other architectures ignore it.
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

    /// Prepares decoding before the first token. Returns the tensors that are computed only once
    /// from the sources, and the initial state of each layer.
    fn start(&self, encoded: &EncoderOutput, pass: &Pass) -> Result<(Vec<Tensor>, Vec<LayerPast>)>;

    /// Computes the decoder's output for one new token in each row of `state`. `x` has the embedded
    /// tokens, and `at` has their positions.
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
