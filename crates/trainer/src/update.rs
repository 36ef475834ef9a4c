//! One update: gradients of all its micro-batches, clipping, Adam, the moving average.

use std::fmt;
use std::path::Path;

use candle_core::{DType, Result as CandleResult, Tensor};
use taper_model::{Batch, Model, Pass};
use taper_ops::threads::in_waking_pool;
use taper_ops::{AdamStep, Gradients, ParameterStore, adam_step, ema_step, global_norm};

use crate::checkpoint::{self, MODEL_FILE, OPTIMIZER_FILE};
use crate::tensors::{self, Named};
use crate::{BoxError, CheckpointError, OptimizerConfig, OptimizerKind, State, TrainingConfig};

/// Names of Adam's running mean of gradients in the optimizer's file.
const FIRST: &str = "first.";
/// Names of Adam's running mean of squared gradients.
const SECOND: &str = "second.";
/// Names of the weights that are trained, where the model's file has their moving average.
const WEIGHTS: &str = "weights.";

/// What one update measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measured {
    /// Sum of the label-smoothed cross entropy over the target tokens, in nats.
    pub smoothed_sum: f64,
    /// Sum of the negative log-likelihood of the true tokens, in nats.
    pub nll_sum: f64,
    /// With R-Drop, the sum of the divergences between the two predictions of a token, in nats;
    /// else 0.
    pub divergence_sum: f64,
    /// Sum of what is minimised: the smoothed cross entropy and, with R-Drop, α times the
    /// divergence.
    pub objective_sum: f64,
    /// Target tokens whose true class scored highest.
    pub correct: u64,
    /// Target tokens.
    pub tokens: u64,
    /// Euclidean norm of the gradient, before clipping.
    pub gradient_norm: f64,
}

impl Measured {
    /// What is minimised, in nats a target token.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.objective_sum / self.tokens as f64
    }
}

/// How an update went.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The weights changed.
    Made(Measured),
    /// They did not, because of this.
    Skipped(Fault),
}

/// Why an update is not made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// The loss, which is not finite.
    Loss(f64),
    /// The gradient's norm, which is not finite.
    Gradient(f64),
    /// The loss a token, in nats, which is above the limit.
    Spike {
        /// What it is.
        loss: f64,
        /// What it may be.
        limit: f64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loss(loss) => write!(formatter, "the loss is {loss}"),
            Self::Gradient(norm) => write!(formatter, "the gradient norm is {norm}"),
            Self::Spike { loss, limit } => {
                write!(
                    formatter,
                    "the loss is {loss:.4}, above the limit of {limit:.4} that training.spike_factor sets"
                )
            }
        }
    }
}

/// Moments, moving average and the gradient buffer, all in the flat layout of the parameter store.
#[derive(Debug)]
pub struct Optimizer {
    gradients: Gradients,
    first: Tensor,
    second: Tensor,
    ema: Option<Tensor>,
    composed: bool,
}

impl Optimizer {
    /// Zero moments, and the moving average at the weights.
    ///
    /// # Errors
    /// When the device has no memory left.
    pub fn new(store: &ParameterStore, ema_decay: f64) -> CandleResult<Self> {
        let zeros = || Tensor::zeros(store.len(), DType::F32, store.device());
        let ema = if ema_decay > 0.0 { Some(store.flat()?) } else { None };
        Ok(Self {
            gradients: Gradients::new(store)?,
            first: zeros()?,
            second: zeros()?,
            ema,
            composed: false,
        })
    }

    /// The same optimizer on the composed operations and Candle's autodiff: slow, and the oracle of
    /// the fused ones.
    #[must_use]
    pub fn with_composed_operations(self) -> Self {
        Self { composed: true, ..self }
    }

    /// Makes update `step` (from 1) on `batches`, unless something is not finite or the loss is
    /// above `loss_limit` nats a token.
    ///
    /// The loss is the mean over the target tokens of all micro-batches, so that k of them give the
    /// gradient of one batch k times as large, whatever their lengths: each contributes its sum
    /// over the common total.
    ///
    /// # Errors
    /// When the model refuses a batch, a parameter gets no gradient, or the device has no memory
    /// left.
    pub fn update(
        &mut self,
        model: &impl Model,
        config: &TrainingConfig,
        step: u64,
        learning_rate: f64,
        loss_limit: f64,
        batches: &[Batch],
    ) -> Result<Outcome, BoxError> {
        in_waking_pool(|| {
            let total: usize = batches.iter().map(Batch::tokens).sum();
            let scale = 1.0 / total as f64;
            let store = model.parameters();
            let mut measured = Measured { tokens: total as u64, ..Measured::default() };
            self.gradients.zero()?;
            for (index, batch) in batches.iter().enumerate() {
                let pass = Pass::train(config.seed, step, index as u64);
                let pass = if self.composed { pass.composed() } else { pass };
                let output = model.loss(batch, &config.objective(), scale, &pass)?;
                let loss = output.objective_sum;
                if !loss.is_finite() {
                    return Ok(Outcome::Skipped(Fault::Loss(loss)));
                }
                pass.backward(&output, store, &mut self.gradients)?;
                measured.smoothed_sum += output.smoothed_sum;
                measured.nll_sum += output.nll_sum;
                measured.divergence_sum += output.divergence_sum;
                measured.objective_sum += loss;
                measured.correct += output.correct as u64;
            }
            measured.gradient_norm = global_norm(self.gradients.flat()?)?;
            if !measured.gradient_norm.is_finite() {
                return Ok(Outcome::Skipped(Fault::Gradient(measured.gradient_norm)));
            }
            if measured.loss() > loss_limit {
                return Ok(Outcome::Skipped(Fault::Spike {
                    loss: measured.loss(),
                    limit: loss_limit,
                }));
            }
            let gradient_scale = clip(measured.gradient_norm, config.clip_norm);
            let adam = adam(&config.optimizer, step, learning_rate, gradient_scale);
            adam_step(store, self.gradients.flat()?, &mut self.first, &mut self.second, &adam)?;
            if let Some(ema) = &mut self.ema {
                ema_step(store, ema, ema_decay(config.ema_decay, step))?;
            }
            Ok(Outcome::Made(measured))
        })
    }

