//! Tests of what can be observed in a model: attention, the effect of masked heads, and gradients
//! with respect to states.

use candle_core::{DType, Device, Tensor};
use taper_model::{
    Architecture, Batch, Builder, Model, ModelConfig, ModelError, NormPlacement, Objective, Pass,
    Positions, RecurrentAttention, Sequences, Transformer,
};
use taper_ops::Gradients;

use super::{SOURCES, TARGETS, TestResult, common, config, model, others};

/// Checks that a masked head has the same effect as zeros in the columns of the output projection
/// that read this head. Each kind of attention layer is checked in three passes: evaluation,
/// training with fused operations (each in place of several of Candle's), and training with plain
/// Candle operations.
#[test]
fn a_masked_head_is_one_that_is_not_read() -> TestResult {
    let answers: Vec<u32> = (0..15).map(|i| i % 19).collect();
    let streams = vec![Sequences::pack(&SOURCES), Sequences::pack(&TARGETS)];
    let batch = Batch::new(streams, answers);
    let plain = ModelConfig { ..config(NormPlacement::Pre, Positions::Rotary).with_dropout(0.0) };
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
            let values = model
                .parameters()
                .parameters()
                .iter()
                .find(|parameter| parameter.name().contains(layer));
            let first = values.expect("a parameter of the layer");
            Ok(gradients.flat()?.narrow(0, first.offset(), first.len())?.to_vec1()?)
        };
        let fused = gradient(Pass::train(1, 1, 0).without_head(layer, 1))?;
        let composed = gradient(Pass::train(1, 1, 0).composed().without_head(layer, 1))?;
        let apart = common::largest_of(fused.iter().zip(&composed).map(|(a, b)| a - b));
        assert!(apart < 1e-4, "{layer}: gradients are {apart} apart");
        // Sets the columns of the output projection to zero that read the second of three heads.
        let name = format!("{layer}.out.weight");
        let out = model.parameters().parameters().iter().find(|parameter| parameter.name() == name);
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

    // If only one layer is recorded, its weights are the same, and nothing is kept of the other
    // layers.
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

/// Checks that a pass records the weights by which a model aligns targets with sources, and that
/// they sum to one. A model without attention must have no such layer.
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
