//! Trial of how much memory an update takes: a model reads the largest batch that the recipe (the
//! settings of the training) allows.

use std::sync::Arc;

use anyhow::Result;
use candle_core::Device;
use taper_data::{Dataset, Prepared};
use taper_model::{Batch, Sequences};
use taper_ops::{allocator, device};
use taper_trainer::{TrainingConfig, rehearse};

use super::in_use;
use super::system::{forget_peak, peak};
use crate::checks::cost::Cost;
use crate::checks::counting::scalars;
use crate::config::RunConfig;
use crate::tasks::{TaskModel, vocabularies};
use crate::training::packed;

/// Smallest token budget (largest number of tokens in a batch) that is tried.
pub(super) const LEAST_TOKENS: usize = 64;
/// The next token budget that is tried is chosen so that it is predicted to use this share of the
/// remaining memory. The share is less than 1 because a trial may use more than predicted.
const HEADROOM: f64 = 0.93;
/// Ratio of the bytes that the allocator holds to the bytes in use, at the peak of an update.
/// Ratios from 1.03 to 1.1 were measured for batches of at least 50 MiB.
const KEPT: f64 = 1.1;
/// Bytes that the allocator holds for each thread, in addition to [`KEPT`] times the bytes in use.
const KEPT_BY_THREAD: u64 = 8 << 20;

/// Trials on one model of how much memory batches of different sizes take.
pub(super) struct Trial<'a, M> {
    model: &'a M,
    training: &'a TrainingConfig,
    /// Memory in use before the first trial, in bytes, including all weights. It is the memory of
    /// the GPU if the model is on a GPU, and otherwise the memory of the process.
    resident: u64,
    /// Training data.
    data: Arc<dyn Dataset>,
    /// Largest possible ratio of the tokens in a batch to the token budget. It exceeds 1 if text is
    /// split into subwords at random, because a text can then have more tokens than usual.
    growth: f64,
    /// Memory in bytes that training needs, but a trial does not: the optimizer's state, the moving
    /// average, and the gradients of all micro-batches but the current one.
    state_bytes: u64,
    /// Size in bytes of the gradients of one micro-batch.
    gradient_bytes: u64,
    /// Memory in bytes, apart from gradients, that training needs temporarily outside of forward
    /// and backward passes, for example while it saves weights.
    passing_bytes: u64,
    /// Whether the output matrices, which compute logits, are trained.
    trains_classifier: bool,
}

