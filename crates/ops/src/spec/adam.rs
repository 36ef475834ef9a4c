//! Hyperparameters of one step of Adam.

/// Hyperparameters of one step of Adam (Kingma and Ba 2015).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStep {
    /// Learning rate of this step. Each parameter multiplies it by its own factor
    /// ([`Parameter::rate`](crate::Parameter::rate)).
    pub learning_rate: f64,
    /// Decay of the first moment, β₁.
    pub beta1: f64,
    /// Decay of the second moment, β₂.
    pub beta2: f64,
    /// Number added to the square root of the second moment, ε.
    pub epsilon: f64,
    /// Weight decay, applied to matrices only.
    pub weight_decay: f64,
    /// Whether the weight decay is decoupled from the gradient (AdamW, Loshchilov and Hutter 2019)
    /// or, if `false`, added to the gradient (L2).
    pub decoupled: bool,
    /// Index of the step, from 1.
    pub step: u64,
    /// Multiplier of the gradient; below 1 if the gradient is clipped.
    pub gradient_scale: f64,
}
