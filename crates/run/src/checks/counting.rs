//! Counting of the cost of a model.

use candle_core::Device;
use taper_model::StreamCost;
use taper_ops::{PackedWeights, Parameter};

use super::cost::Cost;
use crate::config::RunConfig;
use crate::tasks::{Vocabularies, cost_of, outline, require_decoding, usual_tokens};

/// Size of one f32 in bytes.
const F32: u64 = 4;

impl Cost {
    /// Counts the cost of the model of `config` with vocabularies of the sizes `vocabularies`, for
    /// training on `device` in one process.
    pub fn count(config: &RunConfig, vocabularies: Vocabularies, device: &Device) -> Self {
        Self::among(config, vocabularies, device, 1)
    }

    /// Counts the cost like [`Cost::count`], but for each of `processes` processes that train one
    /// model together.
    pub fn among(
        config: &RunConfig,
        vocabularies: Vocabularies,
        device: &Device,
        processes: usize,
    ) -> Self {
        Self::of_sequences(config, vocabularies, device, (processes, usual_tokens(config)))
    }

    /// Counts the cost like [`Cost::among`], but for batches whose sequences have `length` tokens.
    /// ([`Cost::among`] assumes the limit that `config` sets, or a typical length.)
    pub fn of_sequences(
        config: &RunConfig,
        vocabularies: Vocabularies,
        device: &Device,
        (processes, length): (usize, usize),
    ) -> Self {
        let cost = cost_of(config, vocabularies, device)
            .checkpointed(config.training.checkpoint_activations && device.is_cpu());
        let forward = |stream: Option<&StreamCost>| stream.map_or(0, |it| it.forward_flops);
        let passes = config.training.objective().passes();
        let tokens = passes * config.data.batching.planned_tokens();
        let scalars = scalars(config, vocabularies, cost.parameters);
        let Scalars { trained, frozen, frozen_bytes, .. } = scalars;
        let training_state_bytes =
            training_state_bytes(config, trained, processes).saturating_add(frozen_bytes);
        let activation_bytes = match device.is_cpu() {
            true => cost.activation_bytes(&[tokens; 2], length),
            false => cost.composed_bytes(&[tokens; 2], 0),
        };
        let of_pass = match device.is_cpu() {
            true => {
                let loss = cost.loss_bytes(tokens, scalars.trains_classifier);
                activation_bytes.saturating_add(loss).max(scalars.passing_bytes(config))
            }
            false => activation_bytes,
        };
        Self {
            parameters: trained,
            frozen_parameters: frozen,
            frozen_bytes,
            peak_bytes: training_state_bytes.saturating_add(of_pass),
            encoder_flops_per_token: forward(cost.streams.iter().rev().nth(1)),
            decoder_flops_per_token: forward(cost.streams.last()),
            training_flops_per_token_pair: passes as u64 * cost.training_flops(),
            training_state_bytes,
            activation_bytes,
            sequence_tokens: length,
        }
    }
}

/// Numbers of scalars in a model's parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scalars {
    /// Number of trained scalars.
    pub(crate) trained: u64,
    /// Number of frozen scalars, to which LoRA adapters are added.
    pub(crate) frozen: u64,
    /// Size of the frozen scalars in bytes.
    pub(crate) frozen_bytes: u64,
    /// Number of scalars in the largest parameter tensor.
    pub(crate) largest: u64,
    /// Whether the output matrices (heads), which compute logits, are trained.
    pub(crate) trains_classifier: bool,
}

impl Scalars {
    /// Memory in bytes that a training on the CPU needs temporarily, outside of forward and
    /// backward passes. Loading and saving need two copies of one parameter at a time: in f32, and
    /// in a type of half the size. Validations that translate need a copy of the weights that is
    /// packed, that is, in the order in which matrix kernels read them. The result is the larger of
    /// these two amounts.
    pub(crate) fn passing_bytes(&self, config: &RunConfig) -> u64 {
        let copies = self.largest.saturating_mul(F32 + F32 / 2);
        let translates =
            config.evaluation.validation_sentences > 0 && require_decoding(config.task).is_ok();
        // Frozen weights in a type with fewer bits than f32 are used as they are, without a packed
        // copy.
        let held = if self.frozen_bytes < F32 * self.frozen { 0 } else { self.frozen };
        match translates {
            true => copies.max(PackedWeights::bytes_of(self.trained.saturating_add(held))),
            false => copies,
        }
    }
}

/// Counts the scalars in the model of `config`; `parameters` is the number that it has without
/// adapters.
pub(crate) fn scalars(config: &RunConfig, vocabularies: Vocabularies, parameters: u64) -> Scalars {
    let whole = Scalars {
        trained: parameters,
        frozen: 0,
        frozen_bytes: 0,
        largest: 0,
        trains_classifier: true,
    };
    // No error here: a configuration that cannot be built is refused where the model is built.
    let Ok(store) = outline(config, vocabularies) else { return whole };
    let largest = store.all().map(Parameter::len).max().unwrap_or(0) as u64;
    if !config.model.lora.is_on() {
        return Scalars { largest, ..whole };
    }
    let sum = |each: fn(&Parameter) -> usize| store.base().iter().map(each).sum::<usize>() as u64;
    Scalars {
        trained: store.len() as u64,
        frozen: sum(Parameter::len),
        frozen_bytes: sum(|one| one.len() * one.dtype().size_in_bytes()),
        largest,
        // Output matrices (heads) get no adapters: they are trained as a whole, or not at all.
        trains_classifier: !config.model.lora.train.is_empty(),
    }
}

/// Memory in bytes for weights, gradients, the optimizer's state and, if there is one, the moving
/// average of the weights, in each of `processes` processes that train together. `parameters` is
/// the number of trained scalars, without frozen weights.
///
/// If n > 1 processes train together, each of them holds 1/n of the optimizer's state, the
/// gradients of its own micro-batches (1/n of all), and buffers for sending and receiving.
pub fn training_state_bytes(config: &RunConfig, parameters: u64, processes: usize) -> u64 {
    let training = &config.training;
    let processes = processes.max(1);
    let average = u64::from(training.ema_decay > 0.0);
    let state = (training.state_buffers() - average).saturating_mul(parameters);
    let exchanged = if processes > 1 { 2 * training.gradient_sums(processes) } else { 0 };
    let copies = 1 + training.gradient_buffers(processes) + average + exchanged;
    let floats = parameters.saturating_mul(copies);
    floats.saturating_add(state.div_ceil(processes as u64)).saturating_mul(F32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_several_processes_has_its_part_of_the_moments() {
        let mut config = RunConfig::default();
        config.training.accumulation = 4;
        // Buffers in one process: the weights, three gradients and two moments.
        assert_eq!(training_state_bytes(&config, 1000, 1), 4 * 6000);
        // Buffers in each of four processes: the weights, a gradient, two buffers for the exchange,
        // and a quarter of the moments.
        assert_eq!(training_state_bytes(&config, 1000, 4), 4 * 4500);
        // Gradients are added up in a binary tree with the twelve micro-batches as its leaves. A
        // process keeps and sends a sum for each complete subtree of its leaves. The second of
        // three processes has the leaves 4 to 7, which form three complete subtrees. Buffers: the
        // weights, four gradients, six for the exchange, and a third of the moments.
        config.training.accumulation = 12;
        assert_eq!(training_state_bytes(&config, 999, 3), 4 * (11 * 999 + 666));
        config.training.accumulation = 4;
        config.training.ema_decay = 0.999;
        assert_eq!(training_state_bytes(&config, 1000, 4), 4 * 5500, "the average is whole");
    }
}
