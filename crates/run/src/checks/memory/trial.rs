//! The largest batch of a recipe, tried on its model.

use std::sync::Arc;

use anyhow::Result;
use taper_data::{Dataset, Prepared};
use taper_model::{Batch, Sequences};
use taper_ops::{allocator, device};
use taper_trainer::{TrainingConfig, rehearse};

use super::in_use;
use super::system::{forget_peak, peak};
use crate::checks::cost::Cost;
use crate::config::RunConfig;
use crate::tasks::{TaskModel, vocabularies};
use crate::training::packed;

/// The smallest budget that is looked for.
pub(super) const LEAST_TOKENS: usize = 64;
/// What a trial may exceed its prediction by before a smaller budget is tried.
const HEADROOM: f64 = 0.93;
/// What the allocator keeps for each byte in use at the height of a step: 1.03 to 1.1 were measured
/// for batches of 50 MiB and more.
const KEPT: f64 = 1.1;
/// What each thread's share of the allocator takes besides.
const KEPT_BY_THREAD: u64 = 8 << 20;

/// Trials of one model.
pub(super) struct Trial<'a, M> {
    model: &'a M,
    training: &'a TrainingConfig,
    /// Bytes of the process, on a GPU of its memory, before the first trial.
    resident: u64,
    /// What is trained on.
    data: Arc<dyn Dataset>,
    /// How many times as many tokens as its budget a batch may have: more than 1 where subwords
    /// are sampled.
    growth: f64,
    /// What the trial does not touch: the optimizer's state, the moving average, and the gradients
    /// of all micro-batches but the one at hand.
    state_bytes: u64,
    /// The gradients and the copies that saving a checkpoint makes: of weights, optimizer state and
    /// moving average as tensors; of the state, and of the weights beside a moving average, as a
    /// file.
    saving_bytes: u64,
}

impl<'a, M: TaskModel> Trial<'a, M> {
    pub(super) fn new(
        config: &'a RunConfig,
        model: &'a M,
        prepared: &Prepared,
        processes: usize,
    ) -> Result<Self> {
        let vocabularies = vocabularies(&prepared.tokenizers);
        let cost = Cost::among(config, vocabularies, model.device(), processes);
        let weights = 4 * cost.parameters;
        let data = Arc::clone(&prepared.train);
        let growth = Arc::clone(&data).growth(&config.data.batching, config.training.seed)?;
        Ok(Self {
            model,
            training: &config.training,
            resident: in_use(model.device())?,
            data,
            growth,
            state_bytes: cost.training_state_bytes - 2 * weights,
            saving_bytes: (2 + 2 * config.training.state_buffers()) * weights,
        })
    }

    /// `budget`, or the one beyond which batches are no larger, because the text is not.
    pub(super) fn of_text(&self, budget: usize) -> usize {
        budget.min(self.data.most_tokens())
    }

    /// The tokens that a batch of budget `tokens` may have.
    fn grown(&self, tokens: usize) -> usize {
        (tokens as f64 * self.growth).ceil() as usize
    }

    fn cost(&self) -> taper_model::Cost {
        let checkpoints = self.training.checkpoint_activations && self.model.device().is_cpu();
        self.model.cost().checkpointed(checkpoints)
    }

    /// Bytes of the process during an update, by formula.
    pub(super) fn estimate(&self, tokens: usize) -> u64 {
        let grown = self.grown(tokens) * self.training.objective().passes();
        let streams = self.largest_batch(tokens).streams;
        let longest = streams.iter().map(Sequences::longest).max().unwrap_or(0);
        let activations = match self.model.device().is_cpu() {
            true => self.cost().activation_bytes(&[grown; 2], longest),
            false => self.cost().composed_bytes(&[grown; 2], longest),
        };
        self.resident + self.state_bytes + activations.max(self.saving_bytes)
    }

    /// Bytes of the process during training with batches of so many tokens; by formula where a
    /// trial would itself exceed `limit` by far.
    pub(super) fn needed(&self, tokens: usize, limit: u64) -> Result<u64> {
        match self.estimate(tokens) {
            estimate if estimate / 2 > limit => Ok(estimate),
            _ => self.run(tokens),
        }
    }

    /// Bytes of the process at the height of an update with batches of so many tokens.
    ///
    /// What is in use is counted, which gives the same each time. What is resident would not: it
    /// depends on which thread computed what, and differed by a fifth between trials of one batch.
    /// A program with another allocator has only that; where the system does not say it either, the
    /// formula must do.
    fn run(&self, tokens: usize) -> Result<u64> {
        let batch = self.largest_batch(tokens);
        if !self.model.device().is_cpu() {
            return self.run_on_gpu(&batch, tokens);
        }
        allocator::collect();
        forget_peak();
        let (outcome, counted) = allocator::counted(|| rehearse(self.model, self.training, &batch));
        outcome?;
        let kept = |bytes: u64| {
            let threads = rayon::current_num_threads() as u64;
            (KEPT * bytes as f64) as u64 + threads * KEPT_BY_THREAD
        };
        let height = match counted {
            Some(bytes) => self.resident + kept(bytes.most),
            None => match peak() {
                Some(bytes) => bytes,
                None => return Ok(self.estimate(tokens)),
            },
        };
        Ok(height.max(self.resident + self.saving_bytes) + self.state_bytes)
    }

    /// As [`Trial::run`], of the memory of a GPU: its driver counts what is in use, or else the
    /// formula must do. What does not fit is an error.
    fn run_on_gpu(&self, batch: &Batch, tokens: usize) -> Result<u64> {
        let (outcome, height) = device::most_in_use(self.model.device(), || {
            rehearse(self.model, self.training, batch)
        })?;
        outcome?;
        Ok(match height {
            Some(bytes) => bytes.max(self.resident + self.saving_bytes) + self.state_bytes,
            None => self.estimate(tokens),
        })
    }

    /// The largest budget up to `most` whose batches keep the process below `limit` bytes, to a
    /// sixteenth.
    pub(super) fn largest(&self, limit: u64, most: usize) -> Result<Option<usize>> {
        let mut tokens = LEAST_TOKENS.min(most);
        // A budget that fits with what it needs, and one that does not fit.
        let (mut fitting, mut too_large) = (None, None);
        loop {
            // A device without memory left says so by an error.
            let needed = self.needed(tokens, limit).unwrap_or(u64::MAX);
            let next = if needed > limit {
                too_large = Some(tokens);
                usize::MAX
            } else {
                let (before, at_before) = fitting.replace((tokens, needed)).unwrap_or((0, 0));
                let grown = needed.saturating_sub(at_before) as f64;
                let slope = (grown / (tokens - before) as f64).max(1.0);
                // What the last step cost for each token predicts where the limit lies; early
                // steps, that the process had memory for anyway, predict too much, and nearly all
                // that the first one takes is there without any batch.
                let rest = HEADROOM * (limit - needed) as f64 / slope;
                let predicted = if before == 0 { usize::MAX } else { tokens + rest as usize };
                predicted.min(4 * tokens)
            };
            let Some((largest, _)) = fitting else { return Ok(None) };
            let between = too_large.map_or(most, |too_large| (largest + too_large) / 2);
            let next = next.min(between);
            // To a multiple of 64, and no closer to the limit than a sixteenth.
            let next = if next == most { next } else { next / 64 * 64 };
            if largest == most || next < most.min(largest + largest / 16) {
                return Ok(Some(largest));
            }
            tokens = next;
        }
    }

    /// A batch as large as its budget allows.
    fn largest_batch(&self, tokens: usize) -> Batch {
        packed(self.data.largest_batch(self.grown(tokens)))
    }
}
