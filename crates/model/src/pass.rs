//! What one run through the model is for: training, with dropout and gradients, or evaluation.

use crate::LossOutput;
use candle_core::{DType, Device, Result, Tensor};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::AddAssign;
use std::sync::Arc;
use taper_ops::rng::mix;
use taper_ops::{
    Dropout, Gradients, PackedWeights, ParameterStore, StateGradients, Tape, WhenFinal, composed,
};

/// One run through the model.
#[derive(Debug, Default)]
pub struct Pass {
    /// The dropout key of this pass; none when evaluating.
    dropout_key: Option<u64>,
    /// The update of this pass; none when evaluating.
    step: Option<u64>,
    /// What the fused operations note on the way, when training.
    tape: Option<Tape>,
    /// Whether stacks keep what goes into some of their layers alone, and compute the rest again.
    checkpoints: bool,
    /// Weights that do not change, in the layout of the matrix kernels.
    packs: Option<Arc<PackedWeights>>,
    recorder: Option<Recorder>,
    /// What recurrent layers note of the gradients by their states, by the name of the layer; none
    /// where nobody asks.
    states: Option<RefCell<Vec<(String, StateGradients)>>>,
    /// Heads that give nothing, by the full name of their layer.
    masked: HashMap<String, Vec<usize>>,
    /// What layers add to the loss, scalars, and how they routed tokens.
    auxiliary: RefCell<(Vec<Tensor>, Routing)>,
}

/// How tokens were sent to experts, summed over layers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routing {
    /// Tokens times the experts that each was sent to.
    pub routed: u64,
    /// Of them, those that were beyond the capacity of an expert and were dropped.
    pub dropped: u64,
    /// Those of the busiest expert of each layer, times the number of experts: `routed` where loads
    /// are even.
    pub busiest: u64,
}

impl Routing {
    /// Whether nothing was routed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routed == 0
    }
}

impl AddAssign for Routing {
    fn add_assign(&mut self, other: Self) {
        self.routed += other.routed;
        self.dropped += other.dropped;
        self.busiest += other.busiest;
    }
}

/// The attention weights that layers have noted.
#[derive(Debug, Default)]
struct Recorder {
    /// The only layer whose weights are kept; none for all.
    only: Option<String>,
    records: RefCell<Vec<AttentionRecord>>,
    /// Whether states of tokens are kept too.
    keeps_states: bool,
    states: RefCell<Vec<StateRecord>>,
}

/// The states of all tokens before or after a layer.
#[derive(Debug, Clone)]
pub struct StateRecord {
    /// The stack, such as `encoder`.
    pub stack: String,
    /// How many layers of it they have passed.
    pub layers: usize,
    /// `(N, D)`.
    pub rows: Tensor,
}

/// The attention weights of one layer.
#[derive(Debug, Clone)]
pub struct AttentionRecord {
    /// The layer's full name, such as `decoder.layers.0.cross_attention`.
    pub layer: String,
    /// `(B, H, Tq, Tk)`, zero for keys beyond their sequence; the rows of queries beyond theirs
    /// mean nothing.
    pub weights: Tensor,
}

impl Pass {
    /// A training pass: dropout is drawn from (seed, step, micro-batch, layer), so that it can be
    /// repeated.
    #[must_use]
    pub fn train(seed: u64, step: u64, micro_batch: u64) -> Self {
        Self {
            dropout_key: Some(mix(seed, &[0x6472_6f70, step, micro_batch])),
            step: Some(step),
            tape: Some(Tape::new()),
            ..Self::default()
        }
    }

    /// The same pass, of which stacks keep what goes into each of about √n segments of n layers, and
    /// compute the rest again on the way back, with the same bits. It takes a further forward pass,
    /// and changes nothing where Candle differentiates.
    #[must_use]
    pub fn checkpointed(self, checkpoints: bool) -> Self {
        Self { checkpoints, ..self }
    }

