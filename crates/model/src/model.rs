//! Interface between trainer and model: parameters, the loss on a batch, and costs.

use candle_core::{DType, Device, Tensor};
use taper_ops::{ParameterStore, composed};

use crate::{Batch, Cost, ModelCore, ModelError, Pass, Routing};

/// Factor of the loss of f16 models in training. Without it the gradients of single tokens, each
/// divided by the number of tokens, would underflow to zero (Micikevicius et al. 2018, "Mixed
/// Precision Training", section 3.2). It is a power of two, which changes no bit of the mantissas;
/// an update that overflows nevertheless is skipped.
const F16_LOSS_SCALE: f64 = 4096.0;

/// Objective of training.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Objective {
    /// Probability mass of the target distribution that is spread over the whole vocabulary.
    pub label_smoothing: f64,
    /// Factor α of R-Drop (Liang et al. 2021, section 2.2); 0 for none. Above 0, the batch passes
    /// twice, with different dropout, and the loss of a token is
    /// `(CE₁ + CE₂) / 2 + α (KL(p₁‖p₂) + KL(p₂‖p₁)) / 2`.
    ///
    /// The paper adds the divergences to the sum of the cross entropies and not to their mean: its
    /// α is twice this one, for twice this loss. The mean keeps losses, gradients and clipping
    /// on the scale of one pass.
    pub r_drop: f64,
    /// Guidance of a translation model's attention by the links of a batch; `None` for none.
    pub guidance: Option<Guidance>,
}

impl Objective {
    /// Label-smoothed cross entropy in one pass.
    #[must_use]
    pub const fn smoothed(label_smoothing: f64) -> Self {
        Self { label_smoothing, r_drop: 0.0, guidance: None }
    }

    /// Number of passes of a batch through the model.
    #[must_use]
    pub fn passes(&self) -> usize {
        if self.r_drop > 0.0 { 2 } else { 1 }
    }
}

/// Guidance of the attention of one head of the decoder by the links of a batch (Garg et al. 2019,
/// "Jointly Learning to Align and Translate with Transformer Models", section 4.2).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guidance {
    /// Weight λ of its loss beside the cross entropy.
    pub weight: f64,
    /// Number of the decoder layer, from 0; `None` for the last but one.
    pub layer: Option<usize>,
    /// Number of the head, from 0.
    pub head: usize,
}

/// Loss of a batch; with two passes, sums are means over the two.
#[derive(Debug, Clone)]
pub struct LossOutput {
    /// Starting point of [`Pass::backward`]: `scale · Σ` of the objective, for f16 times a factor
    /// that keeps gradients from underflowing.
    pub loss: Tensor,
    /// Factor against underflow, by which the backward pass divides.
    pub(crate) loss_scale: f64,
    /// Sum of the label-smoothed cross entropy over the answers, in nats; of the squared error if
    /// answers are numbers.
    pub smoothed_sum: f64,
    /// Sum of the negative log-likelihood over the answers, in nats, or of the squared error.
    pub nll_sum: f64,
    /// Sum of the divergences `(KL(p₁‖p₂) + KL(p₂‖p₁)) / 2` over the answers, in nats; 0 with one
    /// pass.
    pub divergence_sum: f64,
    /// Sum of the minimised objective: the smoothed cross entropy; with R-Drop, plus α times the
    /// divergence; with experts or guidance, plus their losses.
    pub objective_sum: f64,
    /// Statistics of the tokens that a training pass sent to experts.
    pub routing: Routing,
    /// Number of answers whose true class scored highest; with two passes, half of both counts
    /// together, rounded down.
    pub correct: usize,
    /// Number of answers.
    pub tokens: usize,
}

