//! Gradients of parameters, added where they live: in the flat buffer.
//!
//! Candle adds the gradient of each parameter to zeros, and the parts would then be copied into the
//! flat buffer, and that added to what was there. Operations that can add ask here where to, and
//! give Candle nothing.

use super::launch::{address_of, launch, walking_in_pieces};
use crate::tape::{Parameter, ParameterStore};
use candle_core::{DType, Result, Tensor, TensorId, bail};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

thread_local! {
    /// Buffer of the backward pass that this thread runs. A GPU belongs to one thread.
    static CURRENT: RefCell<Option<FlatGradients>> = const { RefCell::new(None) };
}

struct FlatGradients {
    flat: Tensor,
    /// Offset and length of each parameter.
    places: HashMap<TensorId, (usize, usize)>,
    /// Parameters to which something was added.
    touched: HashSet<TensorId>,
}

/// Runs a backward pass whose operations may add to `flat`, which has the layout of `store`;
/// returns its result, and the parameters that were added to.
///
/// # Errors
/// Those of `backward`.
pub(crate) fn adding_to<T>(
    flat: &Tensor,
    store: &ParameterStore,
    backward: impl FnOnce() -> Result<T>,
) -> Result<(T, HashSet<TensorId>)> {
    let place = |parameter: &Parameter| {
        (parameter.var().as_tensor().id(), (parameter.offset(), parameter.len()))
    };
    let places = store.parameters().iter().map(place).collect();
    let current = FlatGradients { flat: flat.clone(), places, touched: HashSet::new() };
    CURRENT.set(Some(current));
    let result = backward();
    let current = CURRENT.take();
    Ok((result?, current.map(|current| current.touched).unwrap_or_default()))
}

/// Part of the flat buffer that the gradient of `parameter` is to be added to; `None` if `parameter`
/// is no parameter of a store whose backward pass this is.
///
/// # Shapes
/// As `parameter`, in f32.
///
/// # Errors
/// None that is expected.
pub(super) fn part_of(parameter: &Tensor) -> Result<Option<Tensor>> {
    CURRENT.with_borrow_mut(|current| {
        let Some(current) = current else { return Ok(None) };
        let Some(&(offset, len)) = current.places.get(&parameter.id()) else { return Ok(None) };
        current.touched.insert(parameter.id());
        current.flat.narrow(0, offset, len)?.reshape(parameter.shape()).map(Some)
    })
}

/// Adds `x` to the numbers of `flat` from `offset` on, in place.
///
/// # Errors
/// When the kernel cannot be queued, or `flat` is shorter.
pub(crate) fn add_at(flat: &Tensor, offset: usize, x: &Tensor) -> Result<()> {
    let x = x.contiguous()?;
    let (part, count) = (flat.narrow(0, offset, x.elem_count())?, x.elem_count());
    if x.dtype() != DType::F32 || flat.dtype() != DType::F32 {
        bail!("a gradient in {:?} for a buffer in {:?}", x.dtype(), flat.dtype());
    }
    let arguments = [address_of(&x)?.into(), address_of(&part)?.into(), (count as u64).into()];
    let grid = walking_in_pieces(count, DType::F32);
    // SAFETY: both have `count` numbers.
    unsafe { launch(flat.device().as_cuda_device()?, "add_to", grid, &arguments) }
}
