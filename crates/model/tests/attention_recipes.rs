//! Tests of configurations of attention: lists of kinds, the reasons with which configurations are
//! refused, and numbers of operations by formula.

use candle_core::{DType, Device, Tensor};
use taper_model::{
    AttentionConfig, AttentionKind, Builder, ExpertsConfig, LayerKinds, ModelConfig, Pass,
    Positions, Sequences, StateSpaceConfig, Transformer, UnprojectedAttention,
};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const SOURCE: &[u32] = &[4, 5, 6, 7, 8, 9, 10, 3];
const TARGET: &[u32] = &[2, 12, 13, 14, 15, 16, 4];

fn tiny() -> ModelConfig {
    ModelConfig {
        d_model: 24,
        d_ff: 40,
        heads: 3,
        encoder_layers: 2,
        decoder_layers: 2,
        ..Default::default()
    }
}

fn transformer(
    encoder_attention: AttentionConfig,
    decoder_attention: AttentionConfig,
    positions: Positions,
) -> Result<Transformer, taper_model::ModelError> {
    let config = ModelConfig { positions, encoder_attention, decoder_attention, ..tiny() };
    Transformer::new(&config, 19, 19, Builder::seeded(7, &Device::Cpu, DType::F32))
}

fn logits(model: &Transformer) -> Result<Vec<Vec<f32>>, taper_model::ModelError> {
    let pass = Pass::evaluate();
    let encoded = model.encode(&Sequences::pack(&[SOURCE]), &pass)?;
    let hidden = model.decode(&Sequences::pack(&[TARGET]), &encoded, &pass)?;
    Ok(model.logits(&hidden, &pass)?.to_vec2()?)
}

/// Checks that each layer has the kind that the list names for it. Lists with one kind give the
/// model of that kind, and different lists give different models.
#[test]
fn layers_are_of_the_kinds_that_are_named() -> TestResult {
    let attention = |kinds: &[AttentionKind]| AttentionConfig {
        kinds: LayerKinds::new(kinds),
        window: 2,
        ..AttentionConfig::default()
    };
    let logits = |kinds: &[AttentionKind]| {
        let full = AttentionConfig::default();
        logits(&transformer(full, attention(kinds), Positions::Sinusoidal).unwrap()).unwrap()
    };
    use AttentionKind::{Full, Linear, Sparse};
    assert_eq!(logits(&[Full, Full]), logits(&[]));
    let ours = [[Full, Full], [Full, Sparse], [Sparse, Full], [Linear, Sparse], [Sparse, Sparse]]
        .map(|kinds| logits(&kinds));
    for (i, one) in ours.iter().enumerate() {
        assert!(ours[..i].iter().all(|other| other != one), "list {i} is as another");
    }
    let groups = |kinds: &[AttentionKind], every, layers| {
        let experts = ExpertsConfig { count: 2, every, ..ExpertsConfig::default() };
        let model =
            ModelConfig { decoder_attention: attention(kinds), experts, ..Default::default() };
        model.groups(true, layers)
    };
    assert_eq!(groups(&[Linear, Full, Linear], 1, 3), [(0, 2), (1, 1)]);
    assert_eq!(groups(&[Linear, Full, Linear, Linear], 2, 4), [(0, 2), (1, 1), (3, 1)]);
    assert_eq!(groups(&[], 1, 3), [(0, 3)]);
    assert_eq!(groups(&[], 3, 7), [(0, 5), (2, 2)]);
    assert_eq!(groups(&[], 3, 1_000_000_001), [(0, 666_666_668), (2, 333_333_333)]);
    Ok(())
}

