//! Reverse-mode differentiation of operations, on every device.
//!
//! Candle's own autodiff allocates zeros for every edge of the graph and adds to them. It keeps
//! every activation until the whole graph is dropped, and stores each parameter's gradient in a
//! separate tensor. Here, each operation records its backward function, and [`Tape::backward`]
//! calls these functions in reverse order. Each function computes the gradients with respect to the
//! operation's inputs (their adjoints). It adds these gradients to the gradients that other
//! operations have computed for the same inputs. Then it drops the tensors that the operation kept.
//! The adjoint of a parameter is collected in a flat buffer, which has the gradients of all
//! parameters one after the other. On the host, results that cost little to compute are recomputed
//! instead of kept (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost").
//!
//! The backward function of a fused operation on the host takes the adjoint as a list of numbers
//! ([`Tape::record`]). All other backward functions take it as a tensor ([`Tape::record_tensors`]).
//! Values stay Candle tensors, and Candle's own differentiation still works. If there is no tape
//! and Candle tracks an input, our operations are composed of Candle's operations.

mod adjoints;
mod gradients;
mod parameters;
mod watch;

pub(crate) use adjoints::Adjoint;
pub use adjoints::Adjoints;
use adjoints::{Flat, FlatValues};
pub use gradients::Gradients;
pub use parameters::{ElementFactors, Parameter, ParameterStore, scalars};
use watch::Watch;
pub use watch::WhenFinal;

use crate::float::Float;
use candle_core::{DType, Result, Tensor, TensorId};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Whether the host's fused kernels support these inputs; if not, [kernels of a
/// device](crate::kernels) or Candle's operations are used.
///
/// The inputs must be on the host, with element type f32 or f64. Without a tape, Candle must not
/// track any of them, because it could not differentiate a kernel.
///
/// # Errors
/// If the calling thread is not allowed to use the inputs' device.
pub(crate) fn is_fused(tape: Option<&Tape>, inputs: &[&Tensor]) -> Result<bool> {
    inputs.iter().try_for_each(|x| crate::device::check(x.device()))?;
    let has_kernel =
        |x: &&Tensor| x.device().is_cpu() && matches!(x.dtype(), DType::F32 | DType::F64);
    Ok(inputs.iter().all(has_kernel) && (tape.is_some() || !inputs.iter().any(|x| x.track_op())))
}

/// Backward function of an operation: computes the adjoints of the operation's inputs from the
/// adjoint of its result. (The adjoint of a tensor is the gradient of the loss with respect to it.)
type Backward = Box<dyn FnOnce(Adjoint, &mut Adjoints<'_>) -> Result<()>>;

/// Function that recomputes a tensor.
type Again = Rc<dyn Fn() -> Result<Tensor>>;

struct Node {
    name: &'static str,
    output: TensorId,
    backward: Backward,
}

/// Identity and size of a tensor, without its values. It says to which tensor an adjoint belongs.
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

/// A tensor that the backward function of an operation needs: kept, or recomputed on demand.
pub(crate) struct SavedTensor {
    slot: Slot,
    value: Value,
}

enum Value {
    Here(Tensor),
    Again(Again),
}

impl SavedTensor {
    /// Returns the tensor. If it was not kept, each call recomputes it.
    pub(crate) fn value(&self) -> Result<Tensor> {
        match &self.value {
            Value::Here(tensor) => Ok(tensor.clone()),
            Value::Again(again) => again(),
        }
    }
}

impl From<&SavedTensor> for Slot {
    fn from(kept: &SavedTensor) -> Self {
        kept.slot
    }
}

/// Record of the operations of one forward pass, in the order of their execution.
#[derive(Default)]
pub struct Tape {
    nodes: RefCell<Vec<Node>>,
    outputs: RefCell<HashSet<TensorId>>,
    /// Results of the operations recorded on the outer tape if this tape was made by
    /// [`Tape::for_segment`]; otherwise empty. The segment will be added to the outer tape.
    outer: HashSet<TensorId>,
    again: RefCell<HashMap<TensorId, Again>>,
    /// For each variable, the index of the first operation that uses it. Once the backward pass has
    /// processed this operation, nothing more is added to the variable's gradient.
    first_uses: RefCell<HashMap<TensorId, usize>>,
}

impl std::fmt::Debug for Tape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tape").field("operations", &self.nodes.borrow().len()).finish()
    }
}

impl Tape {
    /// Makes an empty tape.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes an empty tape for a segment. A segment is a sequence of operations, some of them on
    /// results of this tape. The operations are recorded on the new tape, which is then
    /// [added](Tape::record_segment) to this tape as a single operation.
    #[must_use]
    pub fn for_segment(&self) -> Self {
        let outer = self.outer.union(&self.outputs.borrow()).copied().collect();
        Self { outer, ..Self::default() }
    }

