//! Reverse-mode differentiation of the fused operations on the host.
//!
//! Candle's own autodiff allocates zeros for every edge of the graph and adds to them on one
//! thread, keeps every activation until the whole graph is dropped, and knows no place of a
//! parameter's gradient but a tensor of its own. Here an operation notes how to go back;
//! [`Tape::backward`] walks the notes in reverse, each in turn adding to the adjoints of its inputs
//! *in place* and then dropping what it kept. The adjoint of a parameter is its part of the flat
//! gradient buffer. What costs little to compute is not kept but computed again (Chen et al. 2016,
//! "Training Deep Nets with Sublinear Memory Cost").
//!
//! Values stay Candle tensors, and operations that Candle differentiates are unaffected: without a
//! tape, a tensor that Candle tracks takes the composed path.

mod adjoints;
mod gradients;
mod parameters;
mod watch;

pub use adjoints::Adjoints;
use adjoints::Flat;
pub use gradients::Gradients;
pub use parameters::{Parameter, ParameterStore};
use watch::Watch;
pub use watch::WhenFinal;

use crate::float::Float;
use crate::host::for_float;
use candle_core::{CpuStorage, DType, Result, Tensor, TensorId, WithDType};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Whether the fused kernels serve these inputs; where not, the composed path does.
///
/// They live on the host and have an element type with kernels. Without a tape nothing may be
/// tracked by Candle, which could not differentiate a kernel.
///
/// # Errors
/// When the calling thread may not use their device.
pub(crate) fn is_fused(tape: Option<&Tape>, inputs: &[&Tensor]) -> Result<bool> {
    inputs.iter().try_for_each(|x| crate::device::check(x.device()))?;
    let has_kernel =
        |x: &&Tensor| x.device().is_cpu() && matches!(x.dtype(), DType::F32 | DType::F64);
    Ok(inputs.iter().all(has_kernel) && (tape.is_some() || !inputs.iter().any(|x| x.track_op())))
}

/// How to go back through one operation: from the adjoint of its result to those of its inputs.
type Backward = Box<dyn FnOnce(CpuStorage, &mut Adjoints<'_>) -> Result<()>>;

/// How to compute a tensor once more.
type Again = Rc<dyn Fn() -> Result<Tensor>>;

struct Node {
    name: &'static str,
    output: TensorId,
    backward: Backward,
}

/// Where an adjoint goes: a tensor without its values, which need not live on for that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    id: TensorId,
    count: usize,
    is_variable: bool,
}

impl From<&Tensor> for Slot {
    fn from(tensor: &Tensor) -> Self {
        Self { id: tensor.id(), count: tensor.elem_count(), is_variable: tensor.is_variable() }
    }
}

/// A tensor that an operation needs on its way back.
pub(crate) struct Kept {
    slot: Slot,
    value: Value,
}

enum Value {
    Here(Tensor),
    Again(Again),
}

impl Kept {
    /// The tensor. Where it was not kept, each call computes it again.
    pub(crate) fn value(&self) -> Result<Tensor> {
        match &self.value {
            Value::Here(tensor) => Ok(tensor.clone()),
            Value::Again(again) => again(),
        }
    }
}

impl From<&Kept> for Slot {
    fn from(kept: &Kept) -> Self {
        kept.slot
    }
}

/// What happened in one forward pass, in order.
#[derive(Default)]
pub struct Tape {
    nodes: RefCell<Vec<Node>>,
    outputs: RefCell<HashSet<TensorId>>,
    again: RefCell<HashMap<TensorId, Again>>,
    /// The first operation on each variable, by its place: on the way back, nothing is added to the
    /// variable's gradient after it.
    first_uses: RefCell<HashMap<TensorId, usize>>,
}

impl std::fmt::Debug for Tape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tape").field("operations", &self.nodes.borrow().len()).finish()
    }
}

