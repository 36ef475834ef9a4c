//! The output projection, and the loss of its logits.

use super::positions::to_compute;
use super::weight::Weight;
use crate::cost::PartCost;
use crate::{Batch, Builder, LossOutput, ModelConfig, ModelError, Objective, Pass, Routing};
use candle_core::{DType, Device, Result, Tensor};
use std::sync::Arc;
use taper_ops::rng::name_key;
use taper_ops::{CrossEntropySpec, Dropout, EmbeddingSpec, LossSums, Products, composed};

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

    /// Cost of the product, without its matrix, which may be shared. Logits are not kept: the loss
    /// is computed some rows at a time. Its gradient by the hidden rows is kept, and on a GPU also
    /// Candle's results.
    pub(crate) fn cost(config: &ModelConfig, classes: usize, device: &Device) -> PartCost {
        let kept = if device.is_cpu() { 1.0 } else { 4.0 } * config.d_model as f64;
        let product = PartCost::linear(config.d_model, classes, false);
        PartCost { parameters: 0.0, kept, ..product }
    }

    /// Computes the logits, in f32.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, V)`.
    pub(crate) fn logits(&self, hidden: &Tensor, pass: &Pass) -> Result<Tensor> {
        let spec = taper_ops::LinearSpec { products: self.products, ..Default::default() };
        to_compute(self.weight.apply(hidden, None, None, &spec, pass)?, DType::F32)
    }

    /// Computes `scale · Σ` of the objective over the predicted rows of `batch`.
    ///
    /// # Shapes
    /// `hidden (N, D)`, the rows of the last stream → scalar.
    pub(crate) fn loss(
        &self,
        hidden: &Tensor,
        batch: &Batch,
        objective: &Objective,
        scale: f64,
        pass: &Pass,
    ) -> Result<LossOutput> {
        let asked = asked_rows(hidden, batch, pass)?; // (A, D)
        let spec = spec(objective, scale, self.products);
        loss_of_rows(&asked, self.weight.get(pass), &batch.answers, &spec, pass)
    }
}

/// Picks the predicted rows of `batch` from `hidden`: `(N, D)` → `(A, D)`.
pub(crate) fn asked_rows(hidden: &Tensor, batch: &Batch, pass: &Pass) -> Result<Tensor> {
    match batch.asked_rows() {
        Some(rows) => picked(hidden, rows, Dropout::none(), pass),
        None => Ok(hidden.clone()),
    }
}

/// Picks rows of a matrix by their numbers, with dropout: `(N, D)` → `(R, D)`.
pub(crate) fn picked(
    x: &Tensor,
    rows: Arc<[u32]>,
    dropout: Dropout,
    pass: &Pass,
) -> Result<Tensor> {
    let spec = EmbeddingSpec { ids: rows, positions: [].into(), scale: 1.0, dropout };
    taper_ops::embedding(pass.tape(), x, None, &spec)
}

/// Number of the last row of each sequence, none of them empty.
pub(crate) fn last_rows(lengths: &[usize]) -> Arc<[u32]> {
    let mut end = 0;
    let row = |&length: &usize| {
        end += length as u32;
        end.saturating_sub(1)
    };
    lengths.iter().map(row).collect()
}

fn spec(objective: &Objective, scale: f64, products: Products) -> CrossEntropySpec {
    let Objective { label_smoothing: smoothing, r_drop, .. } = *objective;
    CrossEntropySpec { smoothing, r_drop, scale, products }
}

/// Computes `scale · Σ` of the objective over rows `(A, D)`, with a matrix `(V, D)`.
pub(crate) fn loss_of_rows(
    rows: &Tensor,
    weight: &Tensor,
    answers: &[u32],
    spec: &CrossEntropySpec,
    pass: &Pass,
) -> Result<LossOutput> {
    let (loss, LossSums { smoothed, nll, correct, divergence }) =
        taper_ops::smoothed_cross_entropy(pass.tape(), rows, weight, answers, spec)?;
    Ok(LossOutput {
        loss,
        loss_scale: 1.0,
        smoothed_sum: smoothed,
        nll_sum: nll,
        divergence_sum: divergence,
        objective_sum: smoothed + spec.r_drop * divergence,
        correct,
        tokens: answers.len(),
        routing: Routing::default(),
    })
}

/// Projects rows to classes, each with a bias: for masked language models and classifiers.
#[derive(Debug, Clone)]
pub(crate) struct BiasedHead {
    weight: Weight,
    bias: Weight,
    products: Products,
}

