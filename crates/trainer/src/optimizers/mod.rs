//! Optimizers: rules by which weights are updated from their gradients.
//!
//! To add an optimizer, write a file in this folder, and name the optimizer in this file three
//! times: as a module, as an [`OptimizerKind`] and in [`OptimizerConfig::build`]. Checkpoints, the
//! command `inspect`, and the checks of memory and disk space get the names and the number of the
//! optimizer's buffers from [`Optimizer::buffers`].
//!
//! Weights, gradient and buffers are flat: each is one vector of all parameters, in the order of
//! the parameter store. A step can be made on any range of these vectors, unless the range divides
//! a parameter that the optimizer [needs as a whole](Optimizer::needs_whole). If several processes
//! train together, each of them keeps only the buffers of its own ranges (Rajbhandari et al. 2020,
//! "ZeRO", section 5.1). Optimizers such as Adafactor, whose state is smaller than one value per
//! parameter, do not fit this interface. Their purpose, to save memory, is also served by the
//! division of buffers among processes.

mod adam;
mod lion;
mod muon;

use std::fmt::Debug;
use std::ops::Range;

use candle_core::{Result, Tensor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taper_ops::{Parameter, ParameterStore};

/// Rule by which weights are updated from their gradients.
///
/// An optimizer has no state of its own: the caller passes buffers with the state, which are zero
/// before the first step.
pub trait Optimizer: Debug + Send + Sync {
    /// Names of the optimizer's buffers in checkpoints. Each buffer has one f32 for each value of
    /// the parameters.
    fn buffers(&self) -> &'static [&'static str];

    /// Whether a step needs all values of this parameter at once, so that ranges must not divide
    /// it.
    fn needs_whole(&self, parameter: &Parameter) -> bool {
        let _ = parameter;
        false
    }

    /// Updates a part of the parameters.
    ///
    /// # Errors
    /// If the device has too little memory.
    fn step(&self, part: Part<'_>, step: &Step) -> Result<()>;
}

/// Range of the flat layout (all parameters, one after the other) for which a step is made.
///
/// # Shapes
/// `gradient` and each of `state`: `(range.len(),)`, f32.
#[derive(Debug)]
pub struct Part<'a> {
    /// All parameters.
    pub store: &'a ParameterStore,
    /// Range in the flat layout.
    pub range: Range<usize>,
    /// Gradient of the range.
    pub gradient: &'a Tensor,
    /// The optimizer's buffers for the range, in the order of [`Optimizer::buffers`].
    pub state: &'a mut [Tensor],
}

/// Hyperparameters of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Number of the update, counted from 1.
    pub number: u64,
    /// Learning rate.
    pub learning_rate: f64,
    /// Factor by which the gradient is multiplied; it is below 1 if the gradient is clipped.
    pub gradient_scale: f64,
}

/// The rule that changes the weights by their gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    /// Adam (Kingma and Ba 2015); weight decay is added to the gradient.
    Adam,
    /// AdamW (Loshchilov and Hutter 2019); weight decay shrinks the weights directly.
    Adamw,
    /// Lion (Chen et al. 2023): the sign of a momentum. It takes half of Adam's memory; its
    /// learning rates are three to ten times smaller, and its weight decay larger by the same
    /// factor.
    Lion,
    /// Muon (Jordan et al. 2024): the momentum of each matrix of a linear layer, made orthogonal
    /// and scaled to the size of Adam's updates (Liu et al. 2025); embeddings, biases and norms
    /// follow AdamW.
    Muon,
}

/// The optimizer of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerConfig {
    /// Adam, AdamW, Lion or Muon.
    #[schemars(extend("x-names" = "optim optimizer_type optimizer_name optimiser"))]
    pub kind: OptimizerKind,
    /// Decay of the running mean of gradients; for Lion, of the momentum whose sign is taken.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(extend("x-names" = "adam_beta1 beta_1 betas adam_betas"))]
    pub beta1: f64,
    /// Decay of the running mean of squared gradients; for Lion, of the momentum that is kept.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(extend("x-names" = "adam_beta2 beta_2 betas adam_betas"))]
    pub beta2: f64,
    /// Number added to the root of the second moment; Lion has none.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    #[schemars(extend("x-names" = "eps adam_eps adam_epsilon"), extend("x-idle" = ["lion"]))]
    pub epsilon: f64,
    /// Decay of Muon's momentum of a linear layer's gradient.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(extend("x-names" = "muon_momentum"), extend("x-idle" = ["not-muon"]))]
    pub momentum: f64,
    /// Weight decay of matrices; biases and normalisation gains are not decayed.
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-names" = "wd l2 l2_regularization"))]
    pub weight_decay: f64,
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self {
            kind: OptimizerKind::Adam,
            beta1: 0.9,
            beta2: 0.98,
            epsilon: 1e-9,
            momentum: 0.95,
            weight_decay: 0.0,
        }
    }
}

impl OptimizerConfig {
    /// Builds the configured optimizer.
    #[must_use]
    pub fn build(&self) -> Box<dyn Optimizer> {
        let config = self.clone();
        match self.kind {
            OptimizerKind::Adam => Box::new(adam::Adam { config, decoupled: false }),
            OptimizerKind::Adamw => Box::new(adam::Adam { config, decoupled: true }),
            OptimizerKind::Lion => Box::new(lion::Lion { config }),
            OptimizerKind::Muon => Box::new(muon::Muon { config }),
        }
    }
}
