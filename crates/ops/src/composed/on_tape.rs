//! Operations in plain Candle as single operations of the tape, for trying an idea in a model
//! before it is fused.
//!
//! The operation gets copies of its inputs that Candle tracks, and the tape records its result as
//! that of one operation. In the backward pass Candle differentiates from this result to these
//! inputs, and no further. The price is Candle's: every intermediate result is kept, and each
//! intermediate gradient is allocated and added to. Without a tape, the operation is simply called.
//!
//! A gate that is not among the fused activations, tried in a network:
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use taper_ops::{Gradients, LinearSpec, ParameterStore, Tape, composed, linear};
//!
//! # fn main() -> candle_core::Result<()> {
//! let mut store = ParameterStore::new(&Device::Cpu);
//! let weight = store.add("weight", &[3, 2], vec![0.1, -0.4, 0.3, 0.2, -0.5, 0.6])?;
//! let slope = store.add("slope", &[3], vec![0.5, 1.0, 2.0])?;
//! let x = Tensor::new(&[[1.0_f32, 2.0], [3.0, -1.0]], &Device::Cpu)?;
//!
//! let tape = Tape::new();
//! let hidden = linear(Some(&tape), &x, &weight, None, None, &LinearSpec::default())?; // (2, 3)
//! let gated = composed::on_tape(Some(&tape), "tanh gate", &[&hidden, &slope], |inputs| {
//!     let (hidden, slope) = (&inputs[0], &inputs[1]);
//!     hidden.mul(&hidden.broadcast_mul(slope)?.tanh()?)
//! })?; // (2, 3)
//! let loss = composed::on_tape(Some(&tape), "sum", &[&gated], |inputs| inputs[0].sum_all())?;
//!
//! let mut gradients = Gradients::new(&store)?;
//! tape.backward(&loss, &store, &mut gradients)?;
//! assert_eq!(gradients.flat()?.dims(), [9]);
//! # Ok(())
//! # }
//! ```

use crate::float::Float;
use crate::host::for_float;
use crate::tape::{Adjoints, Slot, Tape, is_fused};
use candle_core::{Result, Tensor, TensorId, Var};
use std::collections::HashMap;

/// Calls `operation` on `inputs`; with a tape, records it there as one operation called `name`.
///
/// `operation` gets tensors in the order of `inputs`. They must include everything that it is
/// differentiated by, including parameters; constants may be captured.
///
/// # Shapes
/// The shapes of `operation`.
///
/// # Errors
/// The errors of `operation`; in the backward pass, if it has captured a parameter or a result on
/// the tape, whose gradient would be lost.
pub fn on_tape(
    tape: Option<&Tape>,
    name: &'static str,
    inputs: &[&Tensor],
    operation: impl FnOnce(&[Tensor]) -> Result<Tensor>,
) -> Result<Tensor> {
    let float: Vec<&Tensor> = inputs.iter().filter(|x| x.dtype().is_float()).copied().collect();
    let is_fused = is_fused(tape, &float)?;
    let Some(tape) = tape.filter(|_| is_fused) else {
        let inputs: Vec<Tensor> = inputs.iter().map(|&x| x.clone()).collect();
        return operation(&inputs)?.contiguous();
    };
    // One for each distinct input: its gradient is the sum over all uses.
    let mut tracked = HashMap::new();
    for &input in inputs {
        tracked.insert(input.id(), (Slot::from(input), stand_in(tape, input)?));
    }
    let copies: Vec<Tensor> = inputs.iter().map(|x| tracked[&x.id()].1.clone()).collect();
    let result = crate::profile::time(name, || operation(&copies)?.contiguous())?;
    let out = result.detach();
    for_float!(&out, T => {
        tape.record::<T>(name, &float, &out, move |adjoint, adjoints| {
            go_back(name, &result, adjoint, &tracked, adjoints)
        })
    })?;
    Ok(out)
}

/// Stand-in for an input of the operation: a tensor that Candle tracks if the tape needs its
/// gradient.
fn stand_in(tape: &Tape, input: &Tensor) -> Result<Tensor> {
    if tape.knows(input) {
        Ok(Var::from_tensor(&input.detach())?.into_inner())
    } else {
        Ok(input.clone())
    }
}

fn go_back<T: Float>(
    name: &str,
    result: &Tensor,
    adjoint: Vec<T>,
    tracked: &HashMap<TensorId, (Slot, Tensor)>,
    adjoints: &mut Adjoints<'_>,
) -> Result<()> {
    let adjoint = Tensor::from_vec(adjoint, result.shape(), result.device())?;
    let gradients = result.mul(&adjoint)?.sum_all()?.backward()?;
    if let Some(lost) =
        gradients.get_ids().find(|&id| adjoints.knows(*id) && !tracked.contains_key(id))
    {
        candle_core::bail!(
            "{name}: the operation uses {}, which is not among its inputs: its gradient would be \
             lost",
            adjoints.describe(*lost)
        );
    }
    for (slot, copy) in tracked.values() {
        if adjoints.wants(*slot)
            && let Some(gradient) = gradients.get(copy)
        {
            let gradient = gradient.flatten_all()?;
            for_float!(&gradient, U => adjoints.give(*slot, gradient.to_vec1::<U>()?))?;
        }
    }
    Ok(())
}
