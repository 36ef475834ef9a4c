//! Equivalences that hold whatever the numbers are: cached decoding is full decoding, a batch is
//! its sentences, a training step reaches every parameter, and a seed is a model.

mod common;

use candle_core::{DType, Device, Tensor};
use common::ALL_POSITIONS;
use taper_model::{
    Architecture, Batch, Builder, CellKind, ConvolutionalConfig, DecodeState, Inference,
    LanguageModel, Model, ModelConfig, ModelError, NormPlacement, Objective, Pass, Positions,
    RecurrentAttention, RecurrentConfig, Sequences, Tied, Transformer,
};
use taper_ops::Gradients;

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn config(norm: NormPlacement, positions: Positions) -> ModelConfig {
    ModelConfig {
        d_model: 24,
        d_ff: 40,
        heads: 3,
        encoder_layers: 2,
        decoder_layers: 2,
        norm,
        positions,
        ..Default::default()
    }
}

fn model(norm: NormPlacement, positions: Positions) -> Transformer {
    Transformer::new(&config(norm, positions), 19, 19, Builder::seeded(7, &Device::Cpu, DType::F32))
        .unwrap()
}

fn every(check: impl Fn(&Transformer, &str) -> TestResult) -> TestResult {
    for norm in [NormPlacement::Pre, NormPlacement::Post] {
        for positions in ALL_POSITIONS {
            check(&model(norm, positions), &format!("{norm:?} {positions:?}"))?;
        }
    }
    for (config, name) in others() {
        let model =
            Transformer::new(&config, 19, 19, Builder::seeded(7, &Device::Cpu, DType::F32))?;
        check(&model, &name)?;
    }
    Ok(())
}

/// Each architecture but the Transformer, in each of its kinds.
fn others() -> Vec<(ModelConfig, String)> {
    let base = config(NormPlacement::Pre, Positions::Sinusoidal);
    let mut all = Vec::new();
    for cell in [CellKind::Gru, CellKind::Lstm] {
        for attention in
            [RecurrentAttention::None, RecurrentAttention::Additive, RecurrentAttention::Dot]
        {
            let bidirectional = cell == CellKind::Gru;
            let recurrent = RecurrentConfig { cell, width: 20, attention, bidirectional };
            let architecture = Architecture::Recurrent;
            let name = format!("{recurrent:?}");
            all.push((ModelConfig { architecture, recurrent, ..base.clone() }, name));
        }
    }
    let convolutional = ConvolutionalConfig { kernel: 5 };
    let architecture = Architecture::Convolutional;
    let config = ModelConfig { architecture, convolutional, ..base };
    all.push((config, "convolutional".to_owned()));
    all
}

fn largest_difference(a: &Tensor, b: &Tensor) -> f32 {
    (a - b).unwrap().abs().unwrap().flatten_all().unwrap().max(0).unwrap().to_scalar().unwrap()
}

const SOURCES: [&[u32]; 3] = [&[4, 5, 6, 7, 3], &[8, 3], &[9, 10, 11, 3]];
const TARGETS: [&[u32]; 3] = [&[2, 12, 13, 14, 15], &[2, 5, 4, 6, 7], &[2, 16, 17, 18, 4]];

fn full_logits(
    model: &Transformer,
    sources: &[&[u32]],
    targets: &[&[u32]],
) -> Result<Tensor, taper_model::ModelError> {
    let pass = Pass::evaluate();
    let memory = model.encode(&Sequences::pack(sources), &pass)?;
    model.logits(&model.decode(&Sequences::pack(targets), &memory, &pass)?, &pass)
}

/// The logits of all rows.
fn step(
    inference: &Inference,
    state: &mut DecodeState,
    tokens: &[u32],
) -> Result<Tensor, ModelError> {
    let blocks = inference.step(state, tokens)?.collect::<Result<Vec<_>, _>>()?;
    Ok(Tensor::cat(&blocks, 0)?)
}

