//! Proposal of settings for fine-tuning that suit the model, the examples and the machine.
//!
//! The learning rate of fine-tuning is much lower than that of the first training. For a model of
//! width 1024, it is 5e-5, the default of the library Transformers; for other widths, it is
//! inversely proportional to the width (Yang et al. 2022, "Tensor Programs V", table 3). For LoRA
//! adapters, it is ten times as high (Hu et al. 2021, table 11).

use candle_core::Device;
use taper_data::Task;
use taper_decoding::ExpectedLength;
use taper_model::{BaseDtype, EmbeddingsConfig, LoraConfig};
use taper_trainer::{EarlyStoppingConfig, Metric, ScheduleConfig, ScheduleKind, TrainingConfig};

use super::examples::{ExampleCounts, ReadExamples};
use super::parent::Parent;
use crate::checks::cost::Cost;
use crate::config::RunConfig;
use crate::init::{Machine, proposal::MEMORY_SHARE};
use crate::tasks::{Examples, vocabularies};

/// Learning rate, and the width (`d_model`) of the model for which it is meant.
const RATE: (f64, f64) = (5e-5, 1024.0);
/// Factor of the learning rate if adapters are trained.
const OF_ADAPTERS: f64 = 10.0;
/// Rank of adapters.
const RANK: usize = 16;
/// Smallest and largest number of tokens of an update.
const TOKENS: (usize, usize) = (512, 4096);
/// Number of tokens at which batches are no longer halved to save memory. If a batch of this size
/// still needs too much memory, adapters are proposed instead of training all weights. If this
/// still needs too much, the adapters are proposed on base weights in fewer bits.
const FEW_TOKENS: usize = 1024;
/// Desired number of updates in an epoch, and smallest number of updates in a training. With little
/// text an epoch has fewer, because an update has at least `TOKENS.0` tokens.
const UPDATES_OF_AN_EPOCH: u64 = 50;
/// Largest number of tokens in all epochs together; there is always at least one epoch.
const MOST_TOKENS: u64 = 40_000_000;
/// Largest number of epochs. It is exceeded if this many epochs would have fewer than
/// [`UPDATES_OF_AN_EPOCH`] updates.
const MOST_EPOCHS: u64 = 10;
/// Number of validations in a training.
const VALIDATIONS: u64 = 12;
/// Number of sentences that a validation translates.
const TRANSLATED: usize = 200;

/// Recipe, with the facts by which the choices are explained.
pub(super) struct Proposal {
    pub(super) config: RunConfig,
    /// Number of epochs, rounded up.
    pub(super) epochs: u64,
    /// Estimated memory, in bytes, of a training of all weights, for which the machine has too
    /// little; `None` if the proposal trains all weights.
    pub(super) too_large: Option<u64>,
    /// Estimated memory of the proposed training, in bytes.
    pub(super) bytes: u64,
}

/// Proposes a recipe (settings of a training) called `name`.
pub(super) fn propose(
    name: &str,
    (parent, task, kind): (&Parent, Task, Examples),
    read: &ReadExamples,
    machine: &Machine,
) -> Proposal {
    let mut config = RunConfig {
        name: name.to_owned(),
        task,
        dtype: "auto".to_owned(),
        data: read.data.clone(),
        model: parent.config.model.clone(),
        decoding: parent.config.decoding.clone(),
        evaluation: parent.config.evaluation.clone(),
        ..RunConfig::default()
    };
    // The parent's expected length was measured on other text.
    config.decoding.expected_length = ExpectedLength::default();
    // Adapters of the parent are already part of its weights, and initial embeddings come from the
    // parent.
    config.model.lora = LoraConfig::default();
    config.model.embeddings = EmbeddingsConfig::default();
    let tokens = tokens_of_update(&read.counts);
    let (updates, epochs) = length(read.counts.tokens, tokens as u64);
    config.training = training(kind, updates);
    if kind == Examples::Pairs {
        config.evaluation.validation_sentences = TRANSLATED;
    }
    let room = machine.memory.map(|memory| MEMORY_SHARE * memory as f64);
    let (mut first, mut last) = (None, None);
    for lora in [None, Some(BaseDtype::F32), Some(BaseDtype::Bf16)] {
        let mut batch = tokens;
        loop {
            let config = with(&config, parent, lora, (tokens, batch));
            let cost = Cost::count(&config, vocabularies(&parent.tokenizers), &Device::Cpu);
            let bytes = cost.peak_bytes;
            let first = *first.get_or_insert(bytes);
            let too_large = lora.is_some().then_some(first);
            let fits = room.is_none_or(|room| bytes as f64 <= room);
            let proposal = Proposal { config, epochs, too_large, bytes };
            if fits {
                return proposal;
            }
            last = Some(proposal);
            if batch <= FEW_TOKENS {
                break;
            }
            batch /= 2;
        }
    }
    // By the estimate, no choice fits into the memory. The trial at the beginning of training shows
    // whether that is so.
    last.unwrap_or(Proposal { config, epochs, too_large: None, bytes: 0 })
}

