//! Updates: gradients of all micro-batches of an update, clipping, step of the optimizer, and
//! moving average of the weights.

mod batch_shares;
mod leaf;
mod noise;
mod norms;
mod not_finite;
mod outbox;
mod outcome;
mod rehearsal;
mod saved;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use candle_core::{DType, Result as CandleResult, Tensor};
use taper_model::{Batch, Model};
use taper_ops::threads::in_waking_pool;
use taper_ops::{Gradients, ParameterStore, WhenFinal, ema_step, sums_of_squares};

use crate::exchange::{Layout, Piece, SingleProcess, Timed, buckets, everyone, halves};
use crate::{BoxError, Exchange, Optimizer, Part, Step, TrainingConfig};

use batch_shares::BatchShares;
pub(crate) use leaf::{GradientTree, Leaf};
pub use noise::GradientNoise;
pub use norms::NormsPerLayer;
use outbox::Outbox;
pub use outcome::{Outcome, SkipReason, UpdateMetrics};
pub use rehearsal::rehearse;

/// Settings of the next update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DueUpdate {
    /// Number of the update, counted from 1.
    pub step: u64,
    /// Learning rate.
    pub learning_rate: f64,
    /// Limit of the loss, in nats per token, above which the update is skipped; infinite if there
    /// is no limit.
    pub loss_limit: f64,
}

/// Error with which the summation of gradients ends if the stop flag is set.
#[derive(Debug, thiserror::Error)]
#[error("asked to stop")]
struct Stopped;

/// Updater of weights: optimizer with its state, moving average of the weights, and buffers of
/// gradients, all in the flat layout of the parameter store (all parameters, one after the other).
pub struct Updater {
    optimizer: Box<dyn Optimizer>,
    exchange: Timed,
    layout: Layout,
    /// Pieces of the flat layout that this process updates. The layout is divided into buckets
    /// (ranges that are exchanged at once), and each bucket into one piece for each process.
    pieces: Vec<Piece>,
    /// The optimizer's buffers for each piece.
    state: Vec<Vec<Tensor>>,
    ema: Option<Tensor>,
    gradients: GradientTree,
    /// Norms of gradients and weights of each layer, from the last update in which they were
    /// computed.
    layer_norms: BTreeMap<String, NormsPerLayer>,
    composed: bool,
}

impl Updater {
    /// Makes an updater whose optimizer state is zero, and whose moving average is equal to the
    /// current weights.
    ///
    /// # Errors
    /// If the device has too little memory.
    pub fn new(store: &ParameterStore, config: &TrainingConfig) -> CandleResult<Self> {
        Self::among(Box::new(SingleProcess::default()), store, config)
    }

    /// Makes an updater like [`Updater::new`], in one of several processes that make each update
    /// together.
    ///
    /// # Errors
    /// If the device has too little memory.
    pub fn among(
        exchange: Box<dyn Exchange>,
        store: &ParameterStore,
        config: &TrainingConfig,
    ) -> CandleResult<Self> {
        let optimizer = config.optimizer.build();
        let layout = Layout::new(store, &*optimizer);
        let pieces = pieces(&layout, config, &*exchange);
        let zeros = |piece: &Piece| {
            let zeros = |_| Tensor::zeros(piece.own_range().len(), DType::F32, store.device());
            optimizer.buffers().iter().map(zeros).collect::<CandleResult<_>>()
        };
        Ok(Self {
            state: pieces.iter().map(zeros).collect::<CandleResult<_>>()?,
            optimizer,
            exchange: Timed::new(exchange),
            layout,
            pieces,
            ema: if config.ema_decay > 0.0 { Some(store.flat()?) } else { None },
            gradients: GradientTree::default(),
            layer_norms: BTreeMap::new(),
            composed: false,
        })
    }

    /// Switches from fused operations, each of which does the work of several Candle operations, to
    /// plain Candle operations, whose gradients Candle computes. The plain operations are slow, and
    /// are the reference in tests of the fused ones.
    #[must_use]
    pub fn with_composed_operations(self) -> Self {
        Self { composed: true, ..self }
    }

    /// Returns the norms of each layer from the last update with a log event, and removes them from
    /// `self`. Empty unless `training.log_layers` is set.
    pub(crate) fn take_layer_norms(&mut self) -> BTreeMap<String, NormsPerLayer> {
        std::mem::take(&mut self.layer_norms)
    }

