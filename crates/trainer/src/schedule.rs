//! Learning-rate schedules: functions of the number of the update, which is counted from 1.
//!
//! A schedule keeps no state, so a resumed run has the same learning rates as an uninterrupted run.
//!
//! ```
//! use taper_trainer::{ScheduleConfig, ScheduleKind};
//! let schedule = ScheduleConfig { kind: ScheduleKind::Noam, scale: 1.0, warmup: 4000, ..ScheduleConfig::default() };
//! let peak = schedule.at(4000, 512, 0);
//! assert!((peak - (512.0_f64 * 4000.0).powf(-0.5)).abs() < 1e-12);
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The shape of a learning-rate schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// `scale · d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)` (Vaswani et al. 2017, equation
    /// 3).
    Noam,
    /// Linear warm-up to the peak, then `peak · sqrt(warmup / step)` (fairseq's `inverse_sqrt`).
    InverseSqrt,
    /// Linear warm-up to the peak, then half a cosine down to the minimum at the last update
    /// (Loshchilov and Hutter 2017, equation 5, without restarts).
    Cosine,
    /// Linear warm-up to the peak, then a straight line down to the minimum at the last update.
    Linear,
    /// Linear warm-up to the peak, then a constant rate.
    Constant,
}

impl ScheduleKind {
    /// True if the schedule reaches its minimum at the last update, so that `max_updates` must be
    /// known.
    #[must_use]
    pub const fn needs_horizon(self) -> bool {
        matches!(self, Self::Cosine | Self::Linear)
    }
}

/// The learning-rate schedule of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleConfig {
    /// Shape of the schedule.
    #[schemars(
        extend("x-names" = "lr_scheduler lr_scheduler_type lr_schedule scheduler scheduling \
            decay_method learning_rate_scheduler learning_rate_scheduler_type")
    )]
    pub kind: ScheduleKind,
    /// Factor of the rate with the kind `noam`; the other kinds ignore it.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    #[schemars(extend("x-idle" = ["not-noam"]))]
    pub scale: f64,
    /// The peak learning rate, reached at the end of the warm-up; `noam` ignores it.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    #[schemars(
        extend("x-names" = "lr learn_rate base_lr peak_lr max_lr initial_learning_rate step_size"),
        extend("x-idle" = ["noam"])
    )]
    pub learning_rate: f64,
    /// The number of warm-up updates.
    #[schemars(
        extend("x-names" = "warmup warmup_steps warmup_updates num_warmup_steps lr_warmup \
            learning_rate_warmup")
    )]
    pub warmup: u64,
    /// The smallest learning rate after the warm-up.
    #[schemars(range(min = 0.0))]
    #[schemars(
        extend("x-names" = "min_lr lr_min learning_rate_min end_learning_rate"),
        extend("x-idle" = ["constant-rate"])
    )]
    pub minimum: f64,
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self {
            kind: ScheduleKind::Noam,
            scale: 1.0,
            learning_rate: 5e-4,
            warmup: 4000,
            minimum: 0.0,
        }
    }
}

impl ScheduleConfig {
    /// Returns the learning rate of update `step` (from 1; 0 is treated as 1) for a model of width
    /// `d_model`.
    ///
    /// `max_updates`: number of updates of the run. It matters only to schedules that reach the
    /// minimum at the last update.
    #[must_use]
    pub fn at(&self, step: u64, d_model: usize, max_updates: u64) -> f64 {
        let step = step.max(1);
        match self.kind {
            ScheduleKind::Noam => {
                noam(step, d_model, self.warmup, self.scale).max(self.floor(step))
            }
            _ if step < self.warmup => self.learning_rate * step as f64 / self.warmup as f64,
            ScheduleKind::Constant => self.learning_rate,
            ScheduleKind::InverseSqrt => {
                let warmup = self.warmup.max(1) as f64;
                (self.learning_rate * (warmup / step as f64).sqrt()).max(self.minimum)
            }
            ScheduleKind::Cosine => {
                let phase = std::f64::consts::PI * progress(step, self.warmup, max_updates);
                self.minimum + 0.5 * (self.learning_rate - self.minimum) * (1.0 + phase.cos())
            }
            ScheduleKind::Linear => {
                let left = 1.0 - progress(step, self.warmup, max_updates);
                self.minimum + (self.learning_rate - self.minimum) * left
            }
        }
    }

    /// Lower bound of the learning rate of update `step`: 0 during the warm-up, and after it the
    /// configured minimum.
    fn floor(&self, step: u64) -> f64 {
        if step < self.warmup { 0.0 } else { self.minimum }
    }
}

/// Schedule of Vaswani et al. 2017, equation 3, multiplied by `scale`.
fn noam(step: u64, d_model: usize, warmup: u64, scale: f64) -> f64 {
    let (step, warmup) = (step as f64, warmup.max(1) as f64);
    scale * (d_model as f64).powf(-0.5) * step.powf(-0.5).min(step * warmup.powf(-1.5))
}

/// Returns the position of `step` between the end of the warm-up (0) and the last update (1).
fn progress(step: u64, warmup: u64, max_updates: u64) -> f64 {
    if max_updates <= warmup {
        return 1.0;
    }
    (step.saturating_sub(warmup) as f64 / (max_updates - warmup) as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(kind: ScheduleKind) -> ScheduleConfig {
        ScheduleConfig { kind, scale: 2.0, learning_rate: 1e-3, warmup: 10, minimum: 1e-5 }
    }

    #[track_caller]
    fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-12, "got {got}, expected {expected}");
    }

    #[test]
    fn noam_matches_the_papers_formula() {
        let noam = ScheduleConfig { minimum: 0.0, ..schedule(ScheduleKind::Noam) };
        // 2 · 64^-0.5 = 0.25
        close(noam.at(1, 64, 0), 0.25 * 10.0_f64.powf(-1.5));
        close(noam.at(10, 64, 0), 0.25 * 10.0_f64.powf(-0.5));
        close(noam.at(1000, 64, 0), 0.25 * 1000.0_f64.powf(-0.5));
        close(noam.at(0, 64, 0), noam.at(1, 64, 0));
    }

    #[test]
    fn every_other_shape_warms_up_linearly_to_its_peak() {
        for kind in [
            ScheduleKind::InverseSqrt,
            ScheduleKind::Cosine,
            ScheduleKind::Linear,
            ScheduleKind::Constant,
        ] {
            let schedule = schedule(kind);
            close(schedule.at(1, 64, 110), 1e-4);
            close(schedule.at(5, 64, 110), 5e-4);
            close(schedule.at(10, 64, 110), 1e-3);
        }
    }

    #[test]
    fn each_shape_falls_as_it_says() {
        close(schedule(ScheduleKind::InverseSqrt).at(40, 64, 0), 5e-4);
        close(schedule(ScheduleKind::Cosine).at(60, 64, 110), (1e-3 + 1e-5) / 2.0);
        close(schedule(ScheduleKind::Cosine).at(110, 64, 110), 1e-5);
        close(schedule(ScheduleKind::Linear).at(35, 64, 110), 1e-5 + 0.75 * (1e-3 - 1e-5));
        close(schedule(ScheduleKind::Linear).at(500, 64, 110), 1e-5);
        close(schedule(ScheduleKind::Constant).at(9999, 64, 0), 1e-3);
        close(schedule(ScheduleKind::InverseSqrt).at(u64::MAX, 64, 0), 1e-5);
    }
}