#[test]
fn a_list_of_kinds_is_read_and_written() {
    use AttentionKind::{Full, Linear};
    let read = |entries: &[&str]| {
        let entries: Vec<String> = entries.iter().map(|&entry| entry.to_owned()).collect();
        LayerKinds::try_from(entries)
    };
    let kinds = read(&["2 linear", "full"]).unwrap();
    assert_eq!(kinds, LayerKinds::new(&[Linear, Linear, Full]));
    assert_eq!(Vec::<String>::from(kinds), ["2 linear", "full"]);
    assert_eq!(read(&["linear", "linear", "1 full"]), read(&["2 linear", "full"]));
    for wrong in ["mambo", "0 linear", "linear 2", "", "-1 full", "99999999999 full"] {
        let error = read(&["full", wrong]).unwrap_err();
        assert!(error.starts_with(&format!("{wrong:?} is no kind of attention")), "{error}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let refused = |encoder: AttentionConfig, decoder: AttentionConfig, positions| {
        transformer(encoder, decoder, positions).map(|_| ()).unwrap_err().to_string()
    };
    let full = AttentionConfig::default;
    let sparse = || AttentionConfig { kind: AttentionKind::Sparse, ..full() };
    let linear = || AttentionConfig { kind: AttentionKind::Linear, ..full() };
    let error = refused(AttentionConfig { window: 0, ..sparse() }, full(), Positions::Sinusoidal);
    assert_eq!(error, "model.encoder_attention.window = 0: it must be at least 1");
    let last = AttentionConfig { global_last: 2, ..sparse() };
    let error = refused(full(), last, Positions::Sinusoidal);
    assert!(error.starts_with("model.decoder_attention.global_last = 2: a decoder does not know"));
    for (positions, name) in
        [(Positions::Rotary, "rotary"), (Positions::Alibi, "alibi"), (Positions::T5, "t5")]
    {
        let error = refused(linear(), full(), positions);
        assert!(error.starts_with("model.encoder_attention.kind = \"linear\" has no scores"));
        assert!(error.contains(&format!("model.positions = \"{name}\"")), "{error}");
    }
    let performer = || AttentionConfig { kind: AttentionKind::Performer, ..full() };
    let error = refused(full(), performer(), Positions::Alibi);
    assert!(error.starts_with("model.decoder_attention.kind = \"performer\" has no scores of"));
    assert!(error.ends_with("or \"rotary\""), "{error}");
    let linformer = || AttentionConfig { kind: AttentionKind::Linformer, ..full() };
    let error = refused(full(), linformer(), Positions::Sinusoidal);
    assert!(error.contains("but a decoder must not see later tokens"), "{error}");
    let error = refused(linformer(), full(), Positions::Rotary);
    assert!(error.contains("sums keys over all positions before they meet a query"), "{error}");
    let wide = AttentionConfig { rank: 9, length: 8, ..linformer() };
    let error = refused(wide, full(), Positions::Sinusoidal);
    assert!(error.starts_with("model.encoder_attention.rank = 9 is more than the 8"), "{error}");
    let kinds = LayerKinds::new(&[AttentionKind::Full, AttentionKind::Linear]);
    let mixed = || AttentionConfig { kinds: kinds.clone(), ..full() };
    let error = refused(full(), mixed(), Positions::Rotary);
    assert!(error.starts_with("model.decoder_attention.kinds = \"linear\" has no scores"));
    let three = LayerKinds::new(&[AttentionKind::Full; 3]);
    let error = refused(AttentionConfig { kinds: three, ..full() }, full(), Positions::Alibi);
    assert!(
        error.starts_with("model.encoder_attention.kinds names the kinds of 3 layers, and model.encoder_layers = 2"),
        "{error}"
    );
    let mamba = || AttentionConfig { kind: AttentionKind::Mamba, ..full() };
    let error = refused(full(), mamba(), Positions::Rotary);
    assert!(
        error.starts_with("all layers of model.decoder_attention are state-space layers, which"),
        "{error}"
    );
    assert!(error.contains("for model.positions = \"rotary\" to act on: use \"none\""), "{error}");
    let kinds = LayerKinds::new(&[AttentionKind::Mamba, AttentionKind::Full]);
    let mixed = AttentionConfig { kinds, ..full() };
    assert!(transformer(full(), mixed.clone(), Positions::Rotary).is_ok());
    let cost = |experts: ExpertsConfig, state_space: StateSpaceConfig| {
        let decoder_attention = mixed.clone();
        let shape = ModelConfig { decoder_attention, experts, state_space, ..tiny() };
        Transformer::new(&shape, 19, 19, Builder::seeded(7, &Device::Cpu, DType::F32))
    };
    let (one, every) = (StateSpaceConfig::default(), |every| ExpertsConfig {
        count: 2,
        every,
        ..ExpertsConfig::default()
    });
    let error = cost(every(1), one.clone()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("but layer 1 of model.decoder_attention has none"), "{error}");
    assert!(cost(every(2), one.clone()).is_ok());
    assert!(cost(every(1), StateSpaceConfig { feed_forward: true, ..one.clone() }).is_ok());
    let error = cost(every(2), StateSpaceConfig { states: 0, ..one }).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "model.state_space.states = 0: it must be at least 1");
    let same_length = AttentionConfig {
        kind: AttentionKind::TransformerXl,
        memory: 0,
        same_length: true,
        ..full()
    };
    let error = refused(full(), same_length, Positions::None);
    assert!(error.starts_with("model.decoder_attention.same_length = true lets"), "{error}");
    // Distances are encoded in pairs of columns.
    for width in [1, 9] {
        let decoder_attention =
            AttentionConfig { kind: AttentionKind::TransformerXl, ..AttentionConfig::default() };
        let shape = ModelConfig {
            d_model: width,
            heads: 1,
            positions: Positions::None,
            decoder_attention,
            ..tiny()
        };
        let model = Transformer::new(&shape, 19, 19, Builder::seeded(7, &Device::Cpu, DType::F32));
        let error = model.map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("model.decoder_attention.kind = \"transformer-xl\""), "{error}");
        assert!(error.ends_with(&format!("needs an even model.d_model, not {width}")), "{error}");
    }
    // This sequence is longer than the number of positions for which the model has weights.
    let short = AttentionConfig { rank: 2, length: 7, ..linformer() };
    let model = transformer(short, full(), Positions::Sinusoidal).unwrap();
    let error = logits(&model).unwrap_err().to_string();
    assert!(error.contains("a sequence of 8 tokens is longer than the 7"), "{error}");
}

