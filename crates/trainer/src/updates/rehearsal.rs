//! Trial of the largest batch before the first update. It changes no weights. It shows at once
//! whether the memory is sufficient. Without the trial, this could become apparent only after hours
//! of training, when the largest batch comes.

use taper_model::{Batch, Model};
use taper_ops::Gradients;

use super::Leaf;
use crate::{BoxError, TrainError, TrainingConfig};

/// Computes the loss and the gradients of `batch` in the same way as an update does, and drops
/// them.
///
/// # Errors
/// If there is too little memory, or a sentence has more tokens than the model has positions.
pub fn rehearse(
    model: &dyn Model,
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
