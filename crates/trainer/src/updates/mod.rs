//! One update: gradients of all its micro-batches, clipping, the optimizer, the moving average.

mod leaf;
mod norms;
mod not_finite;
mod outcome;
mod rehearsal;
mod roll;
mod saved;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use candle_core::{DType, Result as CandleResult, Tensor};
use taper_model::{Batch, Model};
use taper_ops::threads::in_waking_pool;
use taper_ops::{Gradients, ParameterStore, ema_step, sums_of_squares};

use crate::exchange::{Alone, Piece, everyone, halves};
use crate::{BoxError, Exchange, Optimizer, Step, TrainingConfig};

pub(crate) use leaf::{GradientTree, Leaf};
pub use norms::LayerNorms;
pub use outcome::{Fault, Measured, Outcome};
pub use rehearsal::rehearse;
use roll::Roll;

/// The update that is due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DueUpdate {
    /// Its number, from 1.
    pub step: u64,
    /// Its learning rate.
    pub learning_rate: f64,
    /// The loss above which it is not made, in nats a token; infinite for none.
    pub loss_limit: f64,
}

/// What leads out of the sum of gradients between two micro-batches.
#[derive(Debug, thiserror::Error)]
#[error("asked to stop")]
struct Stopped;

/// Makes updates: an optimizer with its state, the moving average and the gradient buffers, all in
/// the flat layout of the parameter store.
pub struct Updater {
    optimizer: Box<dyn Optimizer>,
    exchange: Box<dyn Exchange>,
    /// The piece of the flat layout that this process steps on.
    piece: Piece,
    /// A buffer for each that the optimizer has a name for, of that piece.
    state: Vec<Tensor>,
    ema: Option<Tensor>,
    gradients: GradientTree,
    /// Of the last update that was to be measured by layer.
    layer_norms: BTreeMap<String, LayerNorms>,
    composed: bool,
}

impl Updater {
    /// Zero state, and the moving average at the weights.
    ///
    /// # Errors
    /// When the device has no memory left.
    pub fn new(store: &ParameterStore, config: &TrainingConfig) -> CandleResult<Self> {
        Self::among(Box::new(Alone), store, config)
    }

    /// As [`Updater::new`], for one of several processes that make each update together.
    ///
    /// # Errors
    /// When the device has no memory left.
    pub fn among(
        exchange: Box<dyn Exchange>,
        store: &ParameterStore,
        config: &TrainingConfig,
    ) -> CandleResult<Self> {
        let optimizer = config.optimizer.build();
        let piece = Piece::new(store.len(), exchange.rank(), exchange.size());
        let zeros = |_: &&str| Tensor::zeros(piece.own().len(), DType::F32, store.device());
        Ok(Self {
            state: optimizer.buffers().iter().map(zeros).collect::<CandleResult<_>>()?,
            optimizer,
            exchange,
            piece,
            ema: if config.ema_decay > 0.0 { Some(store.flat()?) } else { None },
            gradients: GradientTree::default(),
            layer_norms: BTreeMap::new(),
            composed: false,
        })
    }

    /// The same on the composed operations and Candle's autodiff: slow, and the oracle of the fused
    /// ones.
    #[must_use]
    pub fn with_composed_operations(self) -> Self {
        Self { composed: true, ..self }
    }

    /// The norms of each layer at the last update that is to be logged; none unless they are asked
    /// for.
    pub(crate) fn take_layer_norms(&mut self) -> BTreeMap<String, LayerNorms> {
        std::mem::take(&mut self.layer_norms)
    }

    /// The processes that train together.
    pub(crate) fn exchange(&mut self) -> &mut dyn Exchange {
        &mut *self.exchange
    }

    /// Makes the update that is `due` on `batches`, which are this process's share of the
    /// micro-batches, unless something is not finite or the loss is above its limit.
    ///
    /// The loss is the mean over the target tokens of all micro-batches, so that k of them give the
    /// gradient of one batch k times as large, whatever their lengths: each contributes its sum
    /// over the common total. Once `stop` is set no further micro-batch is begun, and the update is
    /// not made.
    ///
    /// # Errors
    /// When the model refuses a batch, a parameter gets no gradient, the device has no memory left,
    /// or another process has ended.
    pub fn update(
        &mut self,
        model: &impl Model,
        config: &TrainingConfig,
        due: DueUpdate,
        batches: &[Batch],
        stop: &AtomicBool,
    ) -> Result<Outcome, BoxError> {
        let DueUpdate { step, learning_rate, loss_limit } = due;
        let store = model.parameters();
        let roll = Roll::call(&mut *self.exchange, batches)?;
        // No thread of the pool may wait for another process: in one process, that might need it.
        let summed = in_waking_pool(store.device(), || {
            self.sum_leaves(model, config, step, &roll, batches, stop)
        });
        // What one process was asked, all of them do.
        let stopped = summed.as_ref().is_err_and(|error| error.is::<Stopped>());
        if everyone(&mut *self.exchange, stopped)?.contains(&true) {
            self.gradients.free(summed.into_iter().flat_map(|(sums, _)| sums));
            return Ok(Outcome::Stopped);
        }
        let (mut sums, losses) = summed?;
        let measured = match Measured::total(everyone(&mut *self.exchange, losses)?.concat()) {
            Ok(measured) => measured,
            Err(fault) => {
                self.gradients.free(sums);
                return Ok(Outcome::Skipped(fault));
            }
        };
        let gradient = self.exchange_sums(store, &roll, &mut sums)?;
        let gradient = store.without_frozen(&self.piece.own(), gradient)?;
        let squares = in_waking_pool(store.device(), || sums_of_squares(&gradient))?;
        let squares = everyone(&mut *self.exchange, squares)?.concat();
        let gradient_norm = squares.iter().sum::<f64>().sqrt();
        let outcome = Measured { gradient_norm, ..measured }.judged(loss_limit);
        if config.log_layers && step.is_multiple_of(config.log_every) {
            self.layer_norms =
                norms::of_layers(store, &self.piece, &gradient, &mut *self.exchange)?;
        }
        if matches!(outcome, Outcome::Made(_)) {
            let gradient_scale = clip(gradient_norm, config.clip_norm);
            let step = Step { number: step, learning_rate, gradient_scale };
            in_waking_pool(store.device(), || {
                self.optimizer.step(store, self.piece.own(), &gradient, &mut self.state, &step)
            })?;
            self.share_weights(store)?;
            if let Some(ema) = &mut self.ema {
                ema_step(store, ema, ema_decay(config.ema_decay, step.number))?;
            }
        }
        self.gradients.free(sums);
        Ok(outcome)
    }

