//! A convolutional encoder of images, for comparison with the Vision Transformer. In a convolution,
//! neighbourhoods are part of the architecture, whereas attention has to learn them (Dosovitskiy et
//! al. 2021, section 4.3).
//!
//! Each convolution is a matrix product. A place is a position in the grid of a layer; in the first
//! grid it is a pixel. The nine neighbours of each place are gathered into one row, which a matrix
//! maps to the channels of the next layer.

use crate::cost::{LayerCost, PartCost};
use crate::layers::head::picked;
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::{Builder, ImageShape, ModelConfig, Pass, Sequences};
use candle_core::{DType, Result, Tensor};
use std::sync::Arc;
use taper_ops::rng::name_key;
use taper_ops::{Activation, Dropout, composed, converted};

/// Number of neighbours of a place, including the place itself.
const NEIGHBOURS: usize = 9;

/// Layers that compute `norm(activation(W [neighbours] + b))`. Every second layer has stride 2, and
/// twice as many channels as the layer before.
#[derive(Debug, Clone)]
pub(crate) struct Convolutions {
    shape: ImageShape,
    layers: Vec<Convolution>,
    activations: DType,
}

#[derive(Debug, Clone)]
struct Convolution {
    plan: Plan,
    linear: Linear,
    norm: Norm,
    activation: Activation,
    dropout: f64,
    site: u64,
}

/// Sizes of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    /// Number of places on a side of the input's grid.
    from: usize,
    /// Number of places on a side of the output's grid.
    to: usize,
    stride: usize,
    /// Number of channels of the input.
    inputs: usize,
    /// Number of channels of the output.
    outputs: usize,
}

/// Returns the sizes of the layers of a model. The first layer has `d_model` channels.
fn plans(config: &ModelConfig, shape: &ImageShape) -> Vec<Plan> {
    let (mut from, mut inputs, mut outputs) = (shape.size, shape.channels, config.d_model);
    let mut plans = Vec::with_capacity(config.encoder_layers);
    for layer in 0..config.encoder_layers {
        let stride = 1 + layer % 2;
        if stride == 2 {
            outputs = outputs.saturating_mul(2);
        }
        let to = from.div_ceil(stride);
        plans.push(Plan { from, to, stride, inputs, outputs });
        (from, inputs) = (to, outputs);
    }
    plans
}

/// Returns the number of channels of the last layer.
pub(crate) fn last_width(config: &ModelConfig, shape: &ImageShape) -> usize {
    plans(config, shape).last().map_or(config.d_model, |plan| plan.outputs)
}

impl Convolutions {
    pub(crate) fn new(
        build: &mut Builder,
        shape: &ImageShape,
        config: &ModelConfig,
    ) -> Result<Self> {
        let plans = plans(config, shape).into_iter().enumerate();
        let layers = plans.map(|(index, plan)| Convolution::new(build, index, plan, shape, config));
        let (layers, shape) = (layers.collect::<Result<_>>()?, shape.clone());
        Ok(Self { layers, shape, activations: build.activations })
    }

    /// Cost of the last layer per token. In costs, a token of an image is a patch, although the
    /// layers read pixels.
    pub(crate) fn last_cost(config: &ModelConfig, shape: &ImageShape) -> LayerCost {
        Builder::part_cost(config.biases, |build| {
            let last = plans(config, shape).pop();
            last.map(|plan| Convolution::new(build, 0, plan, shape, config)).transpose()
        })
    }

    /// Encodes whole images. A sequence of `images` has the values of one image, channel by channel
    /// and row by row.
    ///
    /// # Shapes
    /// B images → `(B, D)`, the mean over all places; D is the number of channels of the last
    /// layer.
    pub(crate) fn forward(&self, images: &Sequences, pass: &Pass) -> Result<Tensor> {
        let count = images.lengths.len();
        let x = self.places(images, pass, |_| ())?;
        let (rows, width) = x.dims2()?;
        composed::on_tape(pass.tape(), "mean of places", &[&x], |inputs| {
            inputs[0].reshape((count, rows / count.max(1), width))?.mean(1)
        })
    }