    /// Connection to the processes that train together.
    pub(crate) fn exchange(&mut self) -> &mut dyn Exchange {
        &mut self.exchange
    }

    /// Time that this process has waited for other processes so far.
    pub(crate) const fn waited(&self) -> Duration {
        self.exchange.waited()
    }

    /// Makes the update `due`, unless a value is not finite or the loss is above the limit.
    /// `batches`: this process's share of the micro-batches.
    ///
    /// The loss is the mean over the target tokens of all micro-batches: each micro-batch
    /// contributes its sum of losses, divided by the number of target tokens in all micro-batches.
    /// So the gradient is the same as that of a single batch with all these sentences, even if the
    /// micro-batches have different numbers of tokens.
    ///
    /// `stop` is read before every micro-batch except a process's first. If it is set at one of
    /// these times, the process computes no more micro-batches, and no process makes the update.
    /// Callers read it themselves before they begin an update.
    ///
    /// # Errors
    /// If the model cannot compute a batch, a parameter gets no gradient, the device has too little
    /// memory, or another process has ended.
    pub fn update(
        &mut self,
        model: &dyn Model,
        config: &TrainingConfig,
        due: DueUpdate,
        batches: &[Batch],
        stop: &AtomicBool,
    ) -> Result<Outcome, BoxError> {
        let DueUpdate { step, learning_rate, loss_limit } = due;
        let store = model.parameters();
        let shares = BatchShares::exchange(&mut self.exchange, batches)?;
        // The gradients are summed on a thread of the pool, but messages of other processes are
        // awaited only on this thread. In tests, processes are threads of one program and share the
        // pool. A thread of the pool that waited for another process could be the thread that the
        // other process needs.
        let summed = in_waking_pool(store.device(), || {
            self.sum_leaves(model, config, step, &shares, batches, stop)
        });
        let stopped = summed.as_ref().is_err_and(|error| error.is::<Stopped>());
        let (mut sums, losses) = match summed {
            Err(_) if stopped => (Vec::new(), Vec::new()),
            summed => summed?,
        };
        let received =
            self.pieces.iter().rev().map(|_| self.exchange.end()).collect::<Result<Vec<_>, _>>();
        let own_sums = sums.iter_mut().map(|sum| Ok(sum.flat()?.clone()));
        let own_sums = own_sums.collect::<CandleResult<Vec<_>>>();
        self.gradients.free(sums);
        let (received, own_sums) = (received?, own_sums?);
        // If the stop flag is set in one process, all processes stop.
        if everyone(&mut self.exchange, stopped)?.contains(&true) {
            return Ok(Outcome::Stopped);
        }
        let micro_batches = everyone(&mut self.exchange, losses)?.concat();
        let measured = match UpdateMetrics::total(&micro_batches) {
            Ok(measured) => measured,
            Err(fault) => return Ok(Outcome::Skipped(fault)),
        };
        let gradients = self.add_up(store, &shares, &own_sums, received)?;
        let gradient_norm = self.norm(store, &gradients)?;
        let norms = micro_batches.iter().map(|one| (one.tokens, one.gradient_norm));
        let noise = GradientNoise::estimate(norms, gradient_norm);
        let outcome = UpdateMetrics { gradient_norm, noise, ..measured }.judged(loss_limit);
        if config.log_layers && step.is_multiple_of(config.log_every) {
            self.layer_norms =
                norms::of_layers(store, &self.pieces, &gradients, &mut self.exchange)?;
        }
        if matches!(outcome, Outcome::Made(_)) {
            let gradient_scale = clip(gradient_norm, config.clip_norm);
            let step = Step { number: step, learning_rate, gradient_scale };
            self.step(store, &gradients, &step)?;
            if let Some(ema) = &mut self.ema {
                ema_step(store, ema, ema_decay(config.ema_decay, step.number))?;
            }
        }
        Ok(outcome)
    }

