//! Muon, composed of Candle's operations.

use super::{CountedProduct, adam_step};
use crate::spec::{MuonStep, POLYNOMIAL, ROUNDS, SMALLEST_NORM, update_scale};
use crate::tape::{Parameter, ParameterStore};
use candle_core::{Result, Tensor};
use std::ops::Range;

/// Takes a step of Muon; see [`crate::muon_step()`].
///
/// # Shapes
/// The shapes of [`crate::muon_step()`].
///
/// # Errors
/// If a buffer does not have `range.len()` elements.
pub fn muon_step(
    store: &ParameterStore,
    range: Range<usize>,
    gradient: &Tensor,
    buffers: &mut [Tensor; 2],
    step: &MuonStep,
) -> Result<()> {
    let mut parts = [Vec::new(), Vec::new()];
    for (parameter, within) in store.within(&range) {
        let start = parameter.offset() + within.start;
        let part = |flat: &Tensor| flat.narrow(0, start - range.start, within.len());
        let gradient = part(gradient)?;
        let mut moments = [part(&buffers[0])?, part(&buffers[1])?];
        if parameter.is_frozen() {
            // Neither the weights nor the moments change.
        } else if parameter.projections().is_empty() {
            adam_step(store, start..start + within.len(), &gradient, &mut moments, &step.adam)?;
        } else {
            let gradient = (gradient * step.adam.gradient_scale)?;
            moments[0] = ahead(&moments[0], &gradient, step.momentum)?;
            let direction = ahead(&moments[0], &gradient, step.momentum)?;
            store.set_trained(start, &moved(parameter, &direction, step)?)?;
        }
        parts.iter_mut().zip(moments).for_each(|(parts, moments)| parts.push(moments));
    }
    if !range.is_empty() {
        *buffers = [Tensor::cat(&parts[0], 0)?, Tensor::cat(&parts[1], 0)?];
    }
    Ok(())
}

/// Returns the weighted mean `kept · momentum + (1 - kept) · gradient`.
fn ahead(momentum: &Tensor, gradient: &Tensor, kept: f64) -> Result<Tensor> {
    Ok(((momentum * kept)? + (gradient * (1.0 - kept))?)?.detach())
}

/// Returns the weights of a parameter after a step along `direction`. A parameter can consist of
/// several matrices (projections), one below the other. Before the step, the part of `direction`
/// for each matrix is orthogonalised.
fn moved(parameter: &Parameter, direction: &Tensor, step: &MuonStep) -> Result<Tensor> {
    let rate = step.adam.learning_rate * parameter.rate();
    let rows: usize = parameter.projections().iter().sum();
    let columns = parameter.len() / rows;
    let direction = direction.reshape((rows, columns))?;
    let mut updates = Vec::new();
    let mut from = 0;
    for &rows in parameter.projections() {
        let orthogonal = orthogonal(&direction.narrow(0, from, rows)?)?;
        updates.push((orthogonal * (rate * update_scale(rows, columns)))?);
        from += rows;
    }
    let weights = parameter.var().as_detached_tensor().flatten_all()?;
    (weights * (1.0 - rate * step.adam.weight_decay))? - Tensor::cat(&updates, 0)?.flatten_all()?
}

/// Returns the matrix with its singular values moved close to 1.
fn orthogonal(x: &Tensor) -> Result<Tensor> {
    let norm = x.sqr()?.sum_all()?.sqrt()?.maximum(SMALLEST_NORM)?;
    let mut x = x.broadcast_div(&norm)?;
    let (rows, columns) = x.dims2()?;
    let is_wide = rows <= columns;
    let [a, b, c] = POLYNOMIAL.map(f64::from);
    for _ in 0..ROUNDS {
        let transposed = x.t()?.contiguous()?;
        let gram = if is_wide { x.times(&transposed)? } else { transposed.times(&x)? };
        let square = ((&gram * b)? + (gram.times(&gram)? * c)?)?;
        let change = if is_wide { square.times(&x)? } else { x.times(&square)? };
        x = ((x * a)? + change)?;
    }
    Ok(x)
}