    /// The same pass once more with a tape of its own, for a segment of layers; none where nothing
    /// is to be computed again.
    pub(crate) fn of_segment(&self) -> Option<Self> {
        (self.checkpoints && self.tape.is_some()).then(|| Self {
            dropout_key: self.dropout_key,
            step: self.step,
            tape: Some(Tape::new()),
            masked: self.masked.clone(),
            ..Self::default()
        })
    }

    /// The same pass with the composed operations and Candle's autodiff: slow, and the oracle of
    /// the fused ones.
    #[must_use]
    pub fn composed(self) -> Self {
        Self { tape: None, ..self }
    }

    /// The same pass, on whose way back each recurrent layer notes how long the gradient by each of
    /// its states is.
    #[must_use]
    pub fn noting_states(self) -> Self {
        Self { states: Some(RefCell::default()), ..self }
    }

    /// Where recurrent layers note the gradients by their states, by the name of the layer in the
    /// order in which they ran: filled by [`Pass::backward`].
    #[must_use]
    pub fn state_gradients(&self) -> Vec<(String, StateGradients)> {
        self.states.as_ref().map(|states| states.borrow().clone()).unwrap_or_default()
    }

    /// Where a recurrent layer notes them; none where nobody asks.
    pub(crate) fn notes_states(&self, layer: &str) -> Option<StateGradients> {
        let states = self.states.as_ref()?;
        let noted = StateGradients::default();
        states.borrow_mut().push((layer.to_owned(), noted.clone()));
        Some(noted)
    }

    /// A pass without dropout and without gradients.
    #[must_use]
    pub fn evaluate() -> Self {
        Self::default()
    }

    /// As [`Pass::evaluate`], with weights that have been packed for many passes.
    pub(crate) fn infer(packs: &Arc<PackedWeights>) -> Self {
        Self { packs: Some(packs.clone()), ..Self::default() }
    }

    pub(crate) fn packs(&self) -> Option<&PackedWeights> {
        self.packs.as_deref()
    }

    /// As [`Pass::evaluate`], and every layer's attention weights are kept.
    #[must_use]
    pub fn evaluate_with_attention() -> Self {
        Self { recorder: Some(Recorder::default()), ..Self::default() }
    }

    /// As [`Pass::evaluate`], and the attention weights of the layer of this full name are kept.
    #[must_use]
    pub fn evaluate_with_attention_of(layer: &str) -> Self {
        Self {
            recorder: Some(Recorder { only: Some(layer.to_owned()), ..Recorder::default() }),
            ..Self::default()
        }
    }

    /// The same pass, in which a head, counted from 0, gives zeros: that of the attention layer of
    /// this full name. May be called for several heads; of names that no layer has nothing comes.
    #[must_use]
    pub fn without_head(mut self, layer: &str, head: usize) -> Self {
        self.masked.entry(layer.to_owned()).or_default().push(head);
        self
    }

    /// What the heads of a layer give, without those that are masked.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`, each head having its columns.
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

    /// As [`Pass::evaluate_with_attention`], and the states of tokens are kept before and after every
    /// layer.
    #[must_use]
    pub fn evaluate_with_states() -> Self {
        let recorder = Recorder { keeps_states: true, ..Recorder::default() };
        Self { recorder: Some(recorder), ..Self::default() }
    }

    /// The attention weights and the states that were recorded, in the order in which layers ran.
    #[must_use]
    pub fn into_records(self) -> (Vec<AttentionRecord>, Vec<StateRecord>) {
        let recorder = self.recorder.unwrap_or_default();
        (recorder.records.into_inner(), recorder.states.into_inner())
    }

    /// Keeps states of tokens, where they are wanted.
    pub(crate) fn record_state(&self, stack: &str, layers: usize, rows: &Tensor) {
        if let Some(recorder) = self.recorder.as_ref().filter(|recorder| recorder.keeps_states) {
            let record = StateRecord { stack: stack.to_owned(), layers, rows: rows.clone() };
            recorder.states.borrow_mut().push(record);
        }
    }

    /// Whether gradients are wanted.
    #[must_use]
    pub fn is_training(&self) -> bool {
        self.dropout_key.is_some()
    }

