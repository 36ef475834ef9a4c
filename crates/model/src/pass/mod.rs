//! One pass through a model: for training, with dropout and gradients, or for evaluation.

pub(crate) mod loss_spec;
pub(crate) mod recorder;
pub(crate) mod routing;

use crate::objective::LossOutput;
use candle_core::{Device, Result, Tensor};
use recorder::{AttentionRecord, ProjectionRecord, Recorder, Records, StatePoint, StateRecord};
use routing::Routing;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use taper_ops::rng::mix;
use taper_ops::{
    Dropout, Gradients, PackedWeights, ParameterStore, StateGradients, Tape, WhenFinal, composed,
};

/// One pass through a model.
#[derive(Debug, Default)]
pub struct Pass {
    /// Key of the random numbers of this pass's dropout; `None` in evaluation.
    dropout_key: Option<u64>,
    /// Index of the update to which this pass belongs; `None` in evaluation.
    step: Option<u64>,
    /// Tape, the record of operations for the backward pass; `None` in evaluation, or if gradients
    /// come from Candle's autodiff.
    tape: Option<Tape>,
    /// True if stacks keep only the inputs of some layers, and compute everything else again in the
    /// backward pass.
    checkpoints: bool,
    /// Constant weights, packed: arranged in the order in which matrix kernels read them; `None` if
    /// they are not packed.
    packs: Option<Arc<PackedWeights>>,
    recorder: Option<Recorder>,
    /// Gradients with respect to the states of recurrent layers, with the name of the layer; `None`
    /// if they are not recorded.
    states: Option<RefCell<Vec<(String, StateGradients)>>>,
    /// Indices of masked heads, by the full name of their layer.
    masked: HashMap<String, Vec<usize>>,
    /// Losses that layers add, as scalars, and the sum of the layers' statistics of routing (of
    /// tokens that were sent to experts).
    auxiliary: RefCell<(Vec<Tensor>, Routing)>,
}

impl Pass {
    /// Makes a training pass. Dropout is a function of (seed, step, micro-batch, layer), so that
    /// the pass can be repeated.
    #[must_use]
    pub fn train(seed: u64, step: u64, micro_batch: u64) -> Self {
        Self {
            dropout_key: Some(mix(seed, &[0x6472_6f70, step, micro_batch])),
            step: Some(step),
            tape: Some(Tape::new()),
            ..Self::default()
        }
    }

    /// Sets whether layers are recomputed in the backward pass. A stack of n layers then keeps only
    /// the inputs of about √n segments (groups of consecutive layers), and computes all other
    /// results again, bit for bit the same. This saves memory, and costs an additional forward
    /// pass. It has no effect on a pass from [`Pass::composed`].
    #[must_use]
    pub fn checkpointed(self, checkpoints: bool) -> Self {
        Self { checkpoints, ..self }
    }

    /// Makes a pass for a segment of layers, with the same dropout but a separate tape; `None` if
    /// the backward pass does not recompute layers.
    pub(crate) fn for_segment(&self) -> Option<Self> {
        let tape = self.tape.as_ref().filter(|_| self.checkpoints)?;
        Some(Self {
            dropout_key: self.dropout_key,
            step: self.step,
            tape: Some(tape.for_segment()),
            masked: self.masked.clone(),
            ..Self::default()
        })
    }

    /// Switches to the composed operations (made of Candle's operations) and Candle's autodiff.
    /// They are slow, and are the reference for tests of the fused operations, each of which does
    /// the work of several Candle operations.
    #[must_use]
    pub fn composed(self) -> Self {
        Self { tape: None, ..self }
    }

    /// Sets the pass to record, in the backward pass, the gradients with respect to the states of
    /// recurrent layers.
    #[must_use]
    pub fn noting_states(self) -> Self {
        Self { states: Some(RefCell::default()), ..self }
    }

    /// Gradients with respect to the states of recurrent layers, each with the name of its layer,
    /// in the order in which the layers ran. They are empty until [`Pass::backward`] fills them.
    #[must_use]
    pub fn state_gradients(&self) -> Vec<(String, StateGradients)> {
        self.states.as_ref().map(|states| states.borrow().clone()).unwrap_or_default()
    }

    /// Adds a record for the state gradients of a recurrent layer, and returns it; `None` if they
    /// are not recorded.
    pub(crate) fn notes_states(&self, layer: &str) -> Option<StateGradients> {
        let states = self.states.as_ref()?;
        let noted = StateGradients::default();
        states.borrow_mut().push((layer.to_owned(), noted.clone()));
        Some(noted)
    }

