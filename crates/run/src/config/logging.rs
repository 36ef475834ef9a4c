//! The `[logging]` section: what is recorded beside `metrics.jsonl`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is recorded for other programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoggingConfig {
    /// Write an event file for TensorBoard into the run: curves, spread and norms of the weights of
    /// each layer at each validation, samples and the recipe. With training.log_layers, norms of
    /// gradients as well.
    pub tensorboard: bool,
}