    /// Encodes whole images, and passes the states of all places after each layer to `each`.
    ///
    /// # Shapes
    /// B images → `(B · P, D)`: the P places of each image in the last layer, row by row, with D
    /// channels.
    pub(crate) fn places(
        &self,
        images: &Sequences,
        pass: &Pass,
        mut each: impl FnMut(&Tensor),
    ) -> Result<Tensor> {
        let count = images.lengths.len();
        let of_pixels = ImageShape { patch: 1, ..self.shape.clone() };
        let mut x = Tensor::from_vec(
            of_pixels.patched(&images.ids),
            (count * of_pixels.patches(), self.shape.channels),
            self.layers.first().map_or(&candle_core::Device::Cpu, |layer| layer.linear.device()),
        )?;
        x = converted(pass.tape(), &x, self.activations)?;
        for layer in &self.layers {
            x = layer.forward(&x, count, pass)?; // (B · to · to, D)
            each(&x);
        }
        Ok(x)
    }
}

impl Convolution {
    /// Makes the layer with this index, from 0.
    fn new(
        build: &mut Builder,
        index: usize,
        plan: Plan,
        shape: &ImageShape,
        config: &ModelConfig,
    ) -> Result<Self> {
        let name = format!("convolutions.{index}");
        let inputs = NEIGHBOURS.saturating_mul(plan.inputs);
        // Number of places per token. In costs, a token of an image is a patch.
        let places = (plan.to * plan.to) as f64 / shape.patches().max(1) as f64;
        let counted = |part: PartCost| {
            part.keeping(inputs + 2 * plan.outputs + plan.inputs).times_a_token(places)
        };
        let linear = build
            .counted_as(counted, |build| Linear::new(build, &name, inputs, plan.outputs, 1))?;
        Ok(Self {
            plan,
            linear,
            norm: Norm::new(build, &format!("{name}_norm"), plan.outputs, config)?,
            activation: config.activation.into(),
            dropout: config.residual_dropout,
            site: name_key(&name),
        })
    }

    fn forward(&self, x: &Tensor, count: usize, pass: &Pass) -> Result<Tensor> {
        let Plan { to, inputs, .. } = self.plan;
        // Neighbours outside of an image are read from an additional row of zeros.
        let table = composed::on_tape(pass.tape(), "margin", &[x], |inputs| {
            inputs[0].pad_with_zeros(0, 0, 1)
        })?;
        let neighbours = picked(&table, self.plan.neighbours(count), Dropout::none(), pass)?;
        let rows = count * to * to;
        let gathered = composed::on_tape(pass.tape(), "neighbours", &[&neighbours], |them| {
            them[0].reshape((rows, NEIGHBOURS * inputs))
        })?;
        let dropout = pass.dropout(self.dropout, self.site);
        let x = self.linear.activated(&gathered, self.activation, dropout, pass)?;
        self.norm.forward(&x, pass)
    }
}

impl Plan {
    /// Returns the index of the row of each neighbour of each place in `count` images, from top to
    /// bottom and from left to right. Neighbours outside of an image get the index after the last
    /// row.
    fn neighbours(&self, count: usize) -> Arc<[u32]> {
        let Self { from, to, stride, .. } = *self;
        let outside = (count * from * from) as u32;
        let mut rows = Vec::with_capacity(count * to * to * NEIGHBOURS);
        for image in 0..count {
            for (row, column) in (0..to).flat_map(|row| (0..to).map(move |column| (row, column))) {
                for (down, right) in (0..3).flat_map(|down| (0..3).map(move |right| (down, right)))
                {
                    // Coordinates are shifted by one, so that none is below 0.
                    let (y, x) = (row * stride + down, column * stride + right);
                    let is_inside = (1..=from).contains(&y) && (1..=from).contains(&x);
                    rows.push(match is_inside {
                        true => (image * from * from + (y - 1) * from + x - 1) as u32,
                        false => outside,
                    });
                }
            }
        }
        rows.into()
    }
}