/// Seven layers in segments of three, with dropout.
#[test]
fn layers_that_are_computed_again_give_the_same_bits() -> TestResult {
    for positions in [Positions::T5, Positions::Rotary] {
        let own = config(NormPlacement::Pre, positions);
        let own = ModelConfig { encoder_layers: 7, decoder_layers: 5, ..own };
        let model = Transformer::new(&own, 19, 19, Builder::seeded(7, &Device::Cpu, DType::F32))?;
        let streams = vec![Sequences::pack(&SOURCES), Sequences::pack(&TARGETS)];
        let batch = Batch::new(streams, (0..15).collect());
        let of = |checkpoints| -> Result<(f32, Vec<f32>), ModelError> {
            let pass = Pass::train(1, 1, 0).checkpointed(checkpoints);
            let output = model.loss(&batch, &Objective::smoothed(0.1), 0.1, &pass)?;
            let mut gradients = Gradients::new(model.parameters())?;
            let loss = output.loss.to_scalar()?;
            common::backward(pass, &output, model.parameters(), &mut gradients)?;
            Ok((loss, gradients.flat()?.to_vec1()?))
        };
        assert_eq!(of(true)?, of(false)?, "{positions:?}");
    }
    Ok(())
}

#[test]
fn parameters_are_counted_before_they_are_made() -> TestResult {
    every(|made, name| {
        for (tied, biases, vocab_source) in
            [(Tied::All, true, 19), (Tied::Decoder, false, 23), (Tied::None, true, 23)]
        {
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
    let cost = Transformer::cost_of(&huge, usize::MAX, usize::MAX, &Device::Cpu);
    assert_eq!((cost.parameters, cost.training_flops()), (u64::MAX, u64::MAX));
    assert_eq!(cost.activation_bytes(&[usize::MAX; 2]), u64::MAX);
    Ok(())
}

#[test]
fn the_cost_of_the_base_model_by_hand() {
    let config = ModelConfig::default();
    let cost = Transformer::cost_of(&config, 1000, 1000, &Device::Cpu);
    let d = 512u64;
    let [source, target] = cost.streams.as_slice() else { panic!("two streams") };
    assert_eq!(source.forward_flops, 2 * (6 * (4 * d * d + 2 * d * 2048) + 6 * 2 * d * d));
    assert_eq!(target.forward_flops, 2 * (6 * (6 * d * d + 2 * d * 2048) + d * 1000));
    assert_eq!(cost.training_flops(), 3 * (source.forward_flops + target.forward_flops));
    // Inputs and outputs of two norms, queries, keys and values, what attention gives and its
    // projection, the inner layer twice and the outer; keys and values for the decoder.
    assert_eq!(source.activation_bytes, 4 * 6 * (4 * d + 5 * d + 2 * 2048 + d + 2 * d));
    assert_eq!(target.activation_bytes, 4 * 6 * (6 * d + 8 * d + 2 * 2048 + d));
    // The loss of the CPU keeps no logits.
    let larger = Transformer::cost_of(&config, 1000, 100_000, &Device::Cpu);
    assert_eq!(larger.activation_bytes(&[7, 9]), cost.activation_bytes(&[7, 9]));
}

#[test]
fn asked_rows_alone_are_answered() -> TestResult {
    every(|model, name| {
        let streams = vec![Sequences::pack(&SOURCES), Sequences::pack(&TARGETS)];
        let answers: Vec<u32> = (0..15).collect();
        let objective = Objective::smoothed(0.1);
        let (asked, rest): (Vec<u32>, Vec<u32>) = (0..15).partition(|row| row % 4 == 1);
        let run = |asked: Option<Vec<u32>>| {
            let answers = asked.clone().unwrap_or_else(|| answers.clone());
            let batch = Batch { asked, ..Batch::new(streams.clone(), answers) };
            let pass = Pass::train(1, 1, 0);
            let output = model.loss(&batch, &objective, 1.0, &pass).unwrap();
            let mut gradients = Gradients::new(model.parameters()).unwrap();
            common::backward(pass, &output, model.parameters(), &mut gradients).unwrap();
            (output, gradients.flat().unwrap().clone())
        };
        let ((some, some_gradient), (others, others_gradient), (all, gradient)) =
            (run(Some(asked.clone())), run(Some(rest.clone())), run(None));
        assert_eq!((some.tokens, others.tokens), (4, 11));
        let sum = some.smoothed_sum + others.smoothed_sum;
        assert!((sum / all.smoothed_sum - 1.0).abs() < 1e-5, "{name}: {sum}");
        let error = largest_difference(&(some_gradient + others_gradient)?, &gradient);
        assert!(error < 1e-4, "{name}: {error}");
        Ok(())
    })
}

#[test]
fn cached_decoding_is_full_decoding() -> TestResult {
    every(|model, name| {
        let full = full_logits(model, &SOURCES, &TARGETS)?.reshape((3, 5, 19))?;
        let inference = model.inference();
        let mut state = inference.start(&Sequences::pack(&SOURCES))?;
        for t in 0..5 {
            let tokens: Vec<u32> = TARGETS.iter().map(|target| target[t]).collect();
            let error = largest_difference(
                &step(&inference, &mut state, &tokens)?,
                &full.narrow(1, t, 1)?.squeeze(1)?,
            );
            assert!(error < 2e-5, "{name}: step {t}: {error}");
        }
        Ok(())
    })
}

#[test]
fn selected_rows_carry_their_past() -> TestResult {
    every(|model, name| {
        let inference = model.inference();
        let mut state = inference.start(&Sequences::pack(&SOURCES))?;
        step(&inference, &mut state, &[2, 2, 2])?;
        // Two hypotheses for the first source, none for the second, one for the third.
        state.select(&[0, 0, 2])?;
        step(&inference, &mut state, &[12, 13, 16])?;
        state.select(&[2, 1, 0])?;
        let logits = step(&inference, &mut state, &[17, 5, 6])?;
        for (row, (source, target)) in
            [(2, [2, 16, 17]), (0, [2, 13, 5]), (0, [2, 12, 6])].into_iter().enumerate()
        {
            let full = full_logits(model, &[SOURCES[source]], &[&target])?;
            let error = largest_difference(&logits.get(row)?, &full.get(2)?);
            assert!(error < 2e-5, "{name}: row {row}: {error}");
        }
        assert!(state.select(&[3]).is_err());
        Ok(())
    })
}

#[test]
fn a_batch_is_its_sentences() -> TestResult {
    every(|model, name| {
        let batch = full_logits(model, &SOURCES, &TARGETS)?;
        for i in 0..3 {
            let alone = full_logits(model, &SOURCES[i..=i], &TARGETS[i..=i])?;
            let error = largest_difference(&batch.narrow(0, 5 * i, 5)?, &alone);
            assert!(error < 2e-5, "{name}: sentence {i}: {error}");
        }
        Ok(())
    })
}

#[test]
fn every_parameter_gets_a_gradient_and_a_step_can_be_repeated() -> TestResult {
    every(|model, name| {
        let out: Vec<u32> =
            TARGETS.iter().flat_map(|target| target[1..].iter().copied().chain([3])).collect();
        let run = |step| {
            let pass = Pass::train(5, step, 0);
            let streams = vec![Sequences::pack(&SOURCES), Sequences::pack(&TARGETS)];
            let batch = Batch::new(streams, out.clone());
            let output = model.loss(&batch, &Objective::smoothed(0.1), 1.0, &pass).unwrap();
            let mut gradients = Gradients::new(model.parameters()).unwrap();
            common::backward(pass, &output, model.parameters(), &mut gradients)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            (output.smoothed_sum, gradients)
        };
        let (loss, mut gradients) = run(1);
        for parameter in model.parameters().parameters() {
            let gradient = gradients.flat()?.narrow(0, parameter.offset(), parameter.len())?;
            let norm = gradient.sqr()?.sum_all()?.to_scalar::<f32>()?;
            assert!(
                norm > 0.0 && norm.is_finite(),
                "{name}: gradient of {} has norm {norm}",
                parameter.name()
            );
        }
        assert_eq!(loss.to_bits(), run(1).0.to_bits(), "{name}: the same step gives another loss");
        assert_ne!(
            loss.to_bits(),
            run(2).0.to_bits(),
            "{name}: another step drops the same elements"
        );
        Ok(())
    })
}

#[test]
fn one_seed_is_one_model() -> TestResult {
    let flat = |seed| {
        let config = config(NormPlacement::Pre, Positions::Learned);
        let model =
            Transformer::new(&config, 19, 19, Builder::seeded(seed, &Device::Cpu, DType::F32))
                .unwrap();
        model.parameters().flat().unwrap().to_vec1::<f32>().unwrap()
    };
    assert_eq!(flat(1), flat(1));
    assert_ne!(flat(1), flat(2));
    Ok(())
}

/// A head that is masked gives what it would if the output projection did not read it: in training
/// passes, fused and composed, and in others, for each kind of attention layer.
#[test]
fn a_masked_head_is_one_that_is_not_read() -> TestResult {
    let answers: Vec<u32> = (0..15).map(|i| i % 19).collect();
    let streams = vec![Sequences::pack(&SOURCES), Sequences::pack(&TARGETS)];
    let batch = Batch::new(streams, answers);
    let plain = ModelConfig {
        embedding_dropout: 0.0,
        attention_dropout: 0.0,
        feed_forward_dropout: 0.0,
        residual_dropout: 0.0,
        ..config(NormPlacement::Pre, Positions::Rotary)
    };
    let layers = [
        "encoder.layers.1.self_attention",
        "decoder.layers.0.self_attention",
        "decoder.layers.1.cross_attention",
    ];
    for layer in layers {
        let model = Transformer::new(&plain, 19, 19, Builder::seeded(7, &Device::Cpu, DType::F32))?;
        let loss = |pass: Pass| -> Result<f64, ModelError> {
            Ok(model.loss(&batch, &Objective::smoothed(0.1), 1.0, &pass)?.objective_sum)
        };
        let passes: [&dyn Fn() -> Pass; 3] =
            [&Pass::evaluate, &|| Pass::train(1, 1, 0), &|| Pass::train(1, 1, 0).composed()];
        let whole = loss(Pass::evaluate())?;
        let masked = passes
            .map(|pass| loss(pass().without_head(layer, 1)))
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        let gradient = |pass: Pass| -> Result<Vec<f32>, Box<dyn std::error::Error>> {
            let output = model.loss(&batch, &Objective::smoothed(0.1), 1.0, &pass)?;
            let mut gradients = Gradients::new(model.parameters())?;
            common::backward(pass, &output, model.parameters(), &mut gradients)?;
            let values =
                model.parameters().parameters().iter().find(|own| own.name().contains(layer));
            let first = values.expect("a parameter of the layer");
            Ok(gradients.flat()?.narrow(0, first.offset(), first.len())?.to_vec1()?)
        };
        let fused = gradient(Pass::train(1, 1, 0).without_head(layer, 1))?;
        let composed = gradient(Pass::train(1, 1, 0).composed().without_head(layer, 1))?;
        let apart = fused.iter().zip(&composed).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-4, "{layer}: gradients are {apart} apart");
        // The columns of the second of three heads, in the projection of what they give.
        let name = format!("{layer}.out.weight");
        let out = model.parameters().parameters().iter().find(|own| own.name() == name);
        let out = out.expect("the output projection");
        let mut values = out.var().as_tensor().to_vec2::<f32>()?;
        values.iter_mut().for_each(|row| row[8..16].fill(0.0));
        out.var().set(&Tensor::new(values, &Device::Cpu)?)?;
        let unread = loss(Pass::evaluate())?;
        for loss in masked {
            assert!((loss - unread).abs() < 1e-4 * unread, "{layer}: {loss} {unread}");
        }
        assert!((whole - unread).abs() > 1e-4 * unread, "{layer}: the head does nothing");
    }
    Ok(())
}

#[test]
fn attention_can_be_seen() -> TestResult {
    let model = model(NormPlacement::Pre, Positions::Alibi);
    let pass = Pass::evaluate_with_attention();
    let memory = model.encode(&Sequences::pack(&SOURCES), &pass)?;
    model.decode(&Sequences::pack(&TARGETS), &memory, &pass)?;
    let records = pass.into_attention();
    let names: Vec<&str> = records.iter().map(|record| record.layer.as_str()).collect();
    assert_eq!(names.len(), 2 + 4);
    assert_eq!(names[0], "encoder.layers.0.self_attention");
    let cross = records
        .iter()
        .find(|record| record.layer == "decoder.layers.1.cross_attention")
        .ok_or("no cross attention")?;
    assert_eq!(cross.weights.dims(), [3, 3, 5, 5]);
    let sums = cross.weights.sum(3)?.flatten_all()?.to_vec1::<f32>()?;
    assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5));

    // One layer alone gives the same, and nothing of the others is held.
    let pass = Pass::evaluate_with_attention_of("decoder.layers.1.cross_attention");
    model.decode(&Sequences::pack(&TARGETS), &memory, &pass)?;
    let only = pass.into_attention();
    assert_eq!((only.len(), &only[0].layer), (1, &cross.layer));
    assert_eq!(
        only[0].weights.flatten_all()?.to_vec1::<f32>()?,
        cross.weights.flatten_all()?.to_vec1::<f32>()?
    );
    Ok(())
}