    /// Sums the gradients of each of this process's subtrees ([`BatchShares::nodes`]). Returns
    /// these sums, and the losses of this process's micro-batches up to the first loss that is not
    /// finite. Also begins the exchange of all buckets, if possible during the backward pass. After
    /// an error, the exchange of some buckets has possibly not begun.
    fn sum_leaves(
        &mut self,
        model: &dyn Model,
        config: &TrainingConfig,
        step: u64,
        shares: &BatchShares,
        batches: &[Batch],
        stop: &AtomicBool,
    ) -> Result<(Vec<Gradients>, Vec<UpdateMetrics>), BoxError> {
        let (total, composed, first) = (shares.total, self.composed, shares.own_leaves().start);
        let store = model.parameters();
        let mut losses: Vec<UpdateMetrics> = Vec::with_capacity(batches.len());
        let mut gradient =
            |number: usize, sum: &mut Gradients, when_final: Option<WhenFinal<'_>>| {
                if !losses.is_empty() && stop.load(Ordering::Relaxed) {
                    return Err(Stopped.into());
                }
                if losses.last().is_some_and(|loss| !loss.objective_sum.is_finite()) {
                    return Ok(());
                }
                let leaf = Leaf { batch: &batches[number - first], step, number, total, composed };
                let output = leaf.gradient(model, config, sum, when_final)?;
                let gradient_norm = match shares.leaves > 1 && output.objective_sum.is_finite() {
                    true => noise::norm_of(store, sum)?,
                    false => 0.0,
                };
                losses.push(UpdateMetrics { gradient_norm, ..UpdateMetrics::from_loss(&output) });
                Ok(())
            };
        let mut nodes = shares.nodes(shares.rank);
        let last = nodes.pop();
        let mut of_node =
            |node| self.gradients.sum(store, node, &mut |number, sum| gradient(number, sum, None));
        let sums = nodes.into_iter().map(&mut of_node).collect::<Result<Vec<_>, BoxError>>();
        let stopped = |error: &BoxError| error.is::<Stopped>();
        let (mut sums, stopped_before) = match sums {
            Err(error) if stopped(&error) => (Vec::new(), Some(error)),
            sums => (sums?, None),
        };
        let before: CandleResult<_> = sums.iter_mut().map(|sum| Ok(sum.flat()?.clone())).collect();
        let mut outbox = Outbox::new(&mut self.exchange, store, &self.pieces, before?);
        let is_told = shares.is_shared() && self.pieces.len() > 1 && store.device().is_cpu();
        let summed = match last.filter(|_| stopped_before.is_none()) {
            None => stopped_before.map_or(Ok(None), Err),
            // The sum must be copied to be sent during the backward pass. The copy is only worth
            // its time if other processes wait for the sum and there are several buckets: then one
            // bucket can be sent before the next is computed.
            Some(node) if is_told => {
                let tell = &mut |start: usize, values: &[f32]| outbox.take(start, values);
                self.gradients.sum_told(store, node, &mut gradient, tell).map(Some)
            }
            Some(node) => {
                let one = &mut |number, sum: &mut Gradients| gradient(number, sum, None);
                self.gradients.sum(store, node, one).and_then(|mut sum| {
                    outbox.take_whole(sum.flat()?)?;
                    Ok(Some(sum))
                })
            }
        };
        // The other processes wait for all buckets, so all buckets are exchanged even if this
        // process has nothing to send.
        if summed.as_ref().map_or_else(stopped, |_| true) {
            outbox.close()?;
        }
        sums.extend(summed?);
        Ok((sums, losses))
    }

    /// Returns the gradients of this process's pieces: for each piece, the sums over the subtrees
    /// of all processes are added in the order of the tree.
    ///
    /// `own_sums`: sums of this process, one for each of its subtrees. `received`: a list for each
    /// bucket, beginning with the last bucket. Each list has one tensor from each process, by rank.
    /// The tensor has that process's sums over its subtrees, one after the other, restricted to the
    /// piece of this process.
    ///
    /// # Shapes
    /// Each tensor in `own_sums`: `(n,)` for n values of all parameters. Each tensor in the result:
    /// `(length of the piece,)`.
    fn add_up(
        &self,
        store: &ParameterStore,
        shares: &BatchShares,
        own_sums: &[Tensor],
        received: Vec<Vec<Tensor>>,
    ) -> Result<Vec<Tensor>, BoxError> {
        let mut gradients = Vec::with_capacity(self.pieces.len());
        for (piece, of_all) in self.pieces.iter().zip(received.into_iter().rev()) {
            let (start, length) = (piece.own_range().start, piece.own_range().len());
            let mut nodes = HashMap::new();
            for (rank, sums) in of_all.iter().enumerate() {
                for (number, node) in shares.nodes(rank).into_iter().enumerate() {
                    let sum = match (rank == shares.rank, own_sums.get(number)) {
                        (true, Some(sum)) => sum.narrow(0, start, length)?,
                        _ => sums.narrow(0, number * length, length)?,
                    };
                    nodes.insert(node, sum);
                }
            }
            let gradient = tree_sum(0..shares.leaves, &mut nodes)?;
            gradients.push(store.without_frozen(&piece.own_range(), gradient)?);
        }
        Ok(gradients)
    }

    /// Returns the norm of the whole gradient, from the pieces of all processes. `gradients`:
    /// pieces of this process.
    fn norm(&mut self, store: &ParameterStore, gradients: &[Tensor]) -> Result<f64, BoxError> {
        // Numbers are sent as their bits, because a sum can be infinite, which JSON cannot express.
        let bits = |(piece, gradient): (&Piece, &Tensor)| {
            let segments = self.layout.within(&piece.own_range());
            Ok(sums_of_squares(gradient, &segments)?.into_iter().map(f64::to_bits).collect())
        };
        let squares: Vec<Vec<u64>> = in_waking_pool(store.device(), || {
            self.pieces.iter().zip(gradients).map(bits).collect::<CandleResult<_>>()
        })?;
        let all = everyone(&mut self.exchange, squares)?;
        // Squares are added in the order of the flat layout: bucket by bucket, and in each bucket
        // the pieces of all processes by rank.
        let of_bucket =
            |bucket: usize| all.iter().filter_map(move |buckets| buckets.get(bucket)).flatten();
        let squares = (0..self.pieces.len()).flat_map(of_bucket);
        Ok(squares.map(|&bits| f64::from_bits(bits)).sum::<f64>().sqrt())
    }

    /// Makes the optimizer's step on this process's pieces, sends the updated weights of these
    /// pieces to all other processes, and receives the updated weights of the other pieces.
    fn step(
        &mut self,
        store: &ParameterStore,
        gradients: &[Tensor],
        step: &Step,
    ) -> Result<(), BoxError> {
        let (rank, size) = (self.exchange.rank(), self.exchange.size());
        for ((piece, gradient), state) in self.pieces.iter().zip(gradients).zip(&mut self.state) {
            let part = Part { store, range: piece.own_range(), gradient, state };
            in_waking_pool(store.device(), || self.optimizer.step(part, step))?;
            if size > 1 {
                let mut parts = vec![store.part(piece.own_range())?; size];
                parts[rank] = Tensor::zeros(0, DType::F32, store.device())?;
                self.exchange.begin(parts)?;
            }
        }
        for piece in self.pieces.iter().filter(|_| size > 1) {
            for (owner, (range, weights)) in piece.all().zip(self.exchange.end()?).enumerate() {
                if owner != rank {
                    store.set_part(range.start, &weights)?;
                }
            }
        }
        Ok(())
    }

    /// Describes in words where a value that is not finite first occurred in update `step`.
    pub(crate) fn first_not_finite(
        &mut self,
        model: &dyn Model,
        config: &TrainingConfig,
        step: u64,
        batches: &[Batch],
    ) -> Result<String, BoxError> {
        let shares = BatchShares::exchange(&mut self.exchange, batches)?;
        let culprit = not_finite::first_not_finite(model, config, step, &shares, batches)?;
        let culprit = everyone(&mut self.exchange, culprit)?.into_iter().flatten().next();
        Ok(culprit.unwrap_or_else(|| "no part shows it by itself: their sum overflows".to_owned()))
    }

    /// Calls `work` with the model while it has the weights that are validated and saved: the
    /// moving average, if there is one, or else the current weights.
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

/// Pieces of this process, one for each bucket.
fn pieces(layout: &Layout, config: &TrainingConfig, exchange: &dyn Exchange) -> Vec<Piece> {
    let (rank, size) = (exchange.rank(), exchange.size());
    buckets(layout, rank, size, config.distributed.bucket_values())
}

/// Returns the sum over the tree with these `leaves`. `nodes`: sums of subtrees, by the range of
/// their leaves. Each leaf must belong to exactly one of these subtrees.
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

/// Returns the factor that reduces the norm `norm` of a gradient to at most `limit`; 1 if `limit`
/// is 0, which means no limit.
fn clip(norm: f64, limit: f64) -> f64 {
    if limit > 0.0 && norm > limit { limit / norm } else { 1.0 }
}

/// Decay of the moving average in update `step`. In early updates it is lower than `decay`, because
/// otherwise the random initial weights would have a large share in the average for many updates.
/// The formula is that of TensorFlow's `ExponentialMovingAverage` with `num_updates`.
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