    /// Makes a pass without dropout and without gradients.
    #[must_use]
    pub fn evaluate() -> Self {
        Self::default()
    }

    /// Makes an evaluation pass with packed weights, which many passes share.
    pub(crate) fn infer(packs: &Arc<PackedWeights>) -> Self {
        Self { packs: Some(packs.clone()), ..Self::default() }
    }

    pub(crate) fn packs(&self) -> Option<&PackedWeights> {
        self.packs.as_deref()
    }

    /// Makes an evaluation pass that records the attention weights of every layer.
    #[must_use]
    pub fn evaluate_with_attention() -> Self {
        Self { recorder: Some(Recorder::default()), ..Self::default() }
    }

    /// Makes an evaluation pass that records the attention weights of only the layer with this full
    /// name.
    #[must_use]
    pub fn evaluate_with_attention_of(layer: &str) -> Self {
        Self {
            recorder: Some(Recorder { only: Some(layer.to_owned()), ..Recorder::default() }),
            ..Self::default()
        }
    }

    /// Masks one head, so that it outputs zeros: the head with the index `head`, from 0, in the
    /// attention layer with the full name `layer`. This can be called for several heads; unknown
    /// names have no effect.
    #[must_use]
    pub fn without_head(mut self, layer: &str, head: usize) -> Self {
        self.masked.entry(layer.to_owned()).or_default().push(head);
        self
    }

    /// Sets the outputs of a layer's masked heads to zero. `heads` is the number of heads.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`, where D is the width of all heads together; all heads are equally wide.
    pub(crate) fn unmasked(&self, layer: &str, attended: Tensor, heads: usize) -> Result<Tensor> {
        let Some(masked) = self.masked.get(layer) else { return Ok(attended) };
        let width = attended.dim(1)?;
        let column = |column: usize| f32::from(!masked.contains(&(column * heads / width)));
        let mask = Tensor::from_iter((0..width).map(column), &Device::Cpu)?;
        composed::on_tape(self.tape(), "head mask", &[&attended], |inputs| {
            let x = &inputs[0];
            x.broadcast_mul(&mask.to_dtype(x.dtype())?.to_device(x.device())?)
        })
    }

    /// Makes an evaluation pass that records the attention weights of every layer, its queries,
    /// keys and values, and the states of tokens before, within and after every layer.
    #[must_use]
    pub fn evaluate_with_states() -> Self {
        let recorder = Recorder { keeps_states: true, ..Recorder::default() };
        Self { recorder: Some(recorder), ..Self::default() }
    }

    /// Returns everything that was recorded, in the order in which the layers ran.
    #[must_use]
    pub fn into_records(self) -> Records {
        self.recorder.unwrap_or_default().records.into_inner()
    }

