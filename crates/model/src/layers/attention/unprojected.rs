//! Self-attention without its projections, for measurements.

use super::mixer::Unprojected;
use super::projections::Projection;
use super::{Mechanism, Site, Within, choose, kinds};
use crate::config::ModelConfig;
use crate::layers::positions::PreparedPositions;
use crate::{Builder, ModelError, Pass};
use candle_core::{DType, Device, Result, Tensor};
use std::fmt::Debug;
use std::sync::Arc;

/// A mechanism of attention, with the widths of its inputs and of its result.
#[derive(Debug)]
struct OfWidth {
    mechanism: Arc<dyn Mechanism>,
    inputs: usize,
    width: usize,
}

impl Unprojected for OfWidth {
    fn input_width(&self) -> usize {
        self.inputs
    }

    fn attend(&self, inputs: &Tensor, within: Within<'_>) -> Result<Tensor> {
        self.mechanism.attend(inputs, within)
    }

    fn kept(&self, length: usize) -> f64 {
        self.mechanism.kept(self.width, length)
    }

    fn flops(&self, length: usize) -> f64 {
        self.mechanism.flops(self.width, length)
    }
}

/// Self-attention of the configured kind, or the state-space layer in its place, without the
/// projections before and after. It serves for measurements.
#[derive(Debug, Clone)]
pub struct UnprojectedAttention(Arc<dyn Unprojected>);

impl UnprojectedAttention {
    /// Makes the attention of the layer with the index `layer`, from 0, in the decoder if `causal`
    /// is true, and otherwise in the encoder. Its products are in f32.
    ///
    /// # Errors
    /// If the configuration is impossible.
    pub fn new(
        config: &ModelConfig,
        causal: bool,
        layer: usize,
    ) -> std::result::Result<Self, ModelError> {
        config.require_transformer()?;
        config.validate_blocks()?;
        let stack = if causal { "decoder" } else { "encoder" };
        let kind = config.attention(causal).kind_of(layer);
        let name = &format!("{stack}.layers.{layer}.{}", kind.sublayer());
        let mut builder = Builder::seeded(1, &Device::Cpu, DType::F32).with_biases(false);
        let build = &mut builder;
        Ok(Self(if kind.is_state_space() {
            kinds::unprojected_state_space(build, name, config, (causal, layer))?
        } else {
            let site = Site { config, name, layer, causal, products: build.products };
            let inputs = Projection::query_key_value(config, site.parts()).width();
            let mechanism = choose(build, &site)?;
            Arc::new(OfWidth { mechanism, inputs, width: config.d_model })
        }))
    }

    /// Width of a row of `inputs` in [`attend`](Self::attend): query, key and value side by side,
    /// or the input and the gate of a state-space layer.
    #[must_use]
    pub fn input_width(&self) -> usize {
        self.0.input_width()
    }

    /// Attends within whole sequences of these lengths.
    ///
    /// # Shapes
    /// `inputs (N, W)` for N tokens, with W = [`input_width`](Self::input_width) → `(N, D)`, where
    /// D is the width of the queries of all heads, or `(N, E)` if a state-space layer has E
    /// channels.
    ///
    /// # Errors
    /// If the lengths do not sum to `N`.
    pub fn attend(
        &self,
        inputs: &Tensor,
        lengths: &Arc<[usize]>,
        pass: &Pass,
    ) -> std::result::Result<Tensor, ModelError> {
        let positions = &PreparedPositions::default();
        Ok(self.0.attend(inputs, Within { lengths, positions, pass })?)
    }

    /// Number of bytes that [`attend`](Self::attend) keeps for the backward pass of one sequence of
    /// this length, by formula: in f32 on a CPU, not counting its input. For a Reformer, the
    /// formula assumes normally distributed queries.
    #[must_use]
    pub fn kept_bytes(&self, length: usize) -> f64 {
        size_of::<f32>() as f64 * self.0.kept(length)
    }

    /// Number of multiplications and additions in the products of [`attend`](Self::attend) on one
    /// sequence of this length, by formula. The products are those that a CPU computes. Blocks of
    /// scores and chunks count in full, even if parts of them are hidden or empty. The scans of
    /// state-space layers are included. The queries of a Reformer are assumed to be normally
    /// distributed. In the backward pass, softmax attention needs five products for the two of the
    /// forward pass, and other kinds need two products for each product of the forward pass.
    #[must_use]
    pub fn forward_flops(&self, length: usize) -> f64 {
        self.0.flops(length)
    }
}
