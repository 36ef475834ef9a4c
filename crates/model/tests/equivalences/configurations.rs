//! Tests of facts about a model that are known before the model is made: the number of its
//! parameters, its cost, and whether its configuration is possible.

use candle_core::{DType, Device};
use taper_model::{
    Architecture, AttentionKind, Builder, LanguageModel, Model, ModelConfig, NormPlacement,
    Positions, Tied, Transformer, cost_of,
};

use super::{TestResult, config, every};

#[test]
fn parameters_are_counted_before_they_are_made() -> TestResult {
    every(|made, name| {
        for (tied, biases, vocab_source) in [
            (Tied::All, true, 19),
            (Tied::Embeddings, true, 19),
            (Tied::Decoder, false, 23),
            (Tied::None, true, 23),
        ] {
            let attention_biases = tied != Tied::None;
            let own = ModelConfig { tied, biases, attention_biases, ..made.config().clone() };
            let config = ModelConfig { decoder_layers: 3, ..own };
            let model = Transformer::new(
                &config,
                vocab_source,
                19,
                Builder::zeroed(&Device::Cpu, DType::F32),
            )?;
            let counted = model.cost().parameters;
            assert_eq!(counted, model.parameters().len() as u64, "{name} {tied:?} {biases}");
        }
        Ok(())
    })?;
    let huge = ModelConfig { d_model: usize::MAX, ..ModelConfig::default() };
    let cost =
        cost_of(&Device::Cpu, |builder| Transformer::new(&huge, usize::MAX, usize::MAX, builder));
    assert_eq!((cost.parameters, cost.training_flops()), (u64::MAX, u64::MAX));
    assert_eq!(cost.activation_bytes(&[usize::MAX; 2], usize::MAX), u64::MAX);
    Ok(())
}

/// Sizes within the bounds of a configuration have products that do not fit into 64 bits. Such a
/// model must not count as a small one.
#[test]
fn the_cost_of_a_model_that_is_too_large_is_large_for_every_kind_of_attention() {
    for kind in AttentionKind::ALL {
        let mut config = ModelConfig { d_model: 1 << 56, ..ModelConfig::default() };
        config.state_space.expand = 1 << 16;
        config.experts.count = 4;
        config.decoder_attention.kind = kind;
        if kind != AttentionKind::TransformerXl {
            config.encoder_attention.kind = kind;
        }
        if kind == AttentionKind::Linformer {
            config.decoder_attention.kind = AttentionKind::Full;
        }
        let cost = cost_of(&Device::Cpu, |builder| Transformer::new(&config, 99, 99, builder));
        let counts = [cost.parameters, cost.training_flops()];
        assert!(counts.iter().all(|&count| count == u64::MAX), "{kind:?}: {counts:?}");
        assert_eq!(cost.activation_bytes(&[1024; 2], 1 << 20), u64::MAX, "{kind:?}");
    }
}

#[test]
fn the_cost_of_the_base_model_by_hand() {
    let config = ModelConfig::default();
    let cost = cost_of(&Device::Cpu, |builder| Transformer::new(&config, 1000, 1000, builder));
    let d = 512u64;
    let [source, target] = cost.streams.as_slice() else { panic!("two streams") };
    assert_eq!(source.forward_flops, 2 * (6 * (4 * d * d + 2 * d * 2048) + 6 * 2 * d * d));
    assert_eq!(target.forward_flops, 2 * (6 * (6 * d * d + 2 * d * 2048) + d * 1000));
    assert_eq!(cost.training_flops(), 3 * (source.forward_flops + target.forward_flops));
    // In each layer, these are kept for a token: queries, keys and values; the result of attention,
    // with one number per head, and its projection; and the results of both feed-forward matrices.
    // The encoder also keeps the embedding, and the keys and values for each layer of the decoder.
    let layer = (5 * d + 8) + (2048 + d);
    assert_eq!(source.activation_bytes, 4 * (6 * (layer + 2 * d) + d));
    // The decoder keeps in addition, in each layer, what its attention to the encoder needs:
    // queries, and the result with its projection. It also keeps the embedding, and the gradient of
    // the loss with respect to the last states.
    assert_eq!(target.activation_bytes, 4 * (6 * (layer + 3 * d + 8) + d + d));
    // On the CPU, the loss keeps no logits, so the size of the vocabulary does not matter.
    let larger = cost_of(&Device::Cpu, |builder| Transformer::new(&config, 1000, 100_000, builder));
    assert_eq!(larger.activation_bytes(&[7, 9], 9), cost.activation_bytes(&[7, 9], 9));
}