    /// Returns the recorder, if it records states.
    fn state_recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref().filter(|recorder| recorder.keeps_states)
    }

    /// True if the pass records states of tokens.
    pub(crate) fn records_states(&self) -> bool {
        self.state_recorder().is_some()
    }

    /// Records the states of the tokens of a stack after `layers` layers, if states are recorded.
    pub(crate) fn record_state(
        &self,
        stack: &str,
        layers: usize,
        point: StatePoint,
        rows: &Tensor,
    ) {
        if let Some(recorder) = self.state_recorder() {
            let record = StateRecord { stack: stack.to_owned(), layers, point, rows: rows.clone() };
            recorder.records.borrow_mut().states.push(record);
        }
    }

    /// Records states of tokens within the current layer, if states are recorded.
    pub(crate) fn record_within(&self, point: StatePoint, rows: &Tensor) {
        if let Some(recorder) = self.state_recorder() {
            recorder.keep_within(point, rows);
        }
    }

    /// Records the queries, keys and values of a layer, if states are recorded.
    pub(crate) fn record_projections(
        &self,
        projections: impl FnOnce() -> Result<ProjectionRecord>,
    ) -> Result<()> {
        if let Some(recorder) = self.state_recorder() {
            let record = projections()?;
            recorder.records.borrow_mut().projections.push(record);
        }
        Ok(())
    }

    /// True if this is a training pass, with gradients.
    #[must_use]
    pub fn is_training(&self) -> bool {
        self.dropout_key.is_some()
    }

    /// Adds a scalar `loss` to the loss of each answer, and `routing` to the statistics of the pass
    /// about tokens sent to experts.
    pub(crate) fn add_auxiliary(&self, loss: Tensor, routing: Routing) {
        let mut auxiliary = self.auxiliary.borrow_mut();
        auxiliary.0.push(loss);
        auxiliary.1 += routing;
    }

    /// Takes the losses and statistics that layers have added so far.
    pub(crate) fn take_auxiliary(&self) -> (Vec<Tensor>, Routing) {
        self.auxiliary.take()
    }

    /// Key of the random numbers for one part of the model; `None` in evaluation. `site` is the key
    /// that identifies this part.
    pub(crate) fn noise(&self, site: u64) -> Option<u64> {
        self.dropout_key.map(|key| mix(key, &[site]))
    }

    /// Index of the update to which this pass belongs; `None` in evaluation.
    #[must_use]
    pub fn updates(&self) -> Option<u64> {
        self.step
    }

    /// Tape, the record of operations for the backward pass; `None` in evaluation, or if gradients
    /// come from Candle's autodiff.
    #[must_use]
    pub fn tape(&self) -> Option<&Tape> {
        self.tape.as_ref()
    }

    /// Returns the tape by value, for a backward pass that does not begin at a loss.
    #[must_use]
    pub fn into_tape(self) -> Option<Tape> {
        self.tape
    }

    /// Adds the gradients of `output.loss` with respect to all parameters to `gradients`, and
    /// consumes the pass. If the loss has a factor against underflow in f16, gradients are divided
    /// by it.
    ///
    /// # Errors
    /// If a parameter gets no gradient, or the device has no memory left.
    pub fn backward(
        self,
        output: &LossOutput,
        store: &ParameterStore,
        gradients: &mut Gradients,
    ) -> Result<()> {
        self.backward_watched(output, store, gradients, None)
    }

    /// Runs [`Pass::backward`]. On the CPU with a tape, it calls `when_final` whenever a part of
    /// the gradient has become final; see [`Tape::backward_watched`]. If the loss has a factor
    /// against underflow in f16, it never calls `when_final`: all gradients become final only when
    /// they are divided by this factor.
    ///
    /// # Errors
    /// The errors of [`Pass::backward`] and of `when_final`.
    pub fn backward_watched(
        self,
        output: &LossOutput,
        store: &ParameterStore,
        gradients: &mut Gradients,
        when_final: Option<WhenFinal<'_>>,
    ) -> Result<()> {
        let LossOutput { loss, loss_scale, .. } = output;
        if *loss_scale != 1.0 {
            let mut scaled = Gradients::new(store)?;
            self.backward_of(loss, store, &mut scaled, None)?;
            scaled.scale(1.0 / *loss_scale)?;
            return gradients.add(&mut scaled);
        }
        self.backward_of(loss, store, gradients, when_final)
    }

    fn backward_of(
        self,
        loss: &Tensor,
        store: &ParameterStore,
        gradients: &mut Gradients,
        when_final: Option<WhenFinal<'_>>,
    ) -> Result<()> {
        match self.tape {
            Some(tape) if tape.knows(loss) => {
                tape.backward_watched(loss, store, gradients, when_final)
            }
            Some(tape) if !tape.is_empty() => candle_core::bail!(
                "the loss does not follow from the operations that were recorded before it"
            ),
            // Without a tape, Candle has the graph of the composed operations.
            _ => gradients.accumulate(store, &loss.backward()?),
        }
    }

    /// Returns the recorded attention weights, in the order in which the layers ran.
    #[must_use]
    pub fn into_attention(self) -> Vec<AttentionRecord> {
        self.into_records().attention
    }

    pub(crate) fn records_attention(&self, layer: &str) -> bool {
        self.recorder.as_ref().is_some_and(|recorder| recorder.wants(layer))
    }

    pub(crate) fn record(&self, layer: &str, weights: Tensor) {
        if let Some(recorder) = &self.recorder {
            let record = AttentionRecord { layer: layer.to_owned(), weights };
            recorder.records.borrow_mut().attention.push(record);
        }
    }

    /// Dropout for one part of the model. `site` is the key that identifies this part; no other
    /// part has the same key.
    pub(crate) fn dropout(&self, rate: f64, site: u64) -> Dropout {
        match self.dropout_key {
            Some(key) if rate > 0.0 => Dropout::new(rate, mix(key, &[site])),
            _ => Dropout::none(),
        }
    }
}
