//! One pass over weights, gradient and optimizer state, in pieces (short ranges of elements).

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
    /// The weights themselves, which the pass updates.
    pub weights: &'a mut [f32],
    /// Gradient of the loss with respect to these weights.
    pub gradient: &'a [f32],
    /// Optimizer state of these elements, which the pass updates: a slice of each of the
    /// optimizer's buffers.
    pub state: Vec<&'a mut [f32]>,
    /// The parameter to which these elements belong.
    pub parameter: &'a Parameter,
}

/// Checks that the calling thread is allowed to use the device, and that each buffer has an element
/// for each scalar in `range` of the store's flat layout (all parameters one after the other).
/// `name` is for error messages.
pub(crate) fn check_buffers<'a>(
    name: &str,
    store: &ParameterStore,
    range: &Range<usize>,
    buffers: impl IntoIterator<Item = &'a Tensor>,
) -> Result<()> {
    crate::device::check(store.device())?;
    if range.end > store.len() {
        candle_core::bail!(
            "{name}: the range {range:?} goes past the end of the {} parameters",
            store.len()
        );
    }
    for buffer in buffers {
        if buffer.elem_count() != range.len() {
            candle_core::bail!(
                "{name}: a buffer of {} values does not fit {} parameters",
                buffer.elem_count(),
                range.len()
            );
        }
    }
    Ok(())
}

/// Calls `update` for each piece of the parameters in `range` of the store's flat layout, except
/// frozen parameters. Pieces are processed in parallel, in one pass over memory on the host.
///
/// The [profile](crate::profile) records the time under `name`.
///
/// # Shapes
/// `gradient` and each tensor of `state` are f32, `(range.len(),)`.
///
/// # Errors
/// If a buffer does not have `range.len()` elements, or is not on the host.
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
            // There is a task for each parameter, because most parameters are too small to be
            // divided between threads.
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
                        // SAFETY: parameters have disjoint ranges, and so have the chunks of a
                        // parameter.
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

/// Calls `work` with what `lent` already contains, followed by the elements of all `tensors` in
/// order. Each recursive call borrows one tensor, so that all of them are still borrowed when
/// `work` runs.
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
