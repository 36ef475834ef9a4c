//! Hyperparameters of one step of Adam.

/// Hyperparameters of one optimizer step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStep {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Number added to the root of the second moment.
    pub epsilon: f64,
    /// Weight decay, on matrices only.
    pub weight_decay: f64,
    /// True if the decay is decoupled from the gradient (AdamW, Loshchilov and Hutter 2019); false
    /// if it is added to the gradient (L2).
    pub decoupled: bool,
    /// Number of the step, from 1.
    pub step: u64,
    /// Factor of the gradient: below 1 if it is clipped.
    pub gradient_scale: f64,
}
