//! A pass that changes nothing: whether the largest batch can be computed is better known before
//! the first update than after hours, when it first comes up.

use taper_model::{Batch, Model, Pass};
use taper_ops::Gradients;

use crate::{TrainError, TrainingConfig};

/// Computes loss and gradients of `batch` as an update would, and drops them.
///
/// # Errors
/// What that update would fail with: memory that does not suffice, sentences longer than the
/// positions reach.
pub fn rehearse(
    model: &impl Model,
    config: &TrainingConfig,
    batch: &Batch,
) -> Result<(), TrainError> {
    let failed =
        |source| TrainError::Compute { action: "rehearse the largest batch", step: 0, source };
    let pass = Pass::train(config.seed, 0, 0);
    let scale = 1.0 / batch.tokens().max(1) as f64;
    let output = model
        .loss(batch, &config.objective(), scale, &pass)
        .map_err(|error| failed(error.into()))?;
    let store = model.parameters();
    let mut gradients = Gradients::new(store).map_err(|error| failed(error.into()))?;
    pass.backward(&output, store, &mut gradients).map_err(|error| failed(error.into()))
}
