//! The `[logging]` section: records in addition to `metrics.jsonl`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Records for other programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoggingConfig {
    /// Whether an event file for TensorBoard is written to the run: curves, distribution and norms
    /// of the weights of each layer at each validation, samples and the recipe. With
    /// training.log_layers, it also has norms of gradients.
    pub tensorboard: bool,
}