    /// Whether no operation has been recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outputs.borrow().is_empty()
    }

    /// Whether `tensor` is the result of an operation recorded on this tape or, if this tape is
    /// [for a segment](Tape::for_segment), on the outer tape.
    #[must_use]
    pub fn knows(&self, tensor: &Tensor) -> bool {
        self.outputs.borrow().contains(&tensor.id()) || self.outer.contains(&tensor.id())
    }

    /// True if gradients flow to `tensor`, because it is a variable or depends on a variable.
    pub(crate) fn needs(&self, tensor: &Tensor) -> bool {
        tensor.is_variable() || self.knows(tensor)
    }

    /// Records the operation `name`, which computed `output` from `inputs`. `backward` is its
    /// backward function, which receives the adjoint of `output` as a list of elements on the host.
    /// If `output` depends on no variable, nothing is recorded.
    ///
    /// # Errors
    /// Errors of [`Tape::record_adjoint`].
    pub(crate) fn record<T: Float>(
        &self,
        name: &'static str,
        inputs: &[&Tensor],
        output: &Tensor,
        backward: impl FnOnce(Vec<T>, &mut Adjoints<'_>) -> Result<()> + 'static,
    ) -> Result<()> {
        self.record_adjoint(name, inputs, output, |adjoint, adjoints| {
            backward(adjoint.elements::<T>()?, adjoints)
        })
    }

    /// Like [`Tape::record`], but `backward` works on tensors, on any device and of any type. The
    /// adjoint that it receives is contiguous and has the shape of `output`.
    ///
    /// # Errors
    /// Errors of [`Tape::record_adjoint`].
    pub(crate) fn record_tensors(
        &self,
        name: &'static str,
        inputs: &[&Tensor],
        output: &Tensor,
        backward: impl FnOnce(Tensor, &mut Adjoints<'_>) -> Result<()> + 'static,
    ) -> Result<()> {
        let (shape, dtype, device) =
            (output.shape().clone(), output.dtype(), output.device().clone());
        self.record_adjoint(name, inputs, output, move |adjoint, adjoints| {
            backward(adjoint.tensor(&shape, dtype, &device)?, adjoints)
        })
    }

    /// Like [`Tape::record`], but `backward` receives the adjoint in any of the forms of
    /// [`Adjoint`].
    ///
    /// # Errors
    /// If Candle tracks an input that is not the result of a recorded operation. The backward pass
    /// would end at this input, and gradients would be lost.
    pub(crate) fn record_adjoint(
        &self,
        name: &'static str,
        inputs: &[&Tensor],
        output: &Tensor,
        backward: impl FnOnce(Adjoint, &mut Adjoints<'_>) -> Result<()> + 'static,
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
        if inputs.iter().any(|input| self.needs(input)) {
            self.push(name, inputs, output, backward);
        }
        Ok(())
    }

    fn push(
        &self,
        name: &'static str,
        inputs: &[&Tensor],
        output: &Tensor,
        backward: impl FnOnce(Adjoint, &mut Adjoints<'_>) -> Result<()> + 'static,
    ) {
        self.outputs.borrow_mut().insert(output.id());
        self.use_first(inputs.iter().filter(|input| input.is_variable()).map(|input| input.id()));
        let backward = Box::new(backward);
        self.nodes.borrow_mut().push(Node { name, output: output.id(), backward });
    }

    /// Notes that the next operation to be recorded uses these variables.
    fn use_first(&self, variables: impl Iterator<Item = TensorId>) {
        let (place, mut uses) = (self.nodes.borrow().len(), self.first_uses.borrow_mut());
        variables.for_each(|variable| {
            uses.entry(variable).or_insert(place);
        });
    }

    /// Sets `again` as the function that recomputes `output`. Operations that [keep](Tape::keep)
    /// `output` afterwards keep this function instead of the values. Meant for results that take
    /// little longer to compute than to read.
    pub(crate) fn recompute(&self, output: &Tensor, again: impl Fn() -> Result<Tensor> + 'static) {
        self.again.borrow_mut().insert(output.id(), Rc::new(again));
    }

    /// Records `output` as the result of a segment of operations on `inputs`. The operations were
    /// recorded on the tape `first`, made by [`Tape::for_segment`], and are now dropped. In the
    /// backward pass, `again` repeats them on a separate tape, with the same result. The backward
    /// pass then continues through that tape. If a chain of n layers is divided into segments of √n
    /// layers, memory grows only with √n (Chen et al. 2016, section 3).
    ///
    /// # Errors
    /// This call itself always succeeds. If `again` fails later, in the backward pass, the backward
    /// pass returns the error of `again`.
    pub fn record_segment(
        &self,
        name: &'static str,
        inputs: &[&Tensor],
        output: &Tensor,
        first: Self,
        again: impl FnOnce() -> Result<(Self, Tensor)> + 'static,
    ) -> Result<()> {
        // A segment without any recorded operation depends on no variable. Looking at `inputs`
        // would not be enough: operations of the segment can use variables that are not inputs.
        if first.is_empty() {
            return Ok(());
        }
        self.use_first(first.first_uses.into_inner().into_keys());
        self.push(name, inputs, output, move |adjoint, adjoints| {
            let (inner, output) = again()?;
            adjoints.outputs.extend(inner.outputs.take());
            adjoints.values.insert(output.id(), adjoint);
            run(inner.take(), adjoints, None)
        });
        Ok(())
    }

    /// Keeps `tensor` for the backward pass, or the function that [recomputes](Tape::recompute) it.
    pub(crate) fn keep(&self, tensor: &Tensor) -> SavedTensor {
        let value = match self.again.borrow().get(&tensor.id()) {
            Some(again) => Value::Again(again.clone()),
            None => Value::Here(tensor.clone()),
        };
        SavedTensor { slot: tensor.into(), value }
    }

    /// Removes all operations from the tape, and returns them in order. Then only the returned list
    /// keeps their tensors alive.
    fn take(&self) -> Vec<Node> {
        self.again.take();
        self.nodes.take()
    }

    /// Adds the gradient of `root`, a scalar, with respect to each parameter of `store` to
    /// `gradients`.
    ///
    /// # Errors
    /// If a parameter gets no gradient: the graph does not connect it to the root, and training
    /// would silently go wrong.
    pub fn backward(
        self,
        root: &Tensor,
        store: &ParameterStore,
        gradients: &mut Gradients,
    ) -> Result<()> {
        self.backward_watched(root, store, gradients, None)
    }

    /// Like [`Tape::backward`]. On the host, `when_final` is also called during the backward pass.
    /// Gradients become final from the end of the flat buffer to its beginning. Each call reports
    /// that more of them are final. Parameters that no operation of this pass uses are never
    /// reported as final, nor is any parameter before them.
    ///
    /// # Errors
    /// Errors of [`Tape::backward`], and errors of `when_final`.
    pub fn backward_watched(
        self,
        root: &Tensor,
        store: &ParameterStore,
        gradients: &mut Gradients,
        mut when_final: Option<WhenFinal<'_>>,
    ) -> Result<()> {
        let uses = self.first_uses.take();
        // The closure's type allows several calls, but there is only one.
        let mut recorded = Some((self.outputs.take(), self.take()));
        gradients.receive(store, |values, written| {
            let is_watched = matches!(values, FlatValues::Host(_));
            let touched = vec![false; store.parameters().len()];
            let flat = Flat { store, values, written, touched, final_from: store.len() };
            let (outputs, nodes) = recorded.take().unwrap_or_default();
            let mut adjoints = Adjoints { values: HashMap::new(), outputs, parameters: Some(flat) };
            adjoints.values.insert(root.id(), Adjoint::One);
            let tell = when_final.as_mut().filter(|_| is_watched);
            let watch = tell.map(|tell| Watch::new(store, &uses, &mut **tell));
            run(nodes, &mut adjoints, watch)?;
            adjoints.into_parts()
        })
    }

    /// Computes the gradients of the scalar `Σ root ⊙ adjoint` with respect to all variables that
    /// contribute to `root`. Meant for checks of single operations.
    ///
    /// # Errors
    /// If the shape of `adjoint` differs from that of `root`, and errors of the operations.
    pub fn differentiate(self, root: &Tensor, adjoint: &Tensor) -> Result<Adjoints<'static>> {
        if adjoint.shape() != root.shape() {
            candle_core::bail!(
                "an adjoint of shape {:?} does not fit a result of shape {:?}",
                adjoint.shape(),
                root.shape()
            );
        }
        let mut adjoints =
            Adjoints { values: HashMap::new(), outputs: self.outputs.take(), parameters: None };
        adjoints.values.insert(root.id(), Adjoint::Tensor(adjoint.contiguous()?));
        run(self.take(), &mut adjoints, None)?;
        Ok(adjoints)
    }
}

fn run(nodes: Vec<Node>, adjoints: &mut Adjoints<'_>, mut watch: Option<Watch<'_>>) -> Result<()> {
    for (place, node) in nodes.into_iter().enumerate().rev() {
        // A result that does not contribute to the root has no adjoint.
        if let Some(adjoint) = adjoints.values.remove(&node.output) {
            crate::profile::time(node.name, || (node.backward)(adjoint, adjoints))?;
        }
        if let Some(watch) = &mut watch {
            watch.passed(place, adjoints)?;
        }
    }
    Ok(())
}
