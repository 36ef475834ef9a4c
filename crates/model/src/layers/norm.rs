//! Normalisation of rows (the vectors of tokens), in and between the layers of a model.

use super::weight::Weight;
use crate::config::NormKind;
use crate::{Builder, ModelConfig, Pass};
use candle_core::{Result, Tensor};
use taper_ops::{NormSpec, NormedColumns};

/// A norm with its parameters, of the configured kind.
#[derive(Debug, Clone)]
pub(crate) struct Norm {
    weight: Weight,
    bias: Option<Weight>,
    spec: NormSpec,
}

impl Norm {
    /// Makes a norm of rows of `width` columns, with the parameters `{name}.weight` and, for some
    /// kinds, `{name}.bias`.
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        width: usize,
        config: &ModelConfig,
    ) -> Result<Self> {
        let (kind, epsilon) = (config.norm_kind, config.norm_epsilon);
        let weight = build.constant(&format!("{name}.weight"), &[width], 1.0)?;
        let bias = match kind.has_bias() {
            true => Some(build.constant(&format!("{name}.bias"), &[width], 0.0)?),
            false => None,
        };
        let spec = match kind {
            NormKind::Layer | NormKind::LayerWithoutBias => NormSpec::layer(epsilon),
            NormKind::Rms | NormKind::RmsWithBias => NormSpec::rms(epsilon),
        };
        Ok(Self { weight, bias, spec })
    }

    /// Returns the norm with its parameters, for applying it to the given number of `columns` of
    /// wider rows.
    pub(crate) fn of_columns(&self, columns: usize, pass: &Pass) -> NormedColumns<'_> {
        let bias = self.bias.as_ref().map(|bias| bias.get(pass));
        NormedColumns { columns, weight: self.weight.get(pass), bias }
    }

    /// Kind of the norm, and the number ε that it adds to a variance or mean square.
    pub(crate) fn spec(&self) -> &NormSpec {
        &self.spec
    }

    /// Normalises each row.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`, for N rows of the width D.
    pub(crate) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let bias = self.bias.as_ref().map(|bias| bias.get(pass));
        taper_ops::norm(pass.tape(), x, self.weight.get(pass), bias, &self.spec)
    }
}
