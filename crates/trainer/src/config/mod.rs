//! Training configuration: all options with their meanings and defaults.
//!
//! The value 0 switches an optional feature off. So every key always has a value, and a complete
//! configuration can be written to a file.

mod checks;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taper_model::{Guidance, Objective};

use crate::{Metric, OptimizerConfig, ScheduleConfig};

pub use checks::ConfigError;

/// Score that determines the best checkpoint, and ends training if it does not improve.
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
    /// Number of validations in a row without improvement after which training ends; 0: never.
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
    /// Weight of the alignment loss, which is added to the cross entropy; Garg et al. use 0.05. 0:
    /// no guided alignment.
    #[schemars(range(min = 0.0))]
    #[schemars(
        extend("x-names" = "alignment_loss lambda_align alignment_loss_weight \
            guided_alignment_weight"),
        extend("x-idle" = ["not-translation"])
    )]
    pub weight: f64,
    /// Decoder layer whose attention is guided, counted from 1; 0 means the layer before the last.
    #[schemars(extend("x-names" = "alignment_layer"), extend("x-idle" = ["not-guided"]))]
    pub layer: usize,
    /// Attention head that is guided, counted from 1.
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
    /// Returns these settings as the model's type [`Guidance`], in which layer and head are counted
    /// from 0. Returns `None` if the weight is 0, which means that no attention is guided.
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
    /// Number of f32 gradients that are exchanged at a time.
    #[must_use]
    pub fn bucket_values(&self) -> usize {
        (self.bucket_mib * f64::from(1 << 20)) as usize / size_of::<f32>()
    }
}

/// Configuration of the training loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// Seed of initialisation, dropout and the order of the data.
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
    /// different dropout, and α (KL(p‖q) + KL(q‖p)) / 2 of a token's two predictions p and q is
    /// added to the mean of their cross entropies. The paper adds the term to the sum of the cross
    /// entropies, so the paper's α is twice this one. 0 makes a single pass.
    #[schemars(range(min = 0.0))]
    #[schemars(
        extend("x-names" = "rdrop rdrop_alpha reg_alpha"),
        extend("x-idle" = ["no-dropout"])
    )]
    pub r_drop: f64,
    /// Guided alignment.
    pub guided_alignment: GuidedAlignmentConfig,
    /// Names of parameters that no update changes, as `taper inspect` lists them; `*` stands for
    /// any characters and `?` for one: `["encoder.*", "*embedding.weight"]`. Each must match at
    /// least one name.
    #[schemars(extend("x-values" = "a list of texts"))]
    pub freeze: Vec<String>,
    /// Ratio of the learning rates of a layer and the layer above it, so that the first layers
    /// change least (Howard and Ruder 2018, section 3.2). In a stack of n layers, layer i, counted
    /// from 1, has the rate times this ratio to the power n - i + 1. Parameters before the layers,
    /// such as embeddings, have one power more; parameters after them, such as heads, have the full
    /// rate. 1 gives all the same rate.
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
    /// Whether each stack of n layers keeps the inputs of only about √n of them, and recomputes the
    /// rest in the backward pass (Chen et al. 2016, "Training Deep Nets with Sublinear Memory
    /// Cost"): the results are the same to the bit, with less memory and a third more arithmetic.
    /// Only on the CPU.
    #[schemars(extend("x-idle" = ["on-gpu"]))]
    pub checkpoint_activations: bool,
    /// Decay of the exponential moving average of the weights, which is then validated and saved as
    /// the model; 0: no average.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(
        extend("x-names" = "ema ema_rate exponential_smoothing average_decay moving_average")
    )]
    pub ema_decay: f64,
    /// The number of updates after which training ends; 0: no such limit.
    #[schemars(
        extend("x-names" = "max_steps max_update max_iters max_iterations iterations num_steps \
            num_updates total_steps train_steps num_train_steps updates steps")
    )]
    pub max_updates: u64,
    /// The number of passes over the data after which training ends; 0: no such limit.
    #[schemars(
        extend("x-names" = "epochs epoch max_epoch num_epochs n_epochs num_train_epochs \
            after_epochs")
    )]
    pub max_epochs: u64,
    /// Limit on the minutes in the training loop, including validations and checkpoints; the
    /// minutes before a resumption count too. 0: no such limit.
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-names" = "max_time time_limit stop_time_hours max_hours max_seconds"))]
    pub max_minutes: f64,
    /// Number of updates from one log event to the next.
    #[schemars(range(min = 1))]
    #[schemars(
        extend("x-names" = "log_interval logging_steps logging_freq report_every disp_freq")
    )]
    pub log_every: u64,
    /// Whether log events also have the norms of each layer's gradients and weights, which show
    /// where gradients vanish or explode. The norms are those of the event's update, before
    /// clipping.
    pub log_layers: bool,
    /// Number of updates from one validation to the next; 0 validates only at the end.
    #[schemars(
        extend("x-names" = "eval_every eval_interval eval_steps valid_freq valid_steps \
            validate_interval validate_interval_updates validation_freq val_check_interval")
    )]
    pub validate_every: u64,
    /// Number of updates from one checkpoint to the next; 0 saves at each validation. A validation
    /// with the best score so far is always followed by a checkpoint.
    #[schemars(
        extend("x-names" = "save_freq save_every save_interval save_interval_updates save_steps \
            save_checkpoint_steps checkpoint_interval")
    )]
    pub checkpoint_every: u64,
    /// Definition of "best", and the end of training without improvement.
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
    /// Number of the newest checkpoints to average at the end of training; 0: none.
    #[schemars(
        extend("x-names" = "average_checkpoints avg_checkpoints num_epoch_checkpoints \
            checkpoint_averaging")
    )]
    pub average_last: usize,
    /// Updates whose loss exceeds this multiple of the mean of about the last hundred losses are
    /// skipped; updates that are not finite are always skipped. This is for data that is partly
    /// broken (Chowdhery et al. 2022, "PaLM", section 5.1, skip the batches around a spike). 0: no
    /// such rule.
    #[schemars(range(min = 0.0))]
    pub spike_factor: f64,
    /// Number of consecutive skipped updates after which training fails.
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

impl TrainingConfig {
    /// Loss that these settings describe.
    #[must_use]
    pub const fn objective(&self) -> Objective {
        Objective {
            label_smoothing: self.label_smoothing,
            r_drop: self.r_drop,
            guidance: self.guided_alignment.guidance(),
        }
    }

    /// Number of buffers with one value per parameter that training keeps, in addition to weights
    /// and gradients: the optimizer's buffers, and the moving average if there is one.
    #[must_use]
    pub fn state_buffers(&self) -> u64 {
        self.optimizer.build().buffers().len() as u64 + u64::from(self.ema_decay > 0.0)
    }
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
}
