//! Choice of the size of the model in a new recipe (TOML file with the settings of a training). The
//! size suits the amount of text and the machine.

use std::num::NonZero;

use candle_core::Device;
use taper_data::DataConfig;
use taper_model::ModelConfig;
use taper_trainer::{EarlyStoppingConfig, Metric, ScheduleConfig, ScheduleKind, TrainingConfig};

use super::CorpusFacts;
use crate::checks::cost::Cost;
use crate::checks::{device, memory};
use crate::config::{RunConfig, usual_tokenizer};

/// Assumed speed of a core in training, in floating-point operations per second: about half of the
/// speed that was measured for this program's operations with AVX-512. It only decides which size
/// is proposed. A dry run measures the real duration of a training.
const FLOPS_OF_A_CORE: f64 = 40e9;
/// Longest proposed training without a GPU, in seconds.
const LONGEST: f64 = 3.0 * 86_400.0;
/// Value of `decoding.shortfall_penalty`. Among the values 1, 2, 4, 8 and 16, the value 4 gave the
/// highest scores on four test and validation sets of two language pairs, with models after few
/// updates.
const SHORTFALL_PENALTY: f64 = 4.0;
/// Share of the available memory to which the estimated peak memory of a proposed training is
/// limited.
pub(super) const MEMORY_SHARE: f64 = 0.7;

/// Machine for training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Number of CPU cores.
    pub cores: usize,
    /// Bytes of available memory; `None` if the system does not report it.
    pub memory: Option<u64>,
    /// True if the machine has a usable GPU.
    pub has_gpu: bool,
}

impl Machine {
    /// Describes this machine.
    #[must_use]
    pub fn here() -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, NonZero::get),
            memory: memory::available(),
            has_gpu: !device::automatic().is_cpu(),
        }
    }
}

/// Size of a model, with settings that suit its training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Size {
    /// Name in reports.
    pub(super) name: &'static str,
    /// Smallest number of pairs for which this size is proposed.
    fewest_pairs: u64,
    /// Origin of these settings, for a comment in the recipe.
    pub(super) origin: &'static str,
    layers: usize,
    width: usize,
    feed_forward: usize,
    heads: usize,
    /// Dropout of embeddings and residual branches.
    dropout: f64,
    /// Dropout within attention and the feed-forward layer.
    inner_dropout: f64,
    vocabulary: usize,
    max_tokens: usize,
    accumulation: usize,
    max_updates: u64,
    validate_every: u64,
    patience: u32,
    learning_rate: f64,
    warmup: u64,
}

/// Sizes in ascending order.
const SIZES: [Size; 4] = [
    Size {
        name: "tiny",
        fewest_pairs: 0,
        origin: "configs/multi30k-en-de.toml, for 29,000 pairs",
        layers: 4,
        width: 128,
        feed_forward: 256,
        heads: 4,
        dropout: 0.3,
        inner_dropout: 0.0,
        vocabulary: 8000,
        max_tokens: 2048,
        accumulation: 1,
        max_updates: 16_000,
        validate_every: 200,
        patience: 15,
        learning_rate: 5e-3,
        warmup: 1000,
    },
    Size {
        name: "small",
        fewest_pairs: 50_000,
        origin: "between those of configs/multi30k-en-de.toml and configs/iwslt14-de-en.toml",
        layers: 4,
        width: 256,
        feed_forward: 1024,
        heads: 4,
        dropout: 0.3,
        inner_dropout: 0.0,
        vocabulary: 8000,
        max_tokens: 4096,
        accumulation: 1,
        max_updates: 30_000,
        validate_every: 500,
        patience: 15,
        learning_rate: 1e-3,
        warmup: 2000,
    },
    Size {
        name: "medium",
        fewest_pairs: 120_000,
        origin: "configs/iwslt14-de-en.toml, for 160,000 pairs",
        layers: 6,
        width: 512,
        feed_forward: 1024,
        heads: 4,
        dropout: 0.3,
        inner_dropout: 0.1,
        vocabulary: 10_000,
        max_tokens: 4096,
        accumulation: 1,
        max_updates: 50_000,
        validate_every: 1000,
        patience: 10,
        learning_rate: 5e-4,
        warmup: 4000,
    },
    Size {
        name: "base",
        fewest_pairs: 1_000_000,
        origin: "the base model of Vaswani et al. 2017, table 3, with norms before the layers",
        layers: 6,
        width: 512,
        feed_forward: 2048,
        heads: 8,
        dropout: 0.1,
        inner_dropout: 0.0,
        vocabulary: 32_000,
        max_tokens: 4096,
        accumulation: 6,
        max_updates: 100_000,
        validate_every: 2000,
        patience: 10,
        learning_rate: 7e-4,
        warmup: 4000,
    },
];

/// Recipe, with the reasons for its choices.
#[derive(Debug, Clone)]
pub(super) struct Proposal {
    /// Configuration of the recipe.
    pub(super) config: RunConfig,
    /// Size of the model.
    pub(super) size: Size,
    /// Size that suits the amount of text but is too large for the machine, and what the machine
    /// lacks for it; `None` if the machine can train the size that suits the text.
    pub(super) too_large: Option<(Size, String)>,
}

