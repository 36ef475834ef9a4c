//! Linear layers.

pub(crate) mod adapter;

use crate::cost::PartCost;
use crate::layers::weight::Weight;
use crate::{Builder, Pass};
use adapter::{Adapter, Around};
use candle_core::{Device, Result, Tensor};
use taper_ops::{Activation, Dropout, PackedWeights, Products};

/// A linear layer: `x Wᵀ + b`.
#[derive(Debug, Clone)]
pub(crate) struct Linear {
    weight: Weight,
    bias: Option<Weight>,
    adapter: Option<Box<Adapter>>,
    products: Products,
}

/// The tensor `x` to which the result of a sublayer is added (the residual connection), and the
/// dropout that is applied to the result before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Residual<'a> {
    pub(crate) x: &'a Tensor,
    pub(crate) dropout: Dropout,
}

impl Linear {
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        inputs: usize,
        outputs: usize,
        parts: usize,
    ) -> Result<Self> {
        let weight =
            build.held(|build| build.matrix(&format!("{name}.weight"), outputs, inputs, parts))?;
        Self::with(build, name, weight, (inputs, &vec![outputs / parts; parts]))
    }

    /// Makes a layer that fuses several matrices, each of which is initialised as if it were alone.
    pub(crate) fn fused(
        build: &mut Builder,
        name: &str,
        inputs: usize,
        outputs: &[usize],
    ) -> Result<Self> {
        let weight =
            build.held(|build| build.matrices(&format!("{name}.weight"), inputs, outputs))?;
        Self::with(build, name, weight, (inputs, outputs))
    }

    /// Makes a layer in the same way as [`Linear::new`], but with normally distributed weights of
    /// this standard deviation.
    pub(crate) fn normal(
        build: &mut Builder,
        name: &str,
        (inputs, outputs): (usize, usize),
        deviation: f64,
    ) -> Result<Self> {
        let weight = build.held(|build| {
            build.add(&format!("{name}.weight"), &[outputs, inputs], |counter, i| {
                (counter.normal_at(i) * deviation) as f32
            })
        })?;
        Self::with(build, name, weight, (inputs, &[outputs]))
    }

    fn with(
        build: &mut Builder,
        name: &str,
        weight: Weight,
        (inputs, outputs): (usize, &[usize]),
    ) -> Result<Self> {
        build.project(&format!("{name}.weight"), &weight, outputs);
        let columns = outputs.iter().fold(0, |sum: usize, &count| sum.saturating_add(count));
        build.count(PartCost::product(inputs, columns));
        let bias = if build.biases {
            Some(build.constant(&format!("{name}.bias"), &[columns], 0.0)?)
        } else {
            None
        };
        let adapter = Adapter::new(build, name, inputs, outputs)?.map(Box::new);
        Ok(Self { weight, bias, adapter, products: build.products })
    }

    /// Makes a layer without adapters from existing parameters; its cost is not counted.
    pub(crate) fn from_parts(weight: Weight, bias: Option<Weight>, products: Products) -> Self {
        Self { weight, bias, adapter: None, products }
    }

    /// Converts the layer to f64; see [`Weight::in_f64`].
    #[cfg(test)]
    pub(crate) fn in_f64(&self) -> Self {
        let bias = self.bias.as_ref().map(Weight::in_f64);
        Self { weight: self.weight.in_f64(), bias, ..self.clone() }
    }

    /// Makes a layer that computes only the outputs with the indices `rows`, without adapters. It
    /// computes without gradients. `packs`: cache that products with the layer's matrix use.
    pub(crate) fn rows(&self, rows: &[u32], packs: &PackedWeights) -> Result<Self> {
        let pick = |weight: &Weight| packs.rows(weight.value(), rows).map(Weight::new);
        let bias = self.bias.as_ref().map(pick).transpose()?;
        Ok(Self::from_parts(pick(&self.weight)?, bias, self.products))
    }

    /// Matrix of the layer.
    pub(crate) fn weight(&self) -> &Weight {
        &self.weight
    }

    /// Bias of the layer.
    pub(crate) fn bias(&self) -> Option<&Weight> {
        self.bias.as_ref()
    }

    /// Type to which the operands of the layer's matrix products are rounded.
    pub(crate) fn products(&self) -> Products {
        self.products
    }

    pub(crate) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.run(x, None, Activation::Identity, Dropout::none(), pass)
    }

    /// Device on which the layer computes.
    pub(crate) fn device(&self) -> &Device {
        self.weight.value().device()
    }

    /// Computes `dropout(activation(x Wᵀ + b))`.
    pub(crate) fn activated(
        &self,
        x: &Tensor,
        activation: Activation,
        dropout: Dropout,
        pass: &Pass,
    ) -> Result<Tensor> {
        self.run(x, None, activation, dropout, pass)
    }

    /// Computes `residual + dropout(x Wᵀ + b)`.
    pub(crate) fn onto(&self, x: &Tensor, residual: Residual<'_>, pass: &Pass) -> Result<Tensor> {
        self.run(x, Some(residual.x), Activation::Identity, residual.dropout, pass)
    }

    fn run(
        &self,
        x: &Tensor,
        residual: Option<&Tensor>,
        activation: Activation,
        dropout: Dropout,
        pass: &Pass,
    ) -> Result<Tensor> {
        let spec = taper_ops::LinearSpec { activation, dropout, products: self.products };
        if let Some(adapter) = &self.adapter {
            let (weight, bias) = (&self.weight, self.bias.as_ref());
            return adapter.run(x, &Around { weight, bias, residual, spec }, pass);
        }
        self.weight.apply(x, self.bias.as_ref().map(|bias| bias.get(pass)), residual, &spec, pass)
    }
}