    /// The sums of gradients over the largest subtrees that this process has, and the losses of its
    /// micro-batches, up to the first that is not finite.
    fn sum_leaves(
        &mut self,
        model: &impl Model,
        config: &TrainingConfig,
        step: u64,
        roll: &Roll,
        batches: &[Batch],
        stop: &AtomicBool,
    ) -> Result<(Vec<Gradients>, Vec<Measured>), BoxError> {
        let (total, composed, first) = (roll.total, self.composed, roll.own().start);
        let mut losses: Vec<Measured> = Vec::with_capacity(batches.len());
        let mut gradient = |number: usize, sum: &mut Gradients| {
            if !losses.is_empty() && stop.load(Ordering::Relaxed) {
                return Err(Stopped.into());
            }
            if losses.last().is_some_and(|loss| !loss.objective_sum.is_finite()) {
                return Ok(());
            }
            let leaf = Leaf { batch: &batches[number - first], step, number, total, composed };
            losses.push(Measured::of(&leaf.gradient(model, config, sum)?));
            Ok(())
        };
        let nodes = roll.nodes(roll.rank).into_iter();
        let store = model.parameters();
        let sums = nodes
            .map(|node| self.gradients.sum(store, node, &mut gradient))
            .collect::<Result<_, BoxError>>()?;
        Ok((sums, losses))
    }

    /// The gradient of this process's piece: every process gives each other its part of the sums
    /// that it has, and adds up those it gets, in the order of the tree.
    ///
    /// # Shapes
    /// → `(length of the piece,)`.
    fn exchange_sums(
        &mut self,
        store: &ParameterStore,
        roll: &Roll,
        sums: &mut [Gradients],
    ) -> Result<Tensor, BoxError> {
        let sums = sums.iter_mut().map(|sum| sum.flat()).collect::<CandleResult<Vec<_>>>()?;
        let part = |range: Range<usize>| {
            let parts = sums.iter().map(|sum| sum.narrow(0, range.start, range.len()));
            joined(&parts.collect::<CandleResult<Vec<_>>>()?, store)
        };
        let parts = self.piece.all().map(part).collect::<CandleResult<_>>()?;
        let length = self.piece.own().len();
        let mut nodes = HashMap::new();
        for (rank, sums) in self.exchange.exchange(parts)?.iter().enumerate() {
            for (number, node) in roll.nodes(rank).into_iter().enumerate() {
                nodes.insert(node, sums.narrow(0, number * length, length)?);
            }
        }
        Ok(tree_sum(0..roll.leaves, &mut nodes)?)
    }

    /// Gives every process the weights that each has stepped on.
    fn share_weights(&mut self, store: &ParameterStore) -> Result<(), BoxError> {
        let size = self.exchange.size();
        if size == 1 {
            return Ok(());
        }
        let own = store.part(self.piece.own())?;
        let weights = self.exchange.exchange(vec![own; size])?;
        for (range, weights) in self.piece.all().zip(weights) {
            store.set_part(range.start, &weights)?;
        }
        Ok(())
    }

    /// The origin of the value that is not finite in update `step`, in words.
    pub(crate) fn first_not_finite(
        &mut self,
        model: &impl Model,
        config: &TrainingConfig,
        step: u64,
        batches: &[Batch],
    ) -> Result<String, BoxError> {
        let roll = Roll::call(&mut *self.exchange, batches)?;
        let found = not_finite::first_not_finite(model, config, step, &roll, batches)?;
        let found = everyone(&mut *self.exchange, found)?.into_iter().flatten().next();
        Ok(found.unwrap_or_else(|| "no part shows it by itself: their sum overflows".to_owned()))
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
}

/// Flat tensors end to end.
fn joined(parts: &[Tensor], store: &ParameterStore) -> CandleResult<Tensor> {
    match parts {
        [] => Tensor::zeros(0, DType::F32, store.device()),
        parts => Tensor::cat(parts, 0),
    }
}

/// The sum over `leaves`, of `nodes` that together have each of them.
fn tree_sum(
    leaves: Range<usize>,
    nodes: &mut HashMap<Range<usize>, Tensor>,
) -> CandleResult<Tensor> {
    if let Some(sum) = nodes.remove(&leaves) {
        return Ok(sum);
    }
    if leaves.len() <= 1 {
        candle_core::bail!("no process has micro-batch {}", leaves.start);
    }
    let [left, right] = halves(&leaves);
    tree_sum(left, nodes)? + tree_sum(right, nodes)?
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
