//! What the trainer knows of a model: its parameters, its loss on a batch, and what it costs.

use candle_core::{DType, Device, Tensor};
use taper_ops::{ParameterStore, composed};

use crate::{Batch, Core, Cost, ModelError, Pass, Routing};

/// The factor of the loss of f16 models whose gradients are computed. The gradients of single
/// tokens, which are small by the number of tokens, would otherwise underflow to zero (Micikevicius
/// et al. 2018, "Mixed Precision Training", section 3.2). A power of two, which changes no other
/// bit; an update that overflows all the same is skipped.
const F16_LOSS_SCALE: f64 = 4096.0;

/// What a model is trained towards.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Objective {
    /// Probability mass of the target distribution that is spread over the whole vocabulary.
    pub label_smoothing: f64,
    /// Above 0, the factor α of R-Drop (Liang et al. 2021, section 2.2): the batch passes twice,
    /// with different dropout, and the loss of a token is `(CE₁ + CE₂) / 2 + α (KL(p₁‖p₂) +
    /// KL(p₂‖p₁)) / 2`.
    ///
    /// The paper adds the divergences to the sum of the cross entropies and not to their mean: its
    /// α is twice this one, for twice this loss. The mean keeps losses, gradients and clipping
    /// on the scale of one pass.
    pub r_drop: f64,
    /// What draws the attention of a translation model to the links of a batch; none for nothing.
    pub guidance: Option<Guidance>,
}

impl Objective {
    /// Label-smoothed cross entropy in one pass.
    #[must_use]
    pub const fn smoothed(label_smoothing: f64) -> Self {
        Self { label_smoothing, r_drop: 0.0, guidance: None }
    }

    /// How often a batch passes through the model.
    #[must_use]
    pub fn passes(&self) -> usize {
        if self.r_drop > 0.0 { 2 } else { 1 }
    }
}

/// What draws the attention of a head from the decoder to the encoder to the links of a batch
/// (Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer Models", section
/// 4.2).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guidance {
    /// The factor λ of its loss beside the cross entropy.
    pub weight: f64,
    /// The decoder layer, counted from 0; none for the last but one.
    pub layer: Option<usize>,
    /// The head, counted from 0.
    pub head: usize,
}

/// The loss of a batch; with two passes, sums are means over the two.
#[derive(Debug, Clone)]
pub struct LossOutput {
    /// What [`Pass::backward`] starts from: `scale · Σ` of the objective, in f16 times a factor
    /// that keeps its gradients from underflowing.
    pub loss: Tensor,
    /// That factor, which the backward pass takes out again.
    pub(crate) loss_scale: f64,
    /// Sum of the label-smoothed cross entropy over the answers, in nats; of the squared error where
    /// answers are numbers.
    pub smoothed_sum: f64,
    /// Sum of the negative log-likelihood over the answers, in nats, or of the squared error.
    pub nll_sum: f64,
    /// Sum of the divergences `(KL(p₁‖p₂) + KL(p₂‖p₁)) / 2` over the answers, in nats; 0 with one
    /// pass.
    pub divergence_sum: f64,
    /// Sum of what is minimised: the smoothed cross entropy and, with R-Drop, α times the
    /// divergence; with experts, what their loads add to the loss; with guidance, what it adds.
    pub objective_sum: f64,
    /// How tokens were sent to experts, of a training pass.
    pub routing: Routing,
    /// Answers whose true class scored highest; with two passes, half of both counts together,
    /// rounded down.
    pub correct: usize,
    /// Answers.
    pub tokens: usize,
}

impl LossOutput {
    /// With what layers of the pass add to the loss of each answer, `loss` being `scale` times a sum
    /// over answers.
    ///
    /// A mean over the tokens of an update is then the mean over its micro-batches, each counting as
    /// much as it has answers.
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
/// validation and resuming, and let them drift apart.
pub trait Model: Send + Sync {
    /// Whether answers are classes, each with a probability, and one of them right. Of numbers, the
    /// loss is the squared error, and there is neither accuracy nor perplexity.
    const PREDICTS_CLASSES: bool = true;

    /// What all models have, as its [`Builder`](crate::Builder) made it.
    fn core(&self) -> &Core;

    /// What the model costs, by formula.
    fn cost(&self) -> Cost;

    /// The number of classes that an answer is one of: the loss of guessing is its logarithm. None
    /// where it differs between answers, or answers are no classes.
    fn answer_classes(&self) -> Option<usize> {
        None
    }

    /// The objective in one pass over `batch`, which for two passes holds each example twice;
    /// `loss` is `scale` times its sum. For [`Model::loss`], which knows of passes and types; that
    /// is what others call.
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

    /// The parameters, in order.
    fn parameters(&self) -> &ParameterStore {
        &self.core().store
    }

    /// The type of the activations: f32 on the CPU, whatever its products round to.
    fn activations(&self) -> DType {
        self.core().activations
    }

    /// Width of the residual stream, `d_model`, which Noam's schedule reads.
    fn width(&self) -> usize {
        self.core().width
    }

    /// The device on which the model computes.
    fn device(&self) -> &Device {
        self.parameters().device()
    }

    /// The objective on a batch; `loss` is `scale` times its sum over the answers.
    ///
    /// For the mean over the tokens of an update, `scale` is one over their number, over all
    /// micro-batches.
    ///
    /// # Errors
    /// When the batch is not of the model's streams, an id is not in its vocabulary, a sequence is
    /// longer than learned positions reach, or the device has no memory left.
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
        // Elements are dropped by their number in the batch: in one of twice the size, the second
        // pass drops others than the first.
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