/// Number of updates of a training, and number of its epochs, rounded up. An epoch has `tokens`
/// tokens, and an update has `tokens_of_update` tokens.
fn length(tokens: u64, tokens_of_update: u64) -> (u64, u64) {
    let of_epoch = (tokens / tokens_of_update).max(1);
    let epochs = (MOST_TOKENS / tokens.max(1)).clamp(1, MOST_EPOCHS);
    let updates = (epochs * of_epoch).max(UPDATES_OF_AN_EPOCH);
    (updates, updates.div_ceil(of_epoch))
}

/// Settings for a training of `updates` updates on examples of this kind.
fn training(kind: Examples, updates: u64) -> TrainingConfig {
    TrainingConfig {
        max_updates: updates,
        log_every: (updates / 50).clamp(1, 100),
        validate_every: (updates / VALIDATIONS).max(1),
        label_smoothing: if kind == Examples::Pairs { 0.1 } else { 0.0 },
        schedule: ScheduleConfig {
            kind: ScheduleKind::Linear,
            warmup: (updates / 10).clamp(1, 500),
            ..ScheduleConfig::default()
        },
        early_stopping: EarlyStoppingConfig {
            metric: match kind {
                Examples::Pairs => Metric::Bleu,
                Examples::Texts => Metric::Loss,
                Examples::LabelledTexts => Metric::Accuracy,
            },
            patience: 4,
            ..EarlyStoppingConfig::default()
        },
        ..TrainingConfig::default()
    }
}

/// Number of tokens of an update, which is lower if there are few tokens to learn from.
fn tokens_of_update(counts: &ExampleCounts) -> usize {
    let (fewest, most) = TOKENS;
    let wished = usize::try_from(counts.tokens / UPDATES_OF_AN_EPOCH).unwrap_or(most);
    // A power of two, so that an update can be divided into several batches.
    (wished.clamp(fewest, most) + 1).next_power_of_two() / 2
}

/// Recipe whose updates have `tokens` tokens, in batches of `batch` tokens. `lora` is the type of
/// the frozen weights if adapters are trained, or `None` if all weights are trained.
fn with(
    config: &RunConfig,
    parent: &Parent,
    lora: Option<BaseDtype>,
    (tokens, batch): (usize, usize),
) -> RunConfig {
    let mut config = config.clone();
    let (rate, width) = RATE;
    let mut rate = rate * width / config.model.d_model as f64;
    if let Some(base_dtype) = lora {
        rate *= OF_ADAPTERS;
        let (rank, alpha) = (RANK, 2.0 * RANK as f64);
        config.model.lora = LoraConfig { rank, alpha, base_dtype, ..LoraConfig::default() };
        if config.task != parent.config.task {
            // The output layer for the new task has no weights in the parent, so it is trained as a
            // whole.
            config.model.lora.train = vec!["classes.*".to_owned()];
        }
    }
    config.training.schedule.learning_rate = rounded(rate.min(1e-2));
    config.data.batching.max_tokens = batch;
    config.training.accumulation = tokens / batch;
    config
}

/// Rounds a number to one significant digit.
fn rounded(number: f64) -> f64 {
    format!("{number:.0e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_small_if_there_is_little_to_learn_from() {
        let update_of =
            |tokens| tokens_of_update(&ExampleCounts { tokens, ..ExampleCounts::default() });
        let all = [0, 20_000, 30_000, 60_000, 120_000, 1_000_000, u64::MAX].map(update_of);
        assert_eq!(all, [512, 512, 512, 1024, 2048, 4096, 4096]);
        // The smallest number of updates can need more epochs than usual.
        assert_eq!(length(500, 512), (50, 50));
        assert_eq!(length(2000, 512), (50, 17));
        assert_eq!(length(5120, 512), (100, 10));
        assert_eq!(length(20_000_000, 4096), (9764, 2));
        assert_eq!(rounded(6.7e-5), 7e-5);
        assert_eq!(rounded(4e-4), 4e-4);
    }
}