impl BiasedHead {
    /// `weight (C, D)` may be an embedding's; the bias is called `{name}.bias`.
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        weight: Weight,
        classes: usize,
    ) -> Result<Self> {
        let bias = build.constant(&format!("{name}.bias"), &[classes], 0.0)?;
        Ok(Self { weight, bias, products: build.products })
    }

    /// Cost of the product for `share` of the tokens, and of the biases, without the matrix, which
    /// may be shared.
    pub(crate) fn cost(
        config: &ModelConfig,
        classes: usize,
        share: f64,
        device: &Device,
    ) -> PartCost {
        let head = Head::cost(config, classes, device);
        PartCost {
            parameters: classes as f64,
            flops: share * head.flops,
            kept: share * head.kept,
            ..head
        }
    }

    /// Computes the logits, in f32.
    ///
    /// # Shapes
    /// `(R, D)` → `(R, C)`.
    pub(crate) fn logits(&self, rows: &Tensor, pass: &Pass) -> Result<Tensor> {
        let spec = taper_ops::LinearSpec { products: self.products, ..Default::default() };
        let bias = Some(self.bias.get(pass));
        to_compute(self.weight.apply(rows, bias, None, &spec, pass)?, DType::F32)
    }

    /// Computes `scale · Σ` of the objective over all rows.
    ///
    /// The biases are passed as an additional column of the matrix, and each row gets an additional
    /// 1. So the loss, which never holds all logits, needs no case for biases.
    ///
    /// # Shapes
    /// `(R, D)`, R answers → scalar.
    pub(crate) fn loss(
        &self,
        rows: &Tensor,
        answers: &[u32],
        objective: &Objective,
        scale: f64,
        pass: &Pass,
    ) -> Result<LossOutput> {
        let weight = self.weight.get(pass);
        let matrix = [weight, self.bias.get(pass)];
        let weight = composed::on_tape(pass.tape(), "bias column", &matrix, |inputs| {
            Tensor::cat(&[&inputs[0], &inputs[1].unsqueeze(1)?], 1) // (C, D + 1)
        })?;
        let rows = composed::on_tape(pass.tape(), "ones", &[rows], |inputs| {
            let ones = Tensor::ones((inputs[0].dim(0)?, 1), inputs[0].dtype(), inputs[0].device())?;
            Tensor::cat(&[&inputs[0], &ones], 1) // (R, D + 1)
        })?;
        loss_of_rows(&rows, &weight, answers, &spec(objective, scale, self.products), pass)
    }
}

/// Classes from the states of whole texts or of tokens: dropout, and a [`BiasedHead`] with a matrix
/// of its own.
#[derive(Debug, Clone)]
pub(crate) struct ClassHead {
    head: BiasedHead,
    dropout: f64,
    site: u64,
}

impl ClassHead {
    /// Makes a head with parameters `{name}.weight` and `{name}.bias`; `name` says what the classes
    /// are, in plural.
    ///
    /// # Errors
    /// When there are fewer than two, or the device has no memory left.
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        classes: usize,
        config: &ModelConfig,
    ) -> std::result::Result<Self, ModelError> {
        if classes < 2 {
            return Err(ModelError::Config(format!(
                "the model needs at least two {name}, not {classes}"
            )));
        }
        let weight = build.matrix(&format!("{name}.weight"), classes, config.d_model, 1)?;
        let head = BiasedHead::new(build, name, weight, classes)?;
        Ok(Self { head, dropout: config.residual_dropout, site: name_key(name) })
    }

    /// Picks rows of `states` by their numbers, with dropout: `(N, D)` → `(R, D)`.
    fn picked(&self, states: &Tensor, rows: Arc<[u32]>, pass: &Pass) -> Result<Tensor> {
        picked(states, rows, pass.dropout(self.dropout, self.site), pass)
    }

    /// Computes the logits of rows of `states`, in f32.
    ///
    /// # Shapes
    /// `(N, D)`, R rows → `(R, C)`.
    pub(crate) fn logits(&self, states: &Tensor, rows: Arc<[u32]>, pass: &Pass) -> Result<Tensor> {
        self.head.logits(&self.picked(states, rows, pass)?, pass)
    }

    /// Computes `scale · Σ` of the objective over rows of `states`.
    ///
    /// # Shapes
    /// `(N, D)`, R rows, R answers → scalar.
    pub(crate) fn loss(
        &self,
        (states, rows): (&Tensor, Arc<[u32]>),
        answers: &[u32],
        objective: &Objective,
        scale: f64,
        pass: &Pass,
    ) -> Result<LossOutput> {
        let rows = self.picked(states, rows, pass)?;
        self.head.loss(&rows, answers, objective, scale, pass)
    }
}
