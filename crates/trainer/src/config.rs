//! The training configuration: every option with its meaning and its one default.
//!
//! A zero switches an option off, so that a resolved configuration can be written in full without
//! optional keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taper_model::{Guidance, Objective};
use thiserror::Error;

use crate::{Metric, OptimizerConfig, ScheduleConfig, ScheduleKind};

/// Upper bound of the micro-batches of an update: all of them are in memory at once.
const MOST_MICRO_BATCHES: usize = 65_536;

/// Largest number of f32; larger rates and factors would be infinite.
const MOST: f64 = f32::MAX as f64;

/// Score that decides the best checkpoint, and the end of training without improvement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EarlyStoppingConfig {
    /// The score that selects the best checkpoint and ends training.
    #[schemars(
        extend("x-names" = "early_stopping_metric metric_for_best_model best_checkpoint_metric \
            optimized_metric monitor valid_metrics eval_metric"),
        extend("x-idle" = ["no-validation"])
    )]
    pub metric: Metric,
    /// Validations in a row without improvement after which training ends; 0 never ends it.
    #[schemars(
        extend("x-names" = "patience early_stop early_stopping_patience \
            max_num_checkpoint_not_improved")
    )]
    pub patience: u32,
    /// A change of at most this does not count as an improvement.
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-idle" = ["validations-not-compared"]))]
    pub minimum_change: f64,
}

impl Default for EarlyStoppingConfig {
    fn default() -> Self {
        Self { metric: Metric::Loss, patience: 0, minimum_change: 0.0 }
    }
}

/// Guided alignment: a head of attention from the decoder to the source is trained on the word
/// links of the training text, which `data.train` names in `links` (Garg et al. 2019, "Jointly
/// Learning to Align and Translate with Transformer Models", section 4.2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GuidedAlignmentConfig {
    /// The factor of its loss beside the cross entropy; Garg et al. take 0.05. 0 guides nothing.
    #[schemars(range(min = 0.0))]
    #[schemars(
        extend("x-names" = "alignment_loss lambda_align alignment_loss_weight \
            guided_alignment_weight"),
        extend("x-idle" = ["not-translation"])
    )]
    pub weight: f64,
    /// The decoder layer, counted from 1; 0 is the last but one.
    #[schemars(extend("x-names" = "alignment_layer"), extend("x-idle" = ["not-guided"]))]
    pub layer: usize,
    /// The head, counted from 1.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-guided"]))]
    pub head: usize,
}

impl Default for GuidedAlignmentConfig {
    fn default() -> Self {
        Self { weight: 0.0, layer: 0, head: 1 }
    }
}

impl GuidedAlignmentConfig {
    /// Guidance for the model; `None` without guidance.
    #[must_use]
    pub const fn guidance(&self) -> Option<Guidance> {
        if self.weight == 0.0 {
            return None;
        }
        let (layer, head) = (self.layer.checked_sub(1), self.head.saturating_sub(1));
        Some(Guidance { weight: self.weight, layer, head })
    }
}

/// Exchange of data between processes that train together. No setting here changes the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DistributedConfig {
    /// MiB of gradients that are exchanged at a time, while the gradients of earlier layers are
    /// still computed: small buckets begin earlier, large ones have less overhead. At most 4096.
    #[schemars(range(max = 4096.0), extend("exclusiveMinimum" = 0.0))]
    pub bucket_mib: f64,
}

impl Default for DistributedConfig {
    fn default() -> Self {
        Self { bucket_mib: 25.0 }
    }
}

impl DistributedConfig {
    /// Number of gradients that are exchanged at a time.
    #[must_use]
    pub fn bucket_values(&self) -> usize {
        (self.bucket_mib * f64::from(1 << 20)) as usize / size_of::<f32>()
    }
}

