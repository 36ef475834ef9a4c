//! The output projection, and the loss of what it gives.

use super::positions::to_compute;
use super::weight::Weight;
use crate::cost::PartCost;
use crate::{Batch, LossOutput, ModelConfig, Objective, Pass};
use candle_core::{DType, Device, Result, Tensor};
use taper_ops::{CrossEntropySpec, Dropout, EmbeddingSpec, LossSums, Products};

/// Projects hidden rows to the classes of a vocabulary.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    weight: Weight,
    products: Products,
}

impl Head {
    /// `weight (V, D)` may be an embedding's (Press and Wolf 2017).
    pub(crate) fn new(weight: Weight, products: Products) -> Self {
        Self { weight, products }
    }

    /// The product, without its matrix, which may be shared. Logits and their gradient are kept but
    /// for the CPU, whose loss is computed some rows at a time.
    pub(crate) fn cost(config: &ModelConfig, classes: usize, device: &Device) -> PartCost {
        let kept = if device.is_cpu() { 0.0 } else { 2.0 * classes as f64 };
        let product = PartCost::linear(config.d_model, classes, false);
        PartCost { parameters: 0.0, kept, ..product }
    }

    /// The logits, in f32.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, V)`.
    pub(crate) fn logits(&self, hidden: &Tensor, pass: &Pass) -> Result<Tensor> {
        let spec = taper_ops::LinearSpec { products: self.products, ..Default::default() };
        to_compute(self.weight.apply(hidden, None, None, &spec, pass)?, DType::F32)
    }

    /// `scale · Σ` of the objective over the rows that `batch` asks.
    ///
    /// # Shapes
    /// `hidden (N, D)`, one row for each of the last stream → scalar.
    pub(crate) fn loss(
        &self,
        hidden: &Tensor,
        batch: &Batch,
        objective: &Objective,
        scale: f64,
        pass: &Pass,
    ) -> Result<LossOutput> {
        let asked = match batch.asked_rows() {
            Some(ids) => {
                let dropout = Dropout::none();
                let rows = EmbeddingSpec { ids, positions: [].into(), scale: 1.0, dropout };
                &taper_ops::embedding(pass.tape(), hidden, None, &rows)? // (A, D)
            }
            None => hidden,
        };
        let Objective { label_smoothing: smoothing, r_drop } = *objective;
        let spec = CrossEntropySpec { smoothing, r_drop, scale, products: self.products };
        let (loss, LossSums { smoothed, nll, correct, divergence }) =
            taper_ops::smoothed_cross_entropy(
                pass.tape(),
                asked,
                self.weight.get(pass),
                &batch.answers,
                &spec,
            )?;
        Ok(LossOutput {
            loss,
            loss_scale: 1.0,
            smoothed_sum: smoothed,
            nll_sum: nll,
            divergence_sum: divergence,
            objective_sum: smoothed + r_drop * divergence,
            correct,
            tokens: batch.tokens(),
        })
    }
}