impl LossOutput {
    /// Adds the losses that layers of the pass contribute; `loss` is `scale` times a sum over
    /// answers.
    ///
    /// A mean over the tokens of an update is then the mean over its micro-batches, weighted by
    /// their numbers of answers.
    fn with_auxiliary(self, scale: f64, pass: &Pass) -> Result<Self, ModelError> {
        let (losses, routing) = pass.take_auxiliary();
        if losses.is_empty() {
            return Ok(self);
        }
        let (tokens, mut sum) = (self.tokens as f64, 0.0);
        for loss in &losses {
            sum += loss.to_dtype(DType::F64)?.to_scalar::<f64>()?;
        }
        let inputs: Vec<&Tensor> = [&self.loss].into_iter().chain(&losses).collect();
        let loss = composed::on_tape(pass.tape(), "auxiliary losses", &inputs, |inputs| {
            inputs[1..].iter().try_fold(inputs[0].clone(), |total, one| {
                total + (one.to_dtype(inputs[0].dtype())? * (scale * tokens))?
            })
        })?;
        Ok(Self { loss, objective_sum: self.objective_sum + tokens * sum, routing, ..self })
    }
}

/// A model that can be trained.
///
/// The alternative, a loop for each kind of model, would repeat accumulation, clipping, skipping,
/// validation and resuming, and these copies could drift apart.
pub trait Model: Send + Sync {
    /// Whether answers are classes, with probabilities. If they are numbers, the loss is the
    /// squared error, and there is neither accuracy nor perplexity.
    const PREDICTS_CLASSES: bool = true;

    /// Parts that all models have, as its [`Builder`](crate::Builder) made them.
    fn core(&self) -> &ModelCore;

    /// Cost of the model, by formula.
    fn cost(&self) -> Cost;

    /// Number of classes from which an answer is chosen: the loss of guessing is its logarithm.
    /// `None` if it differs between answers, or answers are no classes.
    fn answer_classes(&self) -> Option<usize> {
        None
    }

    /// Computes the objective in one pass over `batch`, which for R-Drop holds each example twice;
    /// `loss` is `scale` times its sum. Implemented for [`Model::loss`], which handles passes and
    /// types; others call that.
    ///
    /// # Errors
    /// As [`Model::loss`].
    fn loss_of_pass(
        &self,
        batch: &Batch,
        objective: &Objective,
        scale: f64,
        pass: &Pass,
    ) -> Result<LossOutput, ModelError>;

    /// Parameters, in order.
    fn parameters(&self) -> &ParameterStore {
        &self.core().store
    }

    /// Type of the activations: f32 on the CPU, whatever its products round to.
    fn activations(&self) -> DType {
        self.core().activations
    }

    /// Width of the residual stream, `d_model`, which Noam's schedule reads.
    fn width(&self) -> usize {
        self.core().width
    }

    /// Device on which the model computes.
    fn device(&self) -> &Device {
        self.parameters().device()
    }

    /// Computes the objective on a batch; `loss` is `scale` times its sum over the answers.
    ///
    /// For the mean over the tokens of an update, `scale` is one over their number, over all
    /// micro-batches.
    ///
    /// # Errors
    /// When the batch does not have the model's streams, an id is not in its vocabulary, a sequence
    /// is longer than learned positions reach, or the device has no memory left.
    fn loss(
        &self,
        batch: &Batch,
        objective: &Objective,
        scale: f64,
        pass: &Pass,
    ) -> Result<LossOutput, ModelError> {
        let loss_scale = if self.activations() == DType::F16 { F16_LOSS_SCALE } else { 1.0 };
        let scale = scale * loss_scale;
        if objective.passes() == 1 {
            let output = self.loss_of_pass(batch, objective, scale, pass)?;
            let output = output.with_auxiliary(scale, pass)?;
            return Ok(LossOutput { loss_scale, ..output });
        }
        // Elements are dropped by their number in the batch. In a batch of twice the size, the
        // second pass therefore drops other elements than the first.
        let output = self.loss_of_pass(&batch.twice(), objective, scale / 2.0, pass)?;
        let output = output.with_auxiliary(scale / 2.0, pass)?;
        Ok(LossOutput {
            loss_scale,
            routing: output.routing,
            loss: output.loss,
            smoothed_sum: output.smoothed_sum / 2.0,
            nll_sum: output.nll_sum / 2.0,
            divergence_sum: output.divergence_sum / 2.0,
            objective_sum: output.objective_sum / 2.0,
            correct: output.correct / 2,
            tokens: output.tokens / 2,
        })
    }
}