/// Compares the number of operations that the formula gives with the counted operations in
/// products, and with numbers that were computed by hand.
#[test]
fn arithmetic_is_counted_before_it_is_done() -> TestResult {
    let full = AttentionConfig::default();
    let sparse = AttentionConfig { kind: AttentionKind::Sparse, window: 512, ..full.clone() };
    let linear = AttentionConfig { kind: AttentionKind::Linear, ..full.clone() };
    let of = |own: &AttentionConfig, causal| {
        let model = ModelConfig {
            d_model: 64,
            heads: 2,
            encoder_attention: if causal { full.clone() } else { own.clone() },
            decoder_attention: if causal { own.clone() } else { full.clone() },
            ..Default::default()
        };
        UnprojectedAttention::new(&model, causal, 0).unwrap()
    };
    let n = 4096.0;
    assert_eq!(of(&full, false).forward_flops(4096), 4.0 * n * n * 64.0);
    // Queries are computed in panels (groups of 32 queries). All queries of a panel use the keys
    // that the last of them sees.
    assert_eq!(of(&full, true).forward_flops(4096), 4.0 * n * (n + 32.0) / 2.0 * 64.0);
    // Keys are grouped into panels of 32 too. For a panel of queries, keys are used from the start
    // of a panel of keys on: the one that holds the first key in the window of the first query. The
    // first 16 panels of queries see fewer keys than the others.
    let pairs = n * 544.0 - 32.0 * 32.0 * (16.0 * 17.0 / 2.0);
    assert_eq!(of(&sparse, true).forward_flops(4096), 4.0 * pairs * 64.0);
    // In a short sequence, the scores of all pairs are computed.
    assert_eq!(of(&sparse, true).forward_flops(255), 4.0 * 255.0 * 255.0 * 64.0);
    assert_eq!(of(&linear, false).forward_flops(4096), 2.0 * 4.0 * n * 32.0 * 33.0);
    let random = AttentionConfig { kind: AttentionKind::Performer, features: 50, ..full.clone() };
    let (vectors, sums) = (2.0 * 2.0 * 50.0 * 32.0, 2.0 * 2.0 * 50.0 * 33.0);
    assert_eq!(of(&random, false).forward_flops(4096), 2.0 * n * (vectors + sums));
    let within = 2.0 * 64.0 * (50.0 + 33.0);
    // The first chunk reads no sums, and the last one stores none.
    let causal = 2.0 * (n * (vectors + within) + (n - 64.0) * sums);
    assert_eq!(of(&random, true).forward_flops(4096), causal);
    let levels = |chunk, levels| AttentionConfig {
        kind: AttentionKind::Hierarchical,
        chunk,
        levels,
        ..full.clone()
    };
    // A token attends to the 64 tokens of its own chunk, and to the summaries of the 63 other
    // chunks. With a causal mask, it attends to half as many summaries on average.
    assert_eq!(of(&levels(64, 1), false).forward_flops(4096), 4.0 * n * (64.0 + 63.0) * 64.0);
    assert_eq!(of(&levels(64, 1), true).forward_flops(4096), 4.0 * n * (64.0 + 31.5) * 64.0);
    // 4,096 is 16³. A token attends to 16 tokens, and to 15 summaries at each of two levels.
    assert_eq!(of(&levels(16, 9), false).forward_flops(4096), 4.0 * n * (16.0 + 30.0) * 64.0);
    let low = AttentionConfig { kind: AttentionKind::Linformer, rank: 10, ..full.clone() };
    assert_eq!(of(&low, false).forward_flops(512), 4.0 * 2.0 * 512.0 * 10.0 * 64.0);
    // Other tests run at the same time and are counted too, but they multiply far less.
    let wide = AttentionConfig { window: 2048, ..sparse };
    for (own, causal) in [(&full, false), (&full, true), (&wide, true), (&wide, false)] {
        let attention = of(own, causal);
        let qkv = Tensor::zeros((8192, 192), DType::F32, &Device::Cpu)?;
        taper_ops::profile::start();
        attention.attend(&qkv, &[8192].into(), &Pass::evaluate())?;
        let counted = taper_ops::profile::stop().flops as f64;
        let ratio = counted / attention.forward_flops(8192);
        assert!((1.0..1.05).contains(&ratio), "{:?}, causal {causal}: {ratio}", own.kind);
    }
    let of_kind = |kind| AttentionConfig { kind, ..full.clone() };
    let (mamba, s4d) = (of_kind(AttentionKind::Mamba), of_kind(AttentionKind::S4d));
    for (own, causal) in [(&mamba, true), (&mamba, false), (&s4d, true)] {
        let layer = of(own, causal);
        let gated = Tensor::zeros((8192, layer.input_width()), DType::F32, &Device::Cpu)?;
        taper_ops::profile::start();
        layer.attend(&gated, &[8192].into(), &Pass::evaluate())?;
        let counted = taper_ops::profile::stop().flops as f64;
        let ratio = counted / layer.forward_flops(8192);
        assert!((1.0..1.05).contains(&ratio), "{:?}, causal {causal}: {ratio}", own.kind);
    }
    Ok(())
}