    /// Runs `work` while the model has the weights to translate with: the moving average, where
    /// there is one.
    pub(crate) fn with_model<M: Model, T>(
        &self,
        model: &M,
        work: impl FnOnce(&M) -> Result<T, BoxError>,
    ) -> Result<T, BoxError> {
        let Some(ema) = &self.ema else { return work(model) };
        let weights = model.parameters().flat()?;
        model.parameters().set_flat(ema)?;
        let result = work(model);
        model.parameters().set_flat(&weights)?;
        result
    }

    /// What to save: the tensors of the model's file, and those of the optimizer's.
    pub(crate) fn export(&self, store: &ParameterStore) -> CandleResult<(Vec<Named>, Vec<Named>)> {
        let weights = store.flat()?;
        let mut optimizer = tensors::name_parts(store, FIRST, &self.first)?;
        optimizer.extend(tensors::name_parts(store, SECOND, &self.second)?);
        if self.ema.is_some() {
            optimizer.extend(tensors::name_parts(store, WEIGHTS, &weights)?);
        }
        let model = tensors::name_parts(store, "", self.ema.as_ref().unwrap_or(&weights))?;
        Ok((model, optimizer))
    }

    /// The inverse of [`Self::export`]: loads a checkpoint into `store` and new buffers.
    ///
    /// A moving average that is newly configured begins at the weights; one that no longer is gets
    /// dropped.
    pub(crate) fn import(
        checkpoint: &Path,
        state: &State,
        store: &ParameterStore,
        ema: bool,
    ) -> Result<Self, CheckpointError> {
        let path = checkpoint.join(OPTIMIZER_FILE);
        let failed = |source| CheckpointError::Tensor { path: path.clone(), source };
        let [model] = checkpoint::open_tensors(checkpoint, state, MODEL_FILE)?.flat(store, [""])?;
        let optimizer = checkpoint::open_tensors(checkpoint, state, OPTIMIZER_FILE)?;
        let (first, second, weights) = if optimizer.has(WEIGHTS) {
            let [first, second, weights] = optimizer.flat(store, [FIRST, SECOND, WEIGHTS])?;
            (first, second, Some(weights))
        } else {
            let [first, second] = optimizer.flat(store, [FIRST, SECOND])?;
            (first, second, None)
        };
        let flat = |values: Vec<f32>| {
            let count = values.len();
            Tensor::from_vec(values, count, store.device()).map_err(failed)
        };
        let ema = if ema { Some(flat(model.clone())?) } else { None };
        checkpoint::set_weights(checkpoint, store, weights.unwrap_or(model))?;
        let gradients = Gradients::new(store).map_err(failed)?;
        Ok(Self { gradients, first: flat(first)?, second: flat(second)?, ema, composed: false })
    }
}

/// The factor that brings a gradient of norm `norm` to at most `limit`; 0 is no limit.
fn clip(norm: f64, limit: f64) -> f64 {
    if limit > 0.0 && norm > limit { limit / norm } else { 1.0 }
}

/// The decay of the moving average at `step`: early on lower than configured, or the average would
/// long remember the random initial weights (TensorFlow's `ExponentialMovingAverage` with
/// `num_updates`).
fn ema_decay(decay: f64, step: u64) -> f64 {
    let step = step as f64;
    decay.min((1.0 + step) / (10.0 + step))
}

fn adam(config: &OptimizerConfig, step: u64, learning_rate: f64, gradient_scale: f64) -> AdamStep {
    AdamStep {
        learning_rate,
        beta1: config.beta1,
        beta2: config.beta2,
        epsilon: config.epsilon,
        weight_decay: config.weight_decay,
        step,
        gradient_scale,
        decoupled: config.kind == OptimizerKind::Adamw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipping_scales_only_gradients_above_the_limit() {
        assert_eq!(clip(4.0, 1.0), 0.25);
        assert_eq!(clip(0.5, 1.0), 1.0);
        assert_eq!(clip(4.0, 0.0), 1.0);
    }

    #[test]
    fn the_moving_average_forgets_its_beginning() {
        assert_eq!(ema_decay(0.999, 1), 2.0 / 11.0);
        assert_eq!(ema_decay(0.999, 1_000_000), 0.999);
    }
}
