//! Checks of the training configuration: ranges, and keys that contradict each other.

use thiserror::Error;

use super::TrainingConfig;
use crate::ScheduleKind;

/// Largest number of micro-batches of an update, all of which are in memory at once.
const MOST_MICRO_BATCHES: usize = 65_536;

/// Largest finite number of f32. A larger rate or factor would become infinite in f32.
const MOST: f64 = f32::MAX as f64;

/// Error about a value in the configuration, or a combination of values, that makes training
/// impossible.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("training.{key} is {value}: {requirement}")]
pub struct ConfigError {
    /// The key, without the prefix `training.`.
    pub key: &'static str,
    /// Value that was set.
    pub value: String,
    /// Requirement on the value.
    pub requirement: &'static str,
}

/// Returns from the calling function with an error if the value of a key does not meet the
/// requirement. The key is given as the path of a field of the configuration.
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
    /// Checks that training is possible with these values.
    ///
    /// # Errors
    /// If a key is out of range or contradicts another. The error names the first such key.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_rule()?;
        self.check_objective()?;
        self.check_loop()
    }

    /// Checks the settings of optimizer and schedule.
    fn check_rule(&self) -> Result<(), ConfigError> {
        let (kind, peak) = (self.schedule.kind, self.schedule.learning_rate);
        require!(self.optimizer.beta1, is_share, SHARE);
        require!(self.optimizer.beta2, is_share, SHARE);
        require!(self.optimizer.momentum, is_share, SHARE);
        // A smaller value could become 0 in f32, and the optimizer would then divide zero by zero.
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

    /// Checks settings of the loss, and of how an update is computed.
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

    /// Checks the settings of the end of training, and of the checkpoints that are kept.
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

/// Requirements that are the same for several keys.
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

/// Returns an error for `key`, unless `holds` is true for `value`.
fn require<T: std::fmt::Debug + Copy>(
    key: &'static str,
    value: T,
    holds: impl Fn(T) -> bool,
    requirement: &'static str,
) -> Result<(), ConfigError> {
    // The debug format writes large numbers with an exponent, and not with hundreds of digits.
    let error = || ConfigError { key, value: format!("{value:?}"), requirement };
    if holds(value) { Ok(()) } else { Err(error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