impl Tape {
    /// An empty tape.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outputs.borrow().is_empty()
    }

    /// Whether a result of a recorded operation is `tensor`.
    #[must_use]
    pub fn knows(&self, tensor: &Tensor) -> bool {
        self.outputs.borrow().contains(&tensor.id())
    }

    /// Notes how to go back from `output`, which the operation `name` made of `inputs`.
    ///
    /// # Errors
    /// When Candle tracks an input that no recorded operation made: the tape could not follow it,
    /// and its gradient would be lost.
    pub(crate) fn record<T: Float>(
        &self,
        name: &'static str,
        inputs: &[&Tensor],
        output: &Tensor,
        backward: impl FnOnce(Vec<T>, &mut Adjoints<'_>) -> Result<()> + 'static,
    ) -> Result<()> {
        if let Some(lost) = inputs
            .iter()
            .find(|input| input.track_op() && !input.is_variable() && !self.knows(input))
        {
            candle_core::bail!(
                "{name}: a tensor of shape {:?} comes from an operation that the tape does not \
                 know",
                lost.shape()
            );
        }
        self.outputs.borrow_mut().insert(output.id());
        self.use_first(inputs.iter().filter(|input| input.is_variable()).map(|input| input.id()));
        let backward = Box::new(|adjoint: CpuStorage, adjoints: &mut Adjoints<'_>| {
            backward(T::cpu_storage_data(adjoint)?, adjoints)
        });
        self.nodes.borrow_mut().push(Node { name, output: output.id(), backward });
        Ok(())
    }

    /// Notes that the operation that is recorded next is on these variables.
    fn use_first(&self, variables: impl Iterator<Item = TensorId>) {
        let (place, mut uses) = (self.nodes.borrow().len(), self.first_uses.borrow_mut());
        variables.for_each(|variable| {
            uses.entry(variable).or_insert(place);
        });
    }

    /// Says how to compute `output` again: whoever [keeps](Tape::keep) it after this takes no
    /// memory for it. For results that cost little more than to read them.
    pub(crate) fn recompute(&self, output: &Tensor, again: impl Fn() -> Result<Tensor> + 'static) {
        self.again.borrow_mut().insert(output.id(), Rc::new(again));
    }

    /// Notes `output` as the result of operations on `inputs` that were noted on the tape `first`
    /// and are forgotten: on the way back `again` runs them on a tape of its own, which has to give the same
    /// result, and goes back through that (Chen et al. 2016, section 3: of a chain of n layers in
    /// segments of √n, what is kept grows with √n).
    ///
    /// # Errors
    /// As [`Tape::backward`]; on the way back, those of `again`.
    pub fn record_segment(
        &self,
        name: &'static str,
        inputs: &[&Tensor],
        output: &Tensor,
        first: Self,
        again: impl FnOnce() -> Result<(Self, Tensor)> + 'static,
    ) -> Result<()> {
        fn note<T: Float>(
            tape: &Tape,
            name: &'static str,
            (inputs, output): (&[&Tensor], &Tensor),
            again: impl FnOnce() -> Result<(Tape, Tensor)> + 'static,
        ) -> Result<()> {
            tape.record::<T>(name, inputs, output, move |adjoint, adjoints| {
                let (inner, output) = again()?;
                adjoints.outputs.extend(inner.outputs.take());
                adjoints.values.insert(output.id(), T::to_cpu_storage_owned(adjoint));
                run(inner.take(), adjoints, None)
            })
        }
        self.use_first(first.first_uses.into_inner().into_keys());
        for_float!(output, T => note::<T>(self, name, (inputs, output), again))
    }

    /// `tensor`, for the way back.
    pub(crate) fn keep(&self, tensor: &Tensor) -> Kept {
        let value = match self.again.borrow().get(&tensor.id()) {
            Some(again) => Value::Again(again.clone()),
            None => Value::Here(tensor.clone()),
        };
        Kept { slot: tensor.into(), value }
    }

    /// The operations in their order; nothing else keeps their tensors from here on.
    fn take(&self) -> Vec<Node> {
        self.again.take();
        self.nodes.take()
    }

    /// Adds the gradient of `root`, a scalar, by every parameter to `gradients`.
    ///
    /// # Errors
    /// When a parameter gets no gradient: somewhere the graph is cut, and training would go wrong
    /// in silence.
    pub fn backward(
        self,
        root: &Tensor,
        store: &ParameterStore,
        gradients: &mut Gradients,
    ) -> Result<()> {
        self.backward_watched(root, store, gradients, None)
    }

    /// As [`Tape::backward`]; `when_final` is told on the way what is final, as more and more of the
    /// flat layout is, from its end on. What no operation of this pass comes to is never told.
    ///
    /// # Errors
    /// As [`Tape::backward`], and those of `when_final`.
    pub fn backward_watched(
        self,
        root: &Tensor,
        store: &ParameterStore,
        gradients: &mut Gradients,
        mut when_final: Option<WhenFinal<'_>>,
    ) -> Result<()> {
        gradients.update(|flat, written| {
            let mut adjoints = Adjoints {
                values: HashMap::new(),
                outputs: self.outputs.take(),
                parameters: Some(Flat {
                    store,
                    values: flat,
                    written,
                    touched: vec![false; store.parameters().len()],
                    final_from: store.len(),
                }),
            };
            adjoints.values.insert(root.id(), f32::to_cpu_storage_owned(vec![1.0]));
            let uses = self.first_uses.take();
            let watch = when_final.as_mut().map(|tell| Watch::new(store, &uses, &mut **tell));
            run(self.take(), &mut adjoints, watch)?;
            let touched = adjoints.parameters.map(|flat| flat.touched).unwrap_or_default();
            match store.parameters().iter().zip(touched).find(|(_, touched)| !touched) {
                Some((parameter, _)) => Err(gradients::no_gradient(parameter)),
                None => Ok(()),
            }
        })
    }

    /// The gradients of `Σ root ⊙ adjoint` by the variables that went into it: for checks of single
    /// operations.
    ///
    /// # Errors
    /// When `adjoint` has another type or shape than `root`.
    pub fn differentiate(self, root: &Tensor, adjoint: &Tensor) -> Result<Adjoints<'static>> {
        if adjoint.shape() != root.shape() {
            candle_core::bail!(
                "an adjoint of shape {:?} for a result of shape {:?}",
                adjoint.shape(),
                root.shape()
            );
        }
        let mut adjoints =
            Adjoints { values: HashMap::new(), outputs: self.outputs.take(), parameters: None };
        let flat = adjoint.flatten_all()?;
        let seed = for_float!(root, T => T::to_cpu_storage_owned(flat.to_vec1::<T>()?));
        adjoints.values.insert(root.id(), seed);
        run(self.take(), &mut adjoints, None)?;
        Ok(adjoints)
    }
}

fn run(nodes: Vec<Node>, adjoints: &mut Adjoints<'_>, mut watch: Option<Watch<'_>>) -> Result<()> {
    for (place, node) in nodes.into_iter().enumerate().rev() {
        // A result on which the root does not depend has no adjoint.
        if let Some(adjoint) = adjoints.values.remove(&node.output) {
            crate::profile::time(node.name, || (node.backward)(adjoint, adjoints))?;
        }
        if let Some(watch) = &mut watch {
            watch.passed(place, adjoints)?;
        }
    }
    Ok(())
}
