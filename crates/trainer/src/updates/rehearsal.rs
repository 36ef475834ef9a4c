//! Pass that changes nothing: it shows before the first update whether the largest batch can be
//! computed, since that batch might otherwise come only after hours.

use taper_model::{Batch, Model};
use taper_ops::Gradients;

use super::Leaf;
use crate::{BoxError, TrainError, TrainingConfig};

/// Computes loss and gradients of `batch` as an update would, and drops them.
///
/// # Errors
/// If memory is exhausted, or a sentence is longer than the model's largest position.
pub fn rehearse(
    model: &impl Model,
    config: &TrainingConfig,
    batch: &Batch,
) -> Result<(), TrainError> {
    let failed =
        |source| TrainError::Compute { action: "rehearse the largest batch", step: 0, source };
    let total = batch.tokens();
    let leaf = Leaf { batch, step: 0, number: 0, total, composed: false };
    Gradients::new(model.parameters())
        .map_err(BoxError::from)
        .and_then(|mut gradients| leaf.gradient(model, config, &mut gradients, None))
        .map(|_| ())
        .map_err(failed)
}
