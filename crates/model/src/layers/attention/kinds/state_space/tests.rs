//! Tests of single state-space layers: that they agree with MambaMixer of transformers (reference
//! values of `scripts/golden/layers/state_space.py`), and how long they remember.

use super::*;
use crate::AttentionConfig;
use crate::layers::positions::PreparedPositions;
use crate::tensors::{golden, relative};
use candle_core::{Device, Var};
use taper_ops::{Dropout, ParameterStore};

fn layer(d_model: usize, kind: AttentionKind, causal: bool) -> (StateSpace, ParameterStore) {
    let attention = AttentionConfig { kind, ..AttentionConfig::default() };
    let state_space = StateSpaceConfig { states: 5, step_rank: 3, ..StateSpaceConfig::default() };
    let config = ModelConfig {
        d_model,
        encoder_attention: attention.clone(),
        decoder_attention: attention,
        state_space,
        ..ModelConfig::default()
    };
    let mut builder = Builder::seeded(3, &Device::Cpu, DType::F32).with_biases(false);
    let build = &mut builder;
    let layer = StateSpace::new(build, "layer", &config, (causal, 0)).unwrap();
    assert_eq!(builder.tally().last.parameters as usize, builder.store.len());
    (layer, builder.store)
}

#[test]
fn mamba_of_transformers_agrees() {
    let file = golden("layers/state-space");
    for (case, kind, causal) in [
        ("mamba", AttentionKind::Mamba, true),
        ("both", AttentionKind::Mamba, false),
        ("s4d", AttentionKind::S4d, true),
    ] {
        let tensor = |name: &str| &file[&format!("{case}.{name}")];
        let (layer, store) = layer(12, kind, causal);
        for parameter in store.parameters() {
            let name = parameter.name().strip_prefix("layer.").unwrap();
            parameter.set(tensor(name).flatten_all().unwrap().to_vec1().unwrap()).unwrap();
        }
        let x = Var::from_tensor(tensor("input")).unwrap();
        let pass = Pass::train(1, 1, 0);
        let onto = x.zeros_like().unwrap();
        let residual = Residual { x: &onto, dropout: Dropout::none() };
        let lengths = [x.dim(0).unwrap()].into();
        let positions = PreparedPositions::default();
        let within = Within { lengths: &lengths, positions: &positions, pass: &pass };
        let out = layer.forward(&x, residual, within).unwrap();
        let error = relative(&out, tensor("output"));
        assert!(error < 3e-6, "{case}: {error}");
        let tape = pass.into_tape().unwrap();
        let gradients = tape.differentiate(&out, tensor("output_gradient")).unwrap();
        let error = relative(&gradients.get(&x).unwrap().unwrap(), tensor("grad.input"));
        assert!(error < 3e-6, "{case}, gradient of the input: {error}");
        for parameter in store.parameters() {
            let name = parameter.name().strip_prefix("layer.").unwrap();
            let gradient = gradients.get(parameter.var()).unwrap().unwrap();
            let theirs = tensor(&format!("grad.{name}")).reshape(parameter.shape()).unwrap();
            let error = relative(&gradient, &theirs);
            assert!(error < 1e-5, "{case}, gradient of {name}: {error}");
        }
    }
}

/// Checks that initial step sizes are between 0.001 and 0.1, and that decays are 1, 2, ….
#[test]
fn memories_are_of_all_lengths_at_first() {
    for kind in [AttentionKind::Mamba, AttentionKind::S4d] {
        let (_, store) = layer(64, kind, true);
        let values = |end: &str| {
            let named = |it: &&taper_ops::Parameter| it.name().ends_with(end);
            let parameter = store.parameters().iter().find(named).unwrap();
            parameter.var().flatten_all().unwrap().to_vec1::<f32>().unwrap()
        };
        let bias = values(if kind == AttentionKind::Mamba { "step_up.bias" } else { "step.bias" });
        let steps: Vec<f32> = bias.iter().map(|x| x.exp().ln_1p()).collect();
        assert!(steps.iter().all(|step| (0.000_99..0.101).contains(step)), "{steps:?}");
        let below = steps.iter().filter(|&&step| step < 0.01).count();
        assert!((48..80).contains(&below), "{below} of 128 are below 0.01");
        for (i, decay) in values("log_decay").iter().enumerate() {
            assert!((decay.exp() - (i % 5 + 1) as f32).abs() < 1e-5);
        }
    }
}

#[test]
fn what_is_remembered_of_a_text_is_as_much_for_each_length() {
    for kind in [AttentionKind::Mamba, AttentionKind::S4d] {
        let (layer, _) = layer(64, kind, true);
        let gated = Tensor::zeros((24, 256), DType::F32, &Device::Cpu).unwrap();
        let lengths = [3, 1, 20].into();
        let (_, state) = layer.mechanism.go_on(&gated, &lengths, None, &Pass::evaluate()).unwrap();
        assert_eq!(state.dims(), [3, (3 + 5) * 128]);
    }
}