/// The weights by which a model says that it aligns are those of the pass that it makes, and sum to
/// one; without attention there are none.
#[test]
fn attention_of_each_architecture_can_be_seen() -> TestResult {
    for (config, name) in others() {
        let model =
            Transformer::new(&config, 19, 19, Builder::seeded(7, &Device::Cpu, DType::F32))?;
        let is_seen = config.architecture == Architecture::Convolutional
            || config.recurrent.attention != RecurrentAttention::None;
        let layer = model.aligning_layer();
        assert_eq!(layer.is_some(), is_seen, "{name}");
        let Some(layer) = layer else { continue };
        let pass = Pass::evaluate_with_attention_of(&layer);
        let encoded = model.encode(&Sequences::pack(&SOURCES), &pass)?;
        model.decode(&Sequences::pack(&TARGETS), &encoded, &pass)?;
        let records = pass.into_attention();
        assert_eq!((records.len(), &records[0].layer), (1, &layer), "{name}");
        assert_eq!(records[0].weights.dims(), [3, 1, 5, 5], "{name}");
        let sums = records[0].weights.sum(3)?.flatten_all()?.to_vec1::<f32>()?;
        assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5), "{name}: {sums:?}");
        // The second source has two tokens.
        let beyond = records[0].weights.narrow(0, 1, 1)?.narrow(3, 2, 3)?.sum_all()?;
        assert_eq!(beyond.to_scalar::<f32>()?, 0.0, "{name}");
    }
    Ok(())
}