/// Configuration of the training loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// Seed of dropout; the caller uses it for initialisation and data order as well.
    #[schemars(
        extend("x-names" = "random_seed manual_seed rng_seed"),
        extend("x-change" = "never")
    )]
    pub seed: u64,
    /// The optimizer.
    pub optimizer: OptimizerConfig,
    /// The learning-rate schedule.
    pub schedule: ScheduleConfig,
    /// Probability mass spread over the whole vocabulary in the training loss.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(
        extend("x-names" = "smoothing label_smooth label_smoothing_factor label_smoothing_epsilon \
            smooth_eps"),
        extend("x-idle" = ["numbers-predicted"])
    )]
    pub label_smoothing: f64,
    /// R-Drop's factor α (Liang et al. 2021): each batch passes through the model twice, with
    /// different dropout, and α (KL(p‖q) + KL(q‖p)) / 2 of a token's two predictions is added
    /// to the mean of their cross entropies. The paper adds to the sum, so that its α is twice
    /// this one. 0 makes one pass.
    #[schemars(range(min = 0.0))]
    #[schemars(
        extend("x-names" = "rdrop rdrop_alpha reg_alpha"),
        extend("x-idle" = ["no-dropout"])
    )]
    pub r_drop: f64,
    /// Guided alignment.
    pub guided_alignment: GuidedAlignmentConfig,
    /// Names of parameters that no update changes, as `taper inspect` lists them; `*` stands for any
    /// characters and `?` for one: `["encoder.*", "*embedding.weight"]`. Each must match some.
    #[schemars(extend("x-values" = "a list of texts"))]
    pub freeze: Vec<String>,
    /// Ratio of the learning rates of a layer and the layer above it, so that the first layers
    /// change least (Howard and Ruder 2018, section 3.2): of a stack of n layers, layer i, counted
    /// from 1, has the rate times this to the power n - i + 1. Embeddings and everything else
    /// before the layers have one power more; everything behind them, such as heads, has the rate
    /// itself. 1 is the same rate for all.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub layer_decay: f64,
    /// Gradients whose norm is above this are scaled down to it; 0 does not clip.
    #[schemars(range(min = 0.0))]
    #[schemars(
        extend("x-names" = "clip grad_clip clip_grad clip_grad_norm clip_gradient \
            gradient_clip_val gradient_clipping max_grad_norm max_norm")
    )]
    pub clip_norm: f64,
    /// Micro-batches per update, counted over all processes that train together; at most 65,536.
    #[schemars(range(min = 1, max = 65536))]
    #[schemars(
        extend("x-names" = "update_freq accum_count accum_steps grad_accum gradient_accumulation \
            gradient_accumulation_steps accumulate_grad_batches batch_multiplier update_interval \
            optimizer_delay")
    )]
    pub accumulation: usize,
    /// Exchange of data between processes.
    pub distributed: DistributedConfig,
    /// Whether each stack of n layers keeps the inputs of only about √n of them, and computes the
    /// rest again in the backward pass (Chen et al. 2016, "Training Deep Nets with Sublinear Memory
    /// Cost"): the same bits with less memory, for a third more arithmetic. Only on the CPU.
    #[schemars(extend("x-idle" = ["on-gpu"]))]
    pub checkpoint_activations: bool,
    /// Decay of the exponential moving average of the weights, which is then validated and saved as
    /// the model; 0 keeps none.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(
        extend("x-names" = "ema ema_rate exponential_smoothing average_decay moving_average")
    )]
    pub ema_decay: f64,
    /// The last update; 0 sets no such limit.
    #[schemars(
        extend("x-names" = "max_steps max_update max_iters max_iterations iterations num_steps \
            num_updates total_steps train_steps num_train_steps updates steps")
    )]
    pub max_updates: u64,
    /// The number of passes over the data; 0 sets no such limit.
    #[schemars(
        extend("x-names" = "epochs epoch max_epoch num_epochs n_epochs num_train_epochs \
            after_epochs")
    )]
    pub max_epochs: u64,
    /// Minutes in the training loop, validations and checkpoints included, summed over resumes; 0
    /// sets no such limit.
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-names" = "max_time time_limit stop_time_hours max_hours max_seconds"))]
    pub max_minutes: f64,
    /// Updates between two log events.
    #[schemars(range(min = 1))]
    #[schemars(
        extend("x-names" = "log_interval logging_steps logging_freq report_every disp_freq")
    )]
    pub log_every: u64,
    /// Add the norms of each layer's gradients and weights to log events, to see where gradients
    /// vanish or blow up. They are of the event's own update, before clipping.
    pub log_layers: bool,
    /// Updates between two validations; 0 validates only at the end.
    #[schemars(
        extend("x-names" = "eval_every eval_interval eval_steps valid_freq valid_steps \
            validate_interval validate_interval_updates validation_freq val_check_interval")
    )]
    pub validate_every: u64,
    /// Updates between two checkpoints; 0 saves at each validation. A new best is always saved.
    #[schemars(
        extend("x-names" = "save_freq save_every save_interval save_interval_updates save_steps \
            save_checkpoint_steps checkpoint_interval")
    )]
    pub checkpoint_every: u64,
    /// Meaning of "best", and the end of training without improvement.
    pub early_stopping: EarlyStoppingConfig,
    /// Number of the newest checkpoints to keep; at least 1.
    #[schemars(range(min = 1))]
    #[schemars(
        extend("x-names" = "keep_checkpoint keep_checkpoints keep_last_epochs keep_last_ckpts \
            keep_last_params save_total_limit")
    )]
    pub keep_last: usize,
    /// Number of the best-scored checkpoints to keep; at least 1.
    #[schemars(range(min = 1))]
    #[schemars(
        extend("x-names" = "keep_best_checkpoints keep_best_ckpts save_top_k"),
        extend("x-idle" = ["validations-not-compared"])
    )]
    pub keep_best: usize,
    /// Number of the newest checkpoints to average at the end of training; 0 averages none.
    #[schemars(
        extend("x-names" = "average_checkpoints avg_checkpoints num_epoch_checkpoints \
            checkpoint_averaging")
    )]
    pub average_last: usize,
    /// Updates whose loss is above this many times the mean of the last hundred or so are skipped;
    /// updates that are not finite are always skipped. For data that is partly broken (Chowdhery et
    /// al. 2022, "PaLM", section 5.1, skip the batches around a spike). 0 has no such rule.
    #[schemars(range(min = 0.0))]
    pub spike_factor: f64,
    /// Number of updates skipped in a row after which training fails.
    #[schemars(range(min = 1))]
    pub max_skipped_in_a_row: u32,
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            optimizer: OptimizerConfig::default(),
            schedule: ScheduleConfig::default(),
            label_smoothing: 0.1,
            r_drop: 0.0,
            guided_alignment: GuidedAlignmentConfig::default(),
            freeze: Vec::new(),
            layer_decay: 1.0,
            clip_norm: 1.0,
            accumulation: 1,
            distributed: DistributedConfig::default(),
            checkpoint_activations: false,
            ema_decay: 0.0,
            max_updates: 100_000,
            max_epochs: 0,
            max_minutes: 0.0,
            log_every: 100,
            log_layers: false,
            validate_every: 1000,
            checkpoint_every: 0,
            early_stopping: EarlyStoppingConfig::default(),
            keep_last: 3,
            keep_best: 1,
            average_last: 0,
            spike_factor: 0.0,
            max_skipped_in_a_row: 8,
        }
    }
}