#[test]
fn impossible_configurations_are_named() {
    let refused = |config: ModelConfig, joint: usize| {
        Transformer::new(&config, joint, 19, Builder::seeded(1, &Device::Cpu, DType::F32))
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let base = config(NormPlacement::Pre, Positions::Sinusoidal);
    assert!(
        refused(ModelConfig { heads: 5, ..base.clone() }, 19)
            .contains("model.heads = 5 does not divide model.d_model = 24")
    );
    assert!(refused(base.clone(), 18).contains("tied"));
    assert!(
        refused(ModelConfig { residual_dropout: 1.0, ..base.clone() }, 19)
            .contains("residual_dropout = 1")
    );
    assert!(
        refused(ModelConfig { heads: 8, positions: Positions::Rotary, ..base.clone() }, 19)
            .contains("even width of a head")
    );
    let relative = |buckets, distance| {
        let own = ModelConfig { relative_buckets: buckets, ..base.clone() };
        refused(ModelConfig { relative_distance: distance, ..own }, 19)
    };
    assert!(relative(3, 128).contains("model.relative_buckets = 3: it must be at least 4"));
    assert!(relative(32, 16).contains("model.relative_distance = 16: it must be more than half"));
    for (scale, said) in [(0.0, "at least 0.000001"), (f64::NAN, "a number")] {
        let error = refused(ModelConfig { output_scale: Some(scale), ..base.clone() }, 19);
        assert!(error.contains("model.output_scale") && error.contains(said), "{error}");
    }
    let dropped = ModelConfig { final_dropout: 1.0, ..base.clone() };
    assert!(refused(dropped, 19).contains("model.final_dropout = 1.0 is not a rate"));
    let tied = ModelConfig { tied: Tied::Embeddings, ..base.clone() };
    assert!(refused(tied, 18).contains("model.tied = \"embeddings\" needs one vocabulary"));
    let of = |architecture| ModelConfig { architecture, heads: 5, ..base.clone() };
    let mut narrow = of(Architecture::Recurrent);
    assert!(
        Transformer::new(&narrow, 19, 19, Builder::outline()).is_ok(),
        "heads are no matter there"
    );
    narrow.recurrent.width = 0;
    assert!(refused(narrow, 19).contains("model.recurrent.width = 0"));
    let mut even = of(Architecture::Convolutional);
    even.convolutional.kernel = 4;
    assert!(refused(even.clone(), 19).contains("model.convolutional.kernel = 4"));
    even.convolutional.kernel = 3;
    let rotary = ModelConfig { positions: Positions::Rotary, ..even };
    assert!(refused(rotary, 19).contains("no self-attention"));
    let other = LanguageModel::new(
        &of(Architecture::Recurrent),
        19,
        Builder::seeded(1, &Device::Cpu, DType::F32),
    );
    assert!(other.unwrap_err().to_string().contains("model.architecture = \"recurrent\""));
    let huge = ModelConfig { d_model: usize::MAX, ..of(Architecture::Recurrent) };
    let mut huge = ModelConfig { decoder_layers: usize::MAX, ..huge };
    for architecture in [Architecture::Recurrent, Architecture::Convolutional] {
        huge.architecture = architecture;
        (huge.recurrent.width, huge.convolutional.kernel) = (usize::MAX, usize::MAX);
        let cost = cost_of(&Device::Cpu, |builder| {
            Transformer::new(&huge, usize::MAX, usize::MAX, builder)
        });
        assert_eq!(cost.parameters, u64::MAX);
    }
}