impl Size {
    /// Recipe of this size for the text that `data` reads.
    fn recipe(&self, name: &str, data: &DataConfig, facts: &CorpusFacts) -> RunConfig {
        let mut config = RunConfig {
            name: name.to_owned(),
            data: data.clone(),
            model: ModelConfig {
                d_model: self.width,
                d_ff: self.feed_forward,
                heads: self.heads,
                encoder_layers: self.layers,
                decoder_layers: self.layers,
                embedding_dropout: self.dropout,
                attention_dropout: self.inner_dropout,
                feed_forward_dropout: self.inner_dropout,
                residual_dropout: self.dropout,
                ..ModelConfig::default()
            },
            ..RunConfig::default()
        };
        config.data.tokenizer.vocabulary_size = self.vocabulary(facts);
        config.data.batching.max_tokens = self.max_tokens;
        config.training = TrainingConfig {
            accumulation: self.accumulation,
            max_updates: self.max_updates,
            log_every: 100,
            validate_every: self.validate_every,
            keep_last: 10,
            average_last: 10,
            schedule: ScheduleConfig {
                kind: ScheduleKind::InverseSqrt,
                learning_rate: self.learning_rate,
                warmup: self.warmup,
                ..ScheduleConfig::default()
            },
            early_stopping: EarlyStoppingConfig {
                metric: Metric::Bleu,
                patience: self.patience,
                ..EarlyStoppingConfig::default()
            },
            ..config.training
        };
        config.decoding.beam_size = 5;
        config.decoding.length_penalty = 1.0;
        config.decoding.shortfall_penalty = SHORTFALL_PENALTY;
        config.evaluation.tokenize = usual_tokenizer(&data.target_language);
        config
    }

    /// Number of tokens in the vocabulary. It is smaller for little text, but at least twice the
    /// number of different characters, and at most 32,000.
    fn vocabulary(&self, facts: &CorpusFacts) -> usize {
        let by_text = match facts.pairs {
            0..5_000 => 2000,
            5_000..20_000 => 4000,
            _ => self.vocabulary,
        };
        by_text.max((2 * facts.alphabet).next_multiple_of(1000)).min(32_000)
    }
}

/// Estimated duration, in seconds, of a training with `config` on `cores` cores, and its estimated
/// peak memory, in bytes.
fn reckoned(config: &RunConfig, cores: usize) -> (f64, u64) {
    let vocabulary = config.data.tokenizer.vocabulary_size;
    let cost = Cost::count(config, (vocabulary, vocabulary), &Device::Cpu);
    let tokens = config.data.batching.max_tokens;
    let updates = config.training.max_updates as f64 * config.training.accumulation as f64;
    let flops = updates * tokens as f64 * cost.training_flops_per_token_pair as f64;
    (flops / (cores.max(1) as f64 * FLOPS_OF_A_CORE), cost.peak_bytes)
}

/// Proposes the largest size that suits this number of pairs and that the machine can train.
pub(super) fn propose(
    name: &str,
    data: &DataConfig,
    facts: &CorpusFacts,
    machine: &Machine,
) -> Proposal {
    let mut too_large = None;
    for size in SIZES.iter().rev().filter(|size| size.fewest_pairs <= facts.pairs) {
        let config = size.recipe(name, data, facts);
        let (seconds, bytes) = reckoned(&config, machine.cores);
        let room = machine.memory.map(|memory| MEMORY_SHARE * memory as f64);
        let lack = if room.is_some_and(|room| bytes as f64 > room) {
            Some("memory".to_owned())
        } else if seconds > LONGEST && !machine.has_gpu {
            Some(format!("time: about {:.0} days", seconds / 86_400.0))
        } else {
            None
        };
        // The smallest size is proposed in any case.
        match lack {
            Some(lack) if size.name != SIZES[0].name => {
                too_large.get_or_insert((*size, lack));
            }
            _ => return Proposal { config, size: *size, too_large },
        }
    }
    let config = SIZES[0].recipe(name, data, facts);
    Proposal { config, size: SIZES[0], too_large }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pairs: u64) -> CorpusFacts {
        CorpusFacts { pairs, alphabet: 90, ..CorpusFacts::default() }
    }

    fn proposed(pairs: u64, machine: &Machine) -> Proposal {
        propose("a", &DataConfig::default(), &facts(pairs), machine)
    }

    #[test]
    fn sizes_grow_with_the_text_as_far_as_the_machine_reaches() {
        let gpu = Machine { cores: 8, memory: None, has_gpu: true };
        let name = |pairs, machine: &Machine| proposed(pairs, machine).size.name;
        for (pairs, size) in
            [(900, "tiny"), (60_000, "small"), (160_000, "medium"), (4_500_000, "base")]
        {
            assert_eq!(name(pairs, &gpu), size, "{pairs}");
            proposed(pairs, &gpu).config.validate().expect("a recipe that can be trained");
        }
        let laptop = Machine { cores: 2, memory: None, has_gpu: false };
        let proposal = proposed(4_500_000, &laptop);
        assert_eq!(proposal.size.name, "small");
        let (large, lack) = proposal.too_large.expect("there is a larger one");
        assert!(large.name == "base" && lack.contains("days"), "{lack}");
        let small = Machine { memory: Some(600 << 20), ..gpu };
        assert_eq!(proposed(4_500_000, &small).too_large.expect("too large").1, "memory");
        assert_eq!(name(4_500_000, &Machine { memory: Some(1), ..gpu }), "tiny");
    }

    #[test]
    fn the_vocabulary_has_room_for_every_character() {
        let vocabulary = |pairs, alphabet| {
            SIZES[0].vocabulary(&CorpusFacts { pairs, alphabet, ..CorpusFacts::default() })
        };
        assert_eq!(vocabulary(1000, 90), 2000);
        assert_eq!(vocabulary(100_000, 90), 8000);
        assert_eq!(vocabulary(1000, 3100), 7000);
    }
}