    /// Adds a scalar to the loss of each answer, and what was routed to what the pass tells.
    pub(crate) fn add_auxiliary(&self, loss: Tensor, routing: Routing) {
        let mut auxiliary = self.auxiliary.borrow_mut();
        auxiliary.0.push(loss);
        auxiliary.1 += routing;
    }

    /// What layers have added to the loss so far, which is not told again.
    pub(crate) fn take_auxiliary(&self) -> (Vec<Tensor>, Routing) {
        self.auxiliary.take()
    }

    /// The key of random numbers of a site; none when evaluating.
    pub(crate) fn noise(&self, site: u64) -> Option<u64> {
        self.dropout_key.map(|key| mix(key, &[site]))
    }

    /// The number of the update that this pass is for; none when evaluating.
    pub(crate) fn updates(&self) -> Option<u64> {
        self.step
    }

    /// Where the fused operations of this pass note how to go back; none when evaluating.
    #[must_use]
    pub fn tape(&self) -> Option<&Tape> {
        self.tape.as_ref()
    }

    /// The same for those who go back from something else than a loss.
    #[must_use]
    pub fn into_tape(self) -> Option<Tape> {
        self.tape
    }

    /// Adds the gradient of `output.loss` by every parameter to `gradients`, and forgets the pass.
    /// What f16 needs its loss multiplied by is no part of the gradient.
    ///
    /// # Errors
    /// When a parameter gets no gradient, or the device has no memory left.
    pub fn backward(
        self,
        output: &LossOutput,
        store: &ParameterStore,
        gradients: &mut Gradients,
    ) -> Result<()> {
        self.backward_watched(output, store, gradients, None)
    }

    /// As [`Pass::backward`]; where the operations are fused, `when_final` is told on the way what
    /// is final of the gradient, see [`Tape::backward_watched`].
    ///
    /// # Errors
    /// As [`Pass::backward`], and those of `when_final`.
    pub fn backward_watched(
        self,
        output: &LossOutput,
        store: &ParameterStore,
        gradients: &mut Gradients,
        when_final: Option<WhenFinal<'_>>,
    ) -> Result<()> {
        let LossOutput { loss, loss_scale, .. } = output;
        match self.tape {
            Some(tape) if tape.knows(loss) => {
                tape.backward_watched(loss, store, gradients, when_final)
            }
            // Its graph would end at the first fused operation, and the gradients before that be
            // lost.
            Some(tape) if !tape.is_empty() => candle_core::bail!(
                "the loss does not follow from the fused operations before it: use bf16 or f32 \
                 on the CPU, or composed operations"
            ),
            // Devices and types without fused operations: Candle has the graph.
            _ => {
                let mut found = loss.backward()?;
                if *loss_scale != 1.0 {
                    for parameter in store.parameters() {
                        if let Some(scaled) = found.remove(parameter.var()) {
                            let gradient = (scaled.to_dtype(DType::F32)? / *loss_scale)?;
                            found.insert(parameter.var(), gradient);
                        }
                    }
                }
                gradients.accumulate(store, &found)
            }
        }
    }

    /// The weights that layers recorded, in the order in which they ran.
    #[must_use]
    pub fn into_attention(self) -> Vec<AttentionRecord> {
        self.recorder.map(|recorder| recorder.records.into_inner()).unwrap_or_default()
    }

    pub(crate) fn records_attention(&self, layer: &str) -> bool {
        self.recorder
            .as_ref()
            .is_some_and(|recorder| recorder.only.as_deref().is_none_or(|only| only == layer))
    }

    pub(crate) fn record(&self, layer: &str, weights: Tensor) {
        if let Some(recorder) = &self.recorder {
            recorder
                .records
                .borrow_mut()
                .push(AttentionRecord { layer: layer.to_owned(), weights });
        }
    }

    /// The dropout of a site, which is a number that no other place in the model has.
    pub(crate) fn dropout(&self, rate: f64, site: u64) -> Dropout {
        match self.dropout_key {
            Some(key) if rate > 0.0 => Dropout::new(rate, mix(key, &[site])),
            _ => Dropout::none(),
        }
    }
}