/// Rounded weights decode: in int8 as in f32, but for what rounding changes.
#[test]
fn each_architecture_decodes_in_int8() -> TestResult {
    for (config, name) in others() {
        let mut model =
            Transformer::new(&config, 19, 19, Builder::seeded(7, &Device::Cpu, DType::F32))?;
        let logits = |model: &Transformer| -> Result<Tensor, ModelError> {
            let inference = model.inference();
            let mut state = inference.start(&Sequences::pack(&SOURCES))?;
            step(&inference, &mut state, &[2, 2, 2])?;
            step(&inference, &mut state, &[12, 5, 16])
        };
        let exact = logits(&model)?;
        model.round_to_int8()?;
        let error = largest_difference(&logits(&model)?, &exact);
        assert!(error > 0.0 && error < 0.2, "{name}: {error}");
    }
    Ok(())
}

#[test]
fn recurrent_layers_note_the_gradients_by_their_states() -> TestResult {
    for (config, name) in others() {
        let model =
            Transformer::new(&config, 19, 19, Builder::seeded(7, &Device::Cpu, DType::F32))?;
        let pass = Pass::train(1, 1, 0).noting_states();
        let streams = vec![Sequences::pack(&SOURCES), Sequences::pack(&TARGETS)];
        let out: Vec<u32> = (4..19).collect();
        let output =
            model.loss(&Batch::new(streams, out), &Objective::smoothed(0.1), 1.0, &pass)?;
        let noted = pass.state_gradients();
        let mut gradients = Gradients::new(model.parameters())?;
        common::backward(pass, &output, model.parameters(), &mut gradients)?;
        let layers: Vec<&str> = noted.iter().map(|(layer, _)| layer.as_str()).collect();
        if config.architecture == Architecture::Convolutional {
            assert!(layers.is_empty());
            continue;
        }
        assert_eq!(layers[0], "encoder.layers.0.forward", "{name}");
        for (layer, of_layer) in &noted {
            let rows = if layer.starts_with("encoder") { 11 } else { 15 };
            let norms = of_layer.norms();
            assert_eq!(norms.len(), rows, "{name} {layer}");
            assert!(norms.iter().all(|norm| norm.is_finite()), "{name} {layer}");
            assert!(norms.iter().any(|norm| *norm > 0.0), "{name} {layer}");
        }
    }
    Ok(())
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
        let cost = Transformer::cost_of(&huge, usize::MAX, usize::MAX, &Device::Cpu);
        assert_eq!(cost.parameters, u64::MAX);
    }
}
