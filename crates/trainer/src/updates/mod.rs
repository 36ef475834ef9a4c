//! One update: gradients of all its micro-batches, clipping, the optimizer, the moving average.

mod leaf;
pub(crate) mod not_finite;
mod outcome;
mod rehearsal;

use std::path::Path;

use candle_core::{DType, Result as CandleResult, Tensor};
use taper_model::{Batch, Model};
use taper_ops::threads::in_waking_pool;
use taper_ops::{ParameterStore, ema_step, global_norm};

use crate::checkpoints::tensors::{self, Named};
use crate::checkpoints::{self, MODEL_FILE, OPTIMIZER_FILE};
use crate::{BoxError, CheckpointError, Optimizer, State, Step, TrainingConfig};

pub(crate) use leaf::{GradientTree, Leaf};
pub use outcome::{Fault, Measured, Outcome};
pub use rehearsal::rehearse;

/// Names of the weights that are trained, where the model's file has their moving average.
const WEIGHTS: &str = "weights.";

/// Makes updates: an optimizer with its state, the moving average and the gradient buffers, all in
/// the flat layout of the parameter store.
#[derive(Debug)]
pub struct Updater {
    optimizer: Box<dyn Optimizer>,
    /// A buffer for each that the optimizer has a name for.
    state: Vec<Tensor>,
    ema: Option<Tensor>,
    gradients: GradientTree,
    composed: bool,
}

impl Updater {
    /// Zero state, and the moving average at the weights.
    ///
    /// # Errors
    /// When the device has no memory left.
    pub fn new(store: &ParameterStore, config: &TrainingConfig) -> CandleResult<Self> {
        let optimizer = config.optimizer.build();
        let zeros = |_: &&str| Tensor::zeros(store.len(), DType::F32, store.device());
        Ok(Self {
            state: optimizer.buffers().iter().map(zeros).collect::<CandleResult<_>>()?,
            optimizer,
            ema: if config.ema_decay > 0.0 { Some(store.flat()?) } else { None },
            gradients: GradientTree::default(),
            composed: false,
        })
    }

    /// The same on the composed operations and Candle's autodiff: slow, and the oracle of the fused
    /// ones.
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
            let total = batches.iter().map(Batch::tokens).sum();
            let store = model.parameters();
            let mut measured = Measured { tokens: total as u64, ..Measured::default() };
            let mut not_finite = None;
            let composed = self.composed;
            let mut gradients =
                self.gradients.sum(store, 0..batches.len(), &mut |number, sum| {
                    if not_finite.is_some() {
                        return Ok(());
                    }
                    let leaf = Leaf { batch: &batches[number], step, number, total, composed };
                    let output = leaf.gradient(model, config, sum)?;
                    measured.add(&output);
                    not_finite = Some(output.objective_sum).filter(|loss| !loss.is_finite());
                    Ok(())
                })?;
            let outcome = match not_finite {
                Some(loss) => Outcome::Skipped(Fault::Loss(loss)),
                None => {
                    measured.gradient_norm = global_norm(gradients.flat()?)?;
                    measured.judged(loss_limit)
                }
            };
            if let Outcome::Made(measured) = &outcome {
                let gradient_scale = clip(measured.gradient_norm, config.clip_norm);
                let step = Step { number: step, learning_rate, gradient_scale };
                let (all, flat) = (0..store.len(), gradients.flat()?);
                self.optimizer.step(store, all, flat, &mut self.state, &step)?;
                if let Some(ema) = &mut self.ema {
                    ema_step(store, ema, ema_decay(config.ema_decay, step.number))?;
                }
            }
            self.gradients.give_back(gradients);
            Ok(outcome)
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
        let mut optimizer = Vec::new();
        for (name, buffer) in self.optimizer.buffers().iter().zip(&self.state) {
            optimizer.extend(tensors::name_parts(store, &prefix(name), buffer)?);
        }
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
        saved: &State,
        store: &ParameterStore,
        config: &TrainingConfig,
    ) -> Result<Self, CheckpointError> {
        let optimizer = config.optimizer.build();
        let path = checkpoint.join(OPTIMIZER_FILE);
        let failed = |source| CheckpointError::Tensor { path: path.clone(), source };
        let model = checkpoints::open_tensors(checkpoint, saved, MODEL_FILE)?;
        let model = model.flat(store, &[""])?.concat();
        let file = checkpoints::open_tensors(checkpoint, saved, OPTIMIZER_FILE)?;
        let names = optimizer.buffers();
        if !names.iter().any(|name| file.has(&prefix(name))) {
            return Err(CheckpointError::OtherOptimizer {
                path,
                kind: config.optimizer.kind,
                missing: names.join("', '"),
            });
        }
        let mut prefixes: Vec<String> = names.iter().map(|name| prefix(name)).collect();
        let has_weights = file.has(WEIGHTS);
        prefixes.extend(has_weights.then(|| WEIGHTS.to_owned()));
        let mut buffers = file.flat(store, &prefixes)?;
        let weights = if has_weights { buffers.pop() } else { None };
        let flat = |values: Vec<f32>| {
            let count = values.len();
            Tensor::from_vec(values, count, store.device()).map_err(failed)
        };
        let ema = if config.ema_decay > 0.0 { Some(flat(model.clone())?) } else { None };
        checkpoints::set_weights(checkpoint, store, weights.unwrap_or(model))?;
        let state = buffers.into_iter().map(flat).collect::<Result<_, _>>()?;
        Ok(Self { optimizer, state, ema, gradients: GradientTree::default(), composed: false })
    }
}

/// What the tensors of a buffer are named with.
fn prefix(buffer: &str) -> String {
    format!("{buffer}.")
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
