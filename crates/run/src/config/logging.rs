//! The `[logging]` section: records in addition to `metrics.jsonl`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Records for other programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoggingConfig {
    /// Write an event file for TensorBoard to the run: curves, distribution and norms of the
    /// weights of each layer at each validation, samples and the recipe. With training.log_layers,
    /// norms of gradients as well.
    pub tensorboard: bool,
}
