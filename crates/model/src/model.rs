//! Interface between trainer and model: parameters, the loss on a batch, and costs.

use candle_core::{DType, Device, Tensor};
use taper_ops::{MappedValues, Parameter, ParameterStore, composed};

use crate::layers::stack::StackKind;
use crate::layers::stack::block::Block;
use crate::{
    Batch, Builder, Cost, LayerCost, LossOutput, LossSpec, ModelConfig, ModelCore, Objective, Pass,
    Result,
};

/// Factor of the loss of f16 models in training. Without it, the gradient of a single token, which
/// is divided by the number of tokens, would underflow to zero (Micikevicius et al. 2018, "Mixed
/// Precision Training", section 3.2). The factor is a power of two, so it changes only the
/// exponents of numbers. An update that overflows because of the factor is skipped.
const F16_LOSS_SCALE: f64 = 4096.0;

/// A model that can be trained.
///
/// The alternative to this trait, a training loop for each kind of model, would have several copies
/// of the same code (accumulation and clipping of gradients, skipping of updates, validation,
/// resuming), and these copies could drift apart.
pub trait Model: Send + Sync {
    /// Parts that all models have; the model's [`Builder`](crate::Builder) makes them.
    fn core(&self) -> &ModelCore;

    /// Configuration from which the model was made.
    fn config(&self) -> &ModelConfig {
        &self.core().config
    }

    /// Cost of the layer with the index `layer`, from 0, in the stack whose states predict the
    /// answers: by default, in the encoder.
    fn layer_cost(config: &ModelConfig, layer: usize) -> LayerCost
    where
        Self: Sized,
    {
        Block::cost(config, StackKind::Encoder, layer)
    }

    /// Cost of the model in parameters, arithmetic and memory, computed by formula.
    fn cost(&self) -> Cost {
        self.core().cost.clone()
    }

    /// Number of classes from which an answer is chosen. The logarithm of this number is the loss
    /// of random guesses. `None` if it differs between answers, or if answers are not classes.
    fn answer_classes(&self) -> Option<usize> {
        None
    }

    /// Returns whether answers are classes, with probabilities. If they are numbers, the loss is the
    /// squared error, and there is neither accuracy nor perplexity.
    #[must_use]
    fn predicts_classes() -> bool
    where
        Self: Sized,
    {
        true
    }

    /// Computes the objective in one pass over `batch`; for R-Drop, `batch` has each example twice.
    /// In the result, `loss` is `spec.scale` times the sum of the objective over the answers. Only
    /// [`Model::loss`] should call this, because it sets the scale and the number of passes.
    ///
    /// # Errors
    /// The errors of [`Model::loss`].
    fn loss_of_pass(&self, batch: &Batch, spec: LossSpec<'_>) -> Result<LossOutput>;

    /// Leaves the values of a parameter in a file, in place of loading them. Returns `false`, and
    /// does nothing, unless the model only decodes and the parameter is the weight of a linear
    /// layer or a table of tokens. After `true`, the loading of the parameter is complete.
    ///
    /// # Errors
    /// If the parameter has another number of values.
    fn leave_in_file(
        &self,
        parameter: &Parameter,
        values: &MappedValues,
    ) -> candle_core::Result<bool> {
        self.core().leave_in_file(parameter, values)
    }

    /// Completes the loading of a parameter whose values have been set. A model that only decodes
    /// packs the weights of linear layers here, that is, arranges them for the matrix kernels, and
    /// frees their own values. For other models, there is nothing to do.
    ///
    /// # Errors
    /// If the parameter cannot be rounded or packed.
    fn finish_loading(&self, parameter: &Parameter) -> candle_core::Result<()> {
        self.core().finish_loading(parameter)
    }

    /// All parameters of the model, in the order in which they were made.
    fn parameters(&self) -> &ParameterStore {
        &self.core().store
    }

    /// Type of the activations. On the CPU it is f32, even if products round their operands to
    /// another type.
    fn activations(&self) -> DType {
        self.core().activations
    }

    /// Width of the residual stream, `d_model`, which the learning-rate schedule `noam` reads.
    fn width(&self) -> usize {
        self.config().d_model
    }

    /// Device on which the model computes.
    fn device(&self) -> &Device {
        self.parameters().device()
    }

    /// Computes the objective on a batch. In the result, `loss` is `scale` times the sum of the
    /// objective over the answers.
    ///
    /// To get the mean over the answers of an update, set `scale` to 1 divided by the number of
    /// answers in all micro-batches of the update.
    ///
    /// # Errors
    /// If the batch does not have the kinds of input (streams) that the model reads, an id is not
    /// in its vocabulary, a sequence is longer than the learned positions, or the device has no
    /// memory left.
    fn loss(
        &self,
        batch: &Batch,
        objective: &Objective,
        scale: f64,
        pass: &Pass,
    ) -> Result<LossOutput> {
        let loss_scale = if self.activations() == DType::F16 { F16_LOSS_SCALE } else { 1.0 };
        let scale = scale * loss_scale;
        if objective.passes() == 1 {
            let output = self.loss_of_pass(batch, LossSpec { objective, scale, pass })?;
            let output = with_auxiliary(output, scale, pass)?;
            return Ok(LossOutput { loss_scale, ..output });
        }
        // Dropout depends on the position of an element in the batch. In a batch of twice the size,
        // the second half is therefore dropped differently from the first.
        let scale = scale / 2.0;
        let output = self.loss_of_pass(&batch.twice(), LossSpec { objective, scale, pass })?;
        let output = with_auxiliary(output, scale, pass)?;
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

/// Adds to `output` the auxiliary losses of the layers in the pass, such as the losses of experts.
/// The `loss` of `output` is `scale` times a sum over answers.
///
/// Each auxiliary loss is a mean over the tokens of a micro-batch. It is multiplied by the number
/// of answers in the micro-batch, so that the update gets the weighted mean over its micro-batches.
fn with_auxiliary(output: LossOutput, scale: f64, pass: &Pass) -> Result<LossOutput> {
    let (losses, routing) = pass.take_auxiliary();
    if losses.is_empty() {
        return Ok(output);
    }
    let (tokens, mut sum) = (output.tokens as f64, 0.0);
    for loss in &losses {
        sum += loss.to_dtype(DType::F64)?.to_scalar::<f64>()?;
    }
    let inputs: Vec<&Tensor> = [&output.loss].into_iter().chain(&losses).collect();
    let loss = composed::on_tape(pass.tape(), "auxiliary losses", &inputs, |inputs| {
        inputs[1..].iter().try_fold(inputs[0].clone(), |total, one| {
            total + (one.to_dtype(inputs[0].dtype())? * (scale * tokens))?
        })
    })?;
    Ok(LossOutput { loss, objective_sum: output.objective_sum + tokens * sum, routing, ..output })
}

/// Returns the cost on `device` of the model that `make` makes, without allocating memory for it.
/// If the model cannot be made, the cost is zero; the real attempt to make the model reports the
/// error.
pub fn cost_of<M: Model>(device: &Device, make: impl FnOnce(Builder) -> Result<M>) -> Cost {
    make(Builder::counting(device)).map_or_else(|_| Cost::default(), |model| model.cost())
}
