//! One pass over weights, gradient and optimizer state, in pieces.

use crate::host::{Host, update_elements};
use crate::parallel::CHUNK;
use crate::profile::{even, region};
use crate::shared::Shared;
use crate::tape::{Parameter, ParameterStore};
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;

/// Some elements of one parameter, with their gradient and optimizer state.
#[derive(Debug)]
pub struct Piece<'a> {
    /// Weights; these are updated.
    pub weights: &'a mut [f32],
    /// Gradient of the weights.
    pub gradient: &'a [f32],
    /// State of the optimizer, which is updated: the elements of each of its buffers.
    pub state: Vec<&'a mut [f32]>,
    /// The parameter that has these elements.
    pub parameter: &'a Parameter,
}

/// Checks that buffers have one value for each scalar in a range of the flat layout, and that this
/// thread may use the device.
pub(crate) fn check_buffers<'a>(
    name: &str,
    store: &ParameterStore,
    range: &Range<usize>,
    buffers: impl IntoIterator<Item = &'a Tensor>,
) -> Result<()> {
    crate::device::check(store.device())?;
    if range.end > store.len() {
        candle_core::bail!("{name}: parameters {range:?} of {}", store.len());
    }
    for buffer in buffers {
        if buffer.elem_count() != range.len() {
            candle_core::bail!(
                "{name}: a buffer of {} values for {} parameters",
                buffer.elem_count(),
                range.len()
            );
        }
    }
    Ok(())
}

/// Calls `update` for each piece of the parameters in `range` of the flat layout, except frozen
/// ones. Pieces are processed in parallel, in one pass over memory on the host.
///
/// The profile records the time under `name`.
///
/// # Shapes
/// `gradient` and each tensor of `state` are f32, `(range.len(),)`.
///
/// # Errors
/// If a buffer has another length, or is not on the host.
pub fn update_pieces(
    name: &'static str,
    store: &ParameterStore,
    range: Range<usize>,
    gradient: &Tensor,
    state: &[Tensor],
    update: impl Fn(Piece<'_>) + Sync,
) -> Result<()> {
    check_buffers(name, store, &range, state.iter().chain([gradient]))?;
    let host = Host::new(gradient)?;
    let gradient = host.elements::<f32>()?;
    crate::profile::time(name, || {
        lend(state, &mut Vec::new(), &mut |state| {
            // Most parameters are too small to be divided between threads, so there is a task for
            // each parameter.
            let of_parameter = |parameter: &Parameter| {
                let first = parameter.offset().max(range.start);
                let end = (parameter.offset() + parameter.len()).min(range.end);
                if first >= end || parameter.is_frozen() {
                    return Ok(());
                }
                update_elements(parameter.var().as_tensor(), |weights| {
                    let weights =
                        &mut weights[first - parameter.offset()..end - parameter.offset()];
                    weights.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, weights)| {
                        let from = first - range.start + chunk * CHUNK;
                        let here = from..from + weights.len();
                        let gradient = &gradient[here.clone()];
                        // SAFETY: parameters have disjoint ranges, and so have their chunks.
                        let state =
                            state.iter().map(|all| unsafe { all.range(here.clone()) }).collect();
                        update(Piece { weights, gradient, state, parameter });
                    });
                    Ok(())
                })
            };
            region(even(range.len().div_ceil(CHUNK)), || {
                store.parameters().par_iter().with_max_len(1).try_for_each(of_parameter)
            })
        })
    })
}

/// Borrows the elements of all tensors at once.
fn lend(
    tensors: &[Tensor],
    lent: &mut Vec<Shared<f32>>,
    work: &mut dyn FnMut(&[Shared<f32>]) -> Result<()>,
) -> Result<()> {
    let Some((first, rest)) = tensors.split_first() else { return work(lent) };
    update_elements(first, |values| {
        lent.push(Shared::new(values));
        let result = lend(rest, lent, work);
        lent.pop();
        result
    })
}