/// A value, or a pair of values, that cannot be trained with.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("training.{key} is {value}: {requirement}")]
pub struct ConfigError {
    /// The key, below `training`.
    pub key: &'static str,
    /// Value that was set.
    pub value: String,
    /// Requirement on the value.
    pub requirement: &'static str,
}

/// Returns the error for a key, the path of its field, unless the value is as it must be.
macro_rules! require {
    ($config:ident.$first:ident$(.$more:ident)*, $holds:expr, $requirement:expr) => {
        require(
            concat!(stringify!($first), $(".", stringify!($more)),*),
            $config.$first$(.$more)*,
            $holds,
            $requirement,
        )?
    };
}

impl TrainingConfig {
    /// Objective of the training.
    #[must_use]
    pub const fn objective(&self) -> Objective {
        Objective {
            label_smoothing: self.label_smoothing,
            r_drop: self.r_drop,
            guidance: self.guided_alignment.guidance(),
        }
    }

    /// Values that training keeps for each parameter besides the weight and its gradients: those of
    /// the optimizer, and the moving average if there is one.
    #[must_use]
    pub fn state_buffers(&self) -> u64 {
        self.optimizer.build().buffers().len() as u64 + u64::from(self.ema_decay > 0.0)
    }

    /// Checks whether the loop can work with the values.
    ///
    /// # Errors
    /// The first key that is out of range or contradicts another.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_rule()?;
        self.check_objective()?;
        self.check_loop()
    }

    /// Checks optimizer and schedule.
    fn check_rule(&self) -> Result<(), ConfigError> {
        let (kind, peak) = (self.schedule.kind, self.schedule.learning_rate);
        require!(self.optimizer.beta1, is_share, SHARE);
        require!(self.optimizer.beta2, is_share, SHARE);
        // Smaller values would be 0 in f32, and divide zero by zero.
        let divides = |x| (f64::from(f32::MIN_POSITIVE)..=1.0).contains(&x);
        let requirement = "it must be at least 1.2e-38, the least number of f32, and at most 1";
        require!(self.optimizer.epsilon, divides, requirement);
        require!(self.optimizer.weight_decay, is_not_negative, NOT_NEGATIVE);
        require!(self.schedule.scale, is_positive, POSITIVE);
        require!(self.schedule.learning_rate, is_positive, POSITIVE);
        require!(self.schedule.minimum, is_not_negative, NOT_NEGATIVE);
        let is_below = |minimum| kind == ScheduleKind::Noam || minimum <= peak;
        let requirement =
            "it must not be above schedule.learning_rate, from which the schedule falls";
        require!(self.schedule.minimum, is_below, requirement);
        let falls = |updates| !kind.needs_horizon() || updates > self.schedule.warmup;
        let requirement =
            "the cosine and linear schedules fall towards it, so it must be above schedule.warmup";
        require!(self.max_updates, falls, requirement);
        Ok(())
    }

    /// Checks what an update minimises, and of how many batches.
    fn check_objective(&self) -> Result<(), ConfigError> {
        require!(self.label_smoothing, is_share, SHARE);
        let requirement = "it must be 0 (one pass) or more, and at most 3.4e38";
        require!(self.r_drop, is_not_negative, requirement);
        let is_factor = |x| x > 0.0 && x <= 1.0;
        require!(self.layer_decay, is_factor, "it must be above 0 and at most 1");
        let requirement = "it must be 0 (nothing is guided) or more, and at most 3.4e38";
        require!(self.guided_alignment.weight, is_not_negative, requirement);
        require!(self.guided_alignment.head, |head| head > 0, "heads are counted from 1");
        let requirement = "it must be 0 (no clipping) or more, and at most 3.4e38";
        require!(self.clip_norm, is_not_negative, requirement);
        let requirement =
            "it must be from 1 to 65536; an update holds all its micro-batches in memory";
        let fits = |count| (1..=MOST_MICRO_BATCHES).contains(&count);
        require!(self.accumulation, fits, requirement);
        let is_size = |size| size > 0.0 && size <= 4096.0;
        require!(self.distributed.bucket_mib, is_size, "it must be above 0, and at most 4096");
        require!(self.ema_decay, is_share, "it must be 0 (none) or in (0, 1)");
        Ok(())
    }

    /// Checks when training ends, and what is kept of it.
    fn check_loop(&self) -> Result<(), ConfigError> {
        let is_time = |x: f64| x >= 0.0 && x.is_finite();
        require!(self.max_minutes, is_time, "it must be 0 (no limit) or more");
        let ends = |updates| updates > 0 || self.max_epochs > 0 || self.max_minutes > 0.0;
        let requirement = "one of max_updates, max_epochs and max_minutes must be above 0, or \
                           training has no end";
        require!(self.max_updates, ends, requirement);
        require!(self.log_every, |every| every > 0, AT_LEAST_ONE);
        require!(self.early_stopping.minimum_change, is_not_negative, NOT_NEGATIVE);
        let is_validated = |patience| patience == 0 || self.validate_every > 0;
        let requirement = "early stopping needs validate_every above 0";
        require!(self.early_stopping.patience, is_validated, requirement);
        let requirement = "it must be 1 or more, or nothing could be resumed";
        require!(self.keep_last, |count| count > 0, requirement);
        require!(self.keep_best, |count| count > 0, AT_LEAST_ONE);
        let are_kept = |count| count <= self.keep_last;
        let requirement =
            "only kept checkpoints can be averaged, so it must not be above keep_last";
        require!(self.average_last, are_kept, requirement);
        let is_possible = |factor: f64| factor == 0.0 || (factor.is_finite() && factor > 1.0);
        require!(self.spike_factor, is_possible, "it must be 0 (no such rule) or above 1");
        require!(self.max_skipped_in_a_row, |limit| limit > 0, AT_LEAST_ONE);
        Ok(())
    }
}

