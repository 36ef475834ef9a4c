//! Buckets of distances, for the trained biases of T5.

use super::{ModelConfig, bounds};
use crate::ModelError;

/// Buckets of distances for `positions = "t5"`; each bucket has a trained bias (Raffel et al. 2020,
/// section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelativeBuckets {
    /// Number of buckets.
    pub count: usize,
    /// Distance up to which distances are told apart: this distance and all larger ones share the
    /// last bucket. In an encoder, keys before the query and keys after it have separate buckets.
    pub distance: usize,
}

impl Default for RelativeBuckets {
    fn default() -> Self {
        Self { count: 32, distance: 128 }
    }
}

/// True if `count` is the default, which recipes (configuration files) leave out.
pub(super) fn is_usual_count(count: &usize) -> bool {
    *count == RelativeBuckets::default().count
}

/// True if `distance` is the default, which recipes leave out.
pub(super) fn is_usual_distance(distance: &usize) -> bool {
    *distance == RelativeBuckets::default().distance
}

impl ModelConfig {
    /// Buckets of distances of T5's biases.
    #[must_use]
    pub fn relative(&self) -> RelativeBuckets {
        RelativeBuckets { count: self.relative_buckets, distance: self.relative_distance }
    }

    /// Checks the buckets of distances.
    pub(super) fn validate_relative(&self) -> Result<(), ModelError> {
        let RelativeBuckets { count, distance } = self.relative();
        bounds::size("model.relative_buckets", count, 4..=*bounds::COUNTS.end())?;
        bounds::size("model.relative_distance", distance, bounds::TOKENS)?;
        if distance <= count / 2 {
            return Err(ModelError::Config(format!(
                "model.relative_distance = {distance}: it must be more than half of \
                 model.relative_buckets = {count}, since half of the buckets hold one distance each"
            )));
        }
        Ok(())
    }
}
