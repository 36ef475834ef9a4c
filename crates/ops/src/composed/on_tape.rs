//! Records operations that are composed of Candle's as single operations on a [`Tape`] (Taper's
//! record of operations for the backward pass). This is for operations without a fused kernel: new
//! ideas, and operations on other devices or types.
//!
//! The composed operation gets copies of its inputs that Candle tracks. In the backward pass,
//! Candle differentiates from the operation's result back to these copies, and no further. This has
//! the costs of Candle's autodiff: every intermediate result is kept, and each intermediate
//! gradient is allocated and added to. Without a tape, the operation is simply called.
//!
//! Example: a gate that is not among the fused activations, tried in a network.
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

use crate::tape::{Adjoints, Slot, Tape};
use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, Layout, MetalStorage, Result, Shape, Tensor, TensorId, Var,
};
use std::collections::HashMap;

/// Calls `operation` on `inputs`. If there is a tape, records it there as a single operation called
/// `name`.
///
/// `operation` gets copies of `inputs`, in the same order. `inputs` must include every tensor that
/// gets a gradient, including parameters; the closure can capture constants.
///
/// # Shapes
/// The shapes of `operation`.
///
/// # Errors
/// If `operation` fails. The backward pass returns an error if `operation` has captured a parameter
/// or a result on the tape, because its gradient would be lost.
pub fn on_tape(
    tape: Option<&Tape>,
    name: &'static str,
    inputs: &[&Tensor],
    operation: impl FnOnce(&[Tensor]) -> Result<Tensor>,
) -> Result<Tensor> {
    inputs.iter().try_for_each(|x| crate::device::check(x.device()))?;
    let Some(tape) = tape else {
        let inputs: Vec<Tensor> = inputs.iter().map(|&x| x.clone()).collect();
        return operation(&inputs)?.contiguous();
    };
    let float: Vec<&Tensor> = inputs.iter().filter(|x| x.dtype().is_float()).copied().collect();
    // Makes one copy of each distinct input, whose gradient is the sum over all uses of the input.
    let mut tracked = HashMap::new();
    for &input in inputs {
        tracked.insert(input.id(), (Slot::from(input), stand_in(tape, input)?));
    }
    let copies: Vec<Tensor> = inputs.iter().map(|x| tracked[&x.id()].1.clone()).collect();
    let result = crate::profile::time(name, || operation(&copies)?.contiguous())?;
    let out = result.detach();
    tape.record_tensors(name, &float, &out, move |adjoint, adjoints| {
        go_back(name, &result, adjoint, &tracked, adjoints)
    })?;
    Ok(out)
}

/// Returns a copy of an input for the operation: a tensor that Candle tracks if the tape needs its
/// gradient.
fn stand_in(tape: &Tape, input: &Tensor) -> Result<Tensor> {
    if tape.knows(input) {
        Ok(Var::from_tensor(&input.detach())?.into_inner())
    } else {
        Ok(input.clone())
    }
}

fn go_back(
    name: &str,
    result: &Tensor,
    adjoint: Tensor,
    tracked: &HashMap<TensorId, (Slot, Tensor)>,
    adjoints: &mut Adjoints<'_>,
) -> Result<()> {
    let mut gradients = result.apply_op1(Root(adjoint))?.backward()?;
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
            && let Some(gradient) = gradients.remove(copy)
        {
            adjoints.give_tensor(*slot, gradient.contiguous()?)?;
        }
    }
    Ok(())
}

/// Operation that maps the result of a composed operation to a scalar. The gradient of this scalar
/// with respect to the result is the given tensor, which is the adjoint of the result. This is
/// needed because Candle's backward pass can begin only with a scalar.
struct Root(Tensor);

impl Root {
    fn zero<S: BackendStorage>(storage: &S) -> Result<(S, Shape)>
    where
        S::Device: BackendDevice<Storage = S>,
    {
        let shape = Shape::from(());
        Ok((storage.device().zeros_impl(&shape, storage.dtype())?, shape))
    }
}

impl CustomOp1 for Root {
    fn name(&self) -> &'static str {
        "root"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Self::zero(storage)
    }

    fn cuda_fwd(&self, storage: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        Self::zero(storage)
    }

    fn metal_fwd(&self, storage: &MetalStorage, _: &Layout) -> Result<(MetalStorage, Shape)> {
        Self::zero(storage)
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, _: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(self.0.clone()))
    }
}