/// Requirements of several keys.
const SHARE: &str = "it must be in [0, 1)";
const NOT_NEGATIVE: &str = "it must be 0 or more, and at most 3.4e38";
const POSITIVE: &str = "it must be above 0, and at most 3.4e38";
const AT_LEAST_ONE: &str = "it must be 1 or more";

fn is_share(x: f64) -> bool {
    (0.0..1.0).contains(&x)
}

fn is_not_negative(x: f64) -> bool {
    (0.0..=MOST).contains(&x)
}

fn is_positive(x: f64) -> bool {
    x > 0.0 && x <= MOST
}

/// The error for `key`, unless its value is as it must be.
fn require<T: std::fmt::Debug + Copy>(
    key: &'static str,
    value: T,
    holds: impl Fn(T) -> bool,
    requirement: &'static str,
) -> Result<(), ConfigError> {
    // With an exponent if all digits would be hundreds.
    let error = || ConfigError { key, value: format!("{value:?}"), requirement };
    if holds(value) { Ok(()) } else { Err(error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_can_be_trained_with_and_survives_being_written_out() {
        let config = TrainingConfig::default();
        config.check().unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<TrainingConfig>(&text).unwrap(), config);
        assert_eq!(serde_json::from_str::<TrainingConfig>("{}").unwrap(), config);
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        let error =
            serde_json::from_str::<TrainingConfig>(r#"{"schedule": {"warm_up": 3}}"#).unwrap_err();
        assert!(error.to_string().contains("warm_up"), "{error}");
    }

    #[test]
    fn contradictions_are_named() {
        let none = TrainingConfig { max_updates: 0, ..TrainingConfig::default() };
        assert!(none.check().unwrap_err().to_string().contains("training has no end"));
        let mut cosine =
            TrainingConfig { max_updates: 0, max_minutes: 5.0, ..TrainingConfig::default() };
        cosine.check().unwrap();
        cosine.schedule.kind = crate::ScheduleKind::Cosine;
        assert_eq!(cosine.check().unwrap_err().key, "max_updates");
        for r_drop in [-0.5, f64::NAN, f64::INFINITY] {
            let config = TrainingConfig { r_drop, ..TrainingConfig::default() };
            let requirement = "it must be 0 (one pass) or more, and at most 3.4e38";
            assert_eq!(
                config.check().unwrap_err().to_string(),
                format!("training.r_drop is {r_drop}: {requirement}")
            );
        }
        for absurd in [-1.0, 0.0, 1e300, f64::NAN, f64::INFINITY] {
            let key = |change: &dyn Fn(&mut TrainingConfig)| {
                let mut config = TrainingConfig::default();
                change(&mut config);
                config.check().unwrap_err().key
            };
            assert_eq!(
                key(&|config| config.schedule.learning_rate = absurd),
                "schedule.learning_rate"
            );
            assert_eq!(key(&|config| config.schedule.scale = absurd), "schedule.scale");
            assert_eq!(key(&|config| config.optimizer.epsilon = absurd), "optimizer.epsilon");
            if absurd != 0.0 {
                assert_eq!(key(&|config| config.optimizer.beta2 = absurd), "optimizer.beta2");
                assert_eq!(
                    key(&|config| config.optimizer.weight_decay = absurd),
                    "optimizer.weight_decay"
                );
                assert_eq!(key(&|config| config.clip_norm = absurd), "clip_norm");
            }
        }
        for spike_factor in [-1.0, 0.5, 1.0, f64::NAN, f64::INFINITY] {
            let config = TrainingConfig { spike_factor, ..TrainingConfig::default() };
            assert_eq!(config.check().unwrap_err().key, "spike_factor");
        }
        let average = TrainingConfig { average_last: 4, keep_last: 3, ..TrainingConfig::default() };
        assert_eq!(
            average.check().unwrap_err().to_string(),
            "training.average_last is 4: only kept checkpoints can be averaged, so it must not be above keep_last"
        );
    }
}