/// Memory in bytes for frozen weights that is allocated but not yet in use. On the CPU, the system
/// gives it pages only when the weights are read from a checkpoint.
pub(crate) fn unread_bytes(device: &Device, cost: &Cost) -> u64 {
    if device.is_cpu() { cost.frozen_bytes } else { 0 }
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
        let scalars = scalars(config, vocabularies, model.cost().parameters);
        let weights = 4 * cost.parameters;
        let data = Arc::clone(&prepared.train);
        let growth = Arc::clone(&data).growth(&config.data.batching, config.training.seed)?;
        Ok(Self {
            model,
            training: &config.training,
            resident: in_use(model.device())? + unread_bytes(model.device(), &cost),
            data,
            growth,
            state_bytes: cost.training_state_bytes - 2 * weights - cost.frozen_bytes,
            gradient_bytes: weights,
            passing_bytes: scalars.passing_bytes(config),
            trains_classifier: scalars.trains_classifier,
        })
    }

    /// The smaller of `budget` and the largest number of tokens that a batch of the text can have.
    pub(super) fn of_text(&self, budget: usize) -> usize {
        budget.min(self.data.most_tokens())
    }

    /// Largest number of tokens that a batch with a token budget of `tokens` can have. It is larger
    /// than the budget if text is split into subwords at random.
    fn grown(&self, tokens: usize) -> usize {
        (tokens as f64 * self.growth).ceil() as usize
    }

    fn cost(&self) -> taper_model::Cost {
        let checkpoints = self.training.checkpoint_activations && self.model.device().is_cpu();
        self.model.cost().checkpointed(checkpoints)
    }

    /// Estimates by formula how many bytes of memory the process uses at the peak of an update with
    /// batches of `tokens` tokens.
    pub(super) fn estimate(&self, tokens: usize) -> u64 {
        let grown = self.grown(tokens) * self.training.objective().passes();
        let streams = self.largest_batch(tokens).streams;
        let longest = streams.iter().map(Sequences::longest).max().unwrap_or(0);
        let cost = self.cost();
        let of_pass = match self.model.device().is_cpu() {
            true => cost
                .activation_bytes(&[grown; 2], longest)
                .saturating_add(cost.loss_bytes(grown, self.trains_classifier)),
            false => cost.composed_bytes(&[grown; 2], longest),
        };
        let passing = self.gradient_bytes + of_pass.max(self.passing_bytes);
        self.resident + self.state_bytes + passing
    }

    /// Memory in bytes that the process uses outside of forward and backward passes, without
    /// [`Trial::state_bytes`].
    fn between_passes(&self) -> u64 {
        self.resident + self.gradient_bytes + self.passing_bytes
    }

    /// Measures how many bytes of memory the process uses during training with batches of `tokens`
    /// tokens. If the estimate exceeds twice `limit`, it is returned instead, because the trial
    /// itself could exhaust the memory.
    pub(super) fn needed(&self, tokens: usize, limit: u64) -> Result<u64> {
        match self.estimate(tokens) {
            estimate if estimate / 2 > limit => Ok(estimate),
            _ => self.run(tokens),
        }
    }

    /// Measures how many bytes of memory the process uses at the peak of an update with batches of
    /// `tokens` tokens.
    ///
    /// This program's allocator counts the memory in use, which gives the same number each time.
    /// The system's count of memory in use (resident memory) depends on how work is divided among
    /// threads, and differed by a fifth between trials of the same batch. So it is used only in
    /// programs with another allocator. If the system does not report it either, the estimate is
    /// returned.
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
        Ok(height.max(self.between_passes()) + self.state_bytes)
    }

    /// Measures the memory of a GPU in the same way as [`Trial::run`] measures that of the process.
    /// If the GPU's driver reports no count, the estimate is returned. Exhausted memory is an
    /// error.
    fn run_on_gpu(&self, batch: &Batch, tokens: usize) -> Result<u64> {
        let (outcome, height) = device::most_in_use(self.model.device(), || {
            rehearse(self.model, self.training, batch)
        })?;
        outcome?;
        Ok(match height {
            Some(bytes) => bytes.max(self.between_passes()) + self.state_bytes,
            None => self.estimate(tokens),
        })
    }

    /// Finds the largest token budget, at most `most`, with which the process needs no more than
    /// `limit` bytes. The result may be too small by at most an eighth of it and 128 tokens; it is
    /// `None` if no budget fits.
    pub(super) fn largest(&self, limit: u64, most: usize) -> Result<Option<usize>> {
        let mut tokens = LEAST_TOKENS.min(most);
        // The largest budget so far that fits, with the bytes it needs, and the smallest so far
        // that does not fit.
        let (mut fitting, mut too_large) = (None, None);
        loop {
            let needed = match self.needed(tokens, limit) {
                Ok(needed) => needed,
                Err(error) if self.model.device().is_cpu() => {
                    let message = format!("a batch of {tokens} tokens cannot be computed");
                    return Err(error.context(message));
                }
                Err(_) => u64::MAX,
            };
            let next = if needed > limit {
                too_large = Some(tokens);
                usize::MAX
            } else {
                let (before, at_before) = fitting.replace((tokens, needed)).unwrap_or((0, 0));
                let grown = needed.saturating_sub(at_before) as f64;
                let slope = (grown / (tokens - before) as f64).max(1.0);
                // The bytes per token (`slope`) are computed from this budget and the budget before
                // it, and the next budget is predicted from them. Small batches fit into memory
                // that the process has already, so the first slopes are too small and the first
                // predictions too large. There is no prediction from the first budget alone,
                // because most of the memory in use is needed without any batch.
                let rest = HEADROOM * (limit - needed) as f64 / slope;
                let predicted = if before == 0 { usize::MAX } else { tokens + rest as usize };
                predicted.min(4 * tokens)
            };
            let Some((largest, _)) = fitting else { return Ok(None) };
            let between = too_large.map_or(most, |too_large| (largest + too_large) / 2);
            let next = next.min(between);
            // The budget is a multiple of 64 unless it is `most`. The search ends when the next
            // budget would be larger by less than a sixteenth.
            let next = if next == most { next } else { next / 64 * 64 };
            if largest == most || next < most.min(largest + largest / 16) {
                return Ok(Some(largest));
            }
            tokens = next;
        }
    }

    /// Largest batch that a token budget of `tokens` allows.
    fn largest_batch(&self, tokens: usize) -> Batch {
        packed(self.data.largest_batch(self.grown(tokens)))
    }
}
