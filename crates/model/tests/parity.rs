//! Tests that compare the loss, the logits and every gradient with those of PyTorch. The values of
//! PyTorch are in golden files, which come from `scripts/golden/translation/transformer.py` and
//! `recurrent.py`.

mod common;

use candle_core::{DType, Device};
use common::{TestResult, compare_gradients, fill, golden, ids, lengths, load, relative};
use taper_model::{
    ActivationKind, Architecture, Batch, Builder, CellKind, ConvolutionalConfig, FeedForwardKind,
    Guidance, Model, ModelConfig, NormKind, NormPlacement, Objective, Pass, Positions,
    RecurrentAttention, RecurrentConfig, Sequences, SinusoidFrequencies, Tied, Transformer,
};
use taper_ops::Gradients;

fn check(name: &str, config: ModelConfig, vocab_source: usize, device: &Device) -> TestResult {
    let file = golden(&format!("translation/{name}"));
    let model =
        Transformer::new(&config, vocab_source, 37, Builder::seeded(1, device, DType::F32))?;
    load(&model, &file);
    let source =
        Sequences { ids: ids(&file["source_ids"]), lengths: lengths(&file["source_lengths"]) };
    let target_in =
        Sequences { ids: ids(&file["target_in_ids"]), lengths: lengths(&file["target_lengths"]) };
    let target_out = ids(&file["target_out_ids"]);

    let evaluate = Pass::evaluate();
    let memory = model.encode(&source, &evaluate)?;
    let encoder_error =
        relative(&memory.hidden().to_device(&Device::Cpu)?, &file["encoder_output"]);
    assert!(encoder_error < 1e-5, "{name}: encoder output {encoder_error}");
    let logits = model.logits(&model.decode(&target_in, &memory, &evaluate)?, &evaluate)?;
    let logits_error = relative(&logits.to_device(&Device::Cpu)?, &file["logits"]);
    assert!(logits_error < 1e-5, "{name}: logits {logits_error}");

    // A training pass tracks gradients. It is deterministic, because the dropout rates of the model
    // are zero.
    let scale = 1.0 / target_out.len() as f64;
    let pass = Pass::train(1, 1, 0);
    let batch = Batch::new(vec![source, target_in], target_out);
    let output = model.loss(&batch, &Objective::smoothed(0.1), scale, &pass)?;
    let (loss, nll) = (file["loss"].to_scalar::<f32>()?, file["nll"].to_scalar::<f32>()?);
    assert!((output.smoothed_sum * scale / f64::from(loss) - 1.0).abs() < 1e-5, "{name}: loss");
    assert!((output.nll_sum * scale / f64::from(nll) - 1.0).abs() < 1e-5, "{name}: nll");
    assert!((output.loss.to_scalar::<f32>()? / loss - 1.0).abs() < 1e-5, "{name}: loss tensor");

    let mut gradients = Gradients::new(model.parameters())?;
    common::backward(pass, &output, model.parameters(), &mut gradients)?;
    let flat = gradients.flat()?.to_device(&Device::Cpu)?;
    compare_gradients(name, &model, &flat, &file);
    Ok(())
}

fn small() -> ModelConfig {
    ModelConfig {
        d_model: 32,
        d_ff: 64,
        heads: 4,
        encoder_layers: 2,
        decoder_layers: 2,
        ..ModelConfig::default().with_dropout(0.0)
    }
}

fn all(device: &Device) -> TestResult {
    check("transformer-pre", small(), 37, device)?;
    check("transformer-post", ModelConfig { norm: NormPlacement::Post, ..small() }, 37, device)?;
    let untied = ModelConfig {
        activation: ActivationKind::Gelu,
        tied: Tied::None,
        decoder_layers: 1,
        ..small()
    };
    check("transformer-untied-gelu", untied, 41, device)?;
    let swish = ModelConfig {
        activation: ActivationKind::Swish,
        tied: Tied::Decoder,
        norm: NormPlacement::Post,
        ..small()
    };
    check("transformer-decoder-tied-swish", swish, 41, device)?;
    let norm_and_bias = ModelConfig {
        activation: ActivationKind::Gelu,
        embedding_norm: true,
        output_bias: true,
        ..small()
    };
    check("transformer-embedding-norm-output-bias", norm_and_bias, 37, device)?;
    let of_m2m100 = ModelConfig {
        positions: Positions::SinusoidalHalves,
        sinusoid_frequencies: SinusoidFrequencies::Tensor2Tensor,
        position_offset: 2,
        ..small()
    };
    check("transformer-sinusoids-from-2", of_m2m100, 37, device)?;
    let of_bart = ModelConfig {
        activation: ActivationKind::Gelu,
        norm: NormPlacement::Post,
        positions: Positions::Learned,
        max_positions: 9,
        position_offset: 2,
        ..small()
    };
    check("transformer-learned-from-2", of_bart, 37, device)?;
    let gated = |activation, norm_kind| ModelConfig {
        activation,
        norm_kind,
        feed_forward: FeedForwardKind::Gated,
        ..small()
    };
    let swiglu = ModelConfig { biases: false, ..gated(ActivationKind::Swish, NormKind::Rms) };
    check("transformer-rms-swiglu", swiglu, 37, device)?;
    let geglu = ModelConfig {
        norm: NormPlacement::Post,
        tied: Tied::Decoder,
        embedding_norm: true,
        ..gated(ActivationKind::Gelu, NormKind::LayerWithoutBias)
    };
    check("transformer-norm-without-bias-geglu", geglu, 41, device)?;
    let reglu = ModelConfig {
        norm: NormPlacement::Post,
        tied: Tied::None,
        decoder_layers: 1,
        output_bias: true,
        ..gated(ActivationKind::Relu, NormKind::Rms)
    };
    check("transformer-rms-reglu", reglu, 41, device)
}

/// Compares models of the time before the Transformer with models that are made of `torch.nn.GRU`,
/// `torch.nn.LSTM` and their cells, of `conv1d` and of `glu`.
fn others(device: &Device) -> TestResult {
    let (gru, lstm) = (CellKind::Gru, CellKind::Lstm);
    let recurrent = |cell, attention| ModelConfig {
        architecture: Architecture::Recurrent,
        d_model: 16,
        recurrent: RecurrentConfig { cell, width: 10, attention, bidirectional: true },
        ..small()
    };
    let additive = recurrent(gru, RecurrentAttention::Additive);
    check("recurrent-gru-additive", additive, 37, device)?;
    let additive = ModelConfig {
        tied: Tied::Decoder,
        encoder_layers: 1,
        decoder_layers: 1,
        ..recurrent(lstm, RecurrentAttention::Additive)
    };
    check("recurrent-lstm-additive", additive, 41, device)?;
    let mut none = recurrent(lstm, RecurrentAttention::None);
    none.recurrent.bidirectional = false;
    check("recurrent-lstm-none", none, 37, device)?;
    let dot = ModelConfig {
        tied: Tied::None,
        encoder_layers: 1,
        ..recurrent(gru, RecurrentAttention::Dot)
    };
    check("recurrent-gru-dot", dot, 41, device)?;
    let convolutional = ModelConfig {
        architecture: Architecture::Convolutional,
        d_model: 16,
        convolutional: ConvolutionalConfig { kernel: 3 },
        ..small()
    };
    check("convolutional", convolutional, 37, device)
}

#[test]
fn pytorch_agrees() -> TestResult {
    all(&Device::Cpu)
}

#[test]
fn pytorch_agrees_on_layers_of_before_the_transformer() -> TestResult {
    others(&Device::Cpu)
}

/// Compares the loss of guided alignment, and all gradients, with PyTorch
/// (`scripts/golden/translation/guided_alignment.py`). The cases are: fused operations (each does
/// the work of several Candle operations), plain Candle operations, a batch that is divided, and a
/// batch that passes through the model twice (R-Drop).
#[test]
fn pytorch_agrees_on_guided_alignment() -> TestResult {
    let (file, guided) =
        (golden("translation/transformer-pre"), golden("translation/guided-alignment"));
    let model = Transformer::new(&small(), 37, 37, Builder::seeded(1, &Device::Cpu, DType::F32))?;
    fill(&model, &file);
    let stream = |kind: &str, lengths_of: &str| Sequences {
        ids: ids(&file[&format!("{kind}_ids")]),
        lengths: lengths(&file[&format!("{lengths_of}_lengths")]),
    };
    let streams = vec![stream("source", "source"), stream("target_in", "target")];
    let links = guided["links"].to_vec2::<u32>()?.iter().map(|row| (row[0], row[1])).collect();
    let batch = Batch { links, ..Batch::new(streams, ids(&file["target_out_ids"])) };
    // By default, the layer before the last is guided. In this model, it is the first of two.
    let guidance = Some(Guidance { weight: 0.3, layer: None, head: 2 });
    let once = Objective { guidance, ..Objective::smoothed(0.1) };
    let twice = Objective { r_drop: 1.0, ..once };
    let scale = 1.0 / batch.tokens() as f64;
    let whole = vec![batch.clone()];
    let parts = batch.divided(5);
    let cases = [
        ("fused", &whole, once, false),
        ("composed", &whole, once, true),
        ("in parts", &parts, once, false),
        ("twice", &whole, twice, false),
    ];
    for (case, batches, objective, is_composed) in cases {
        let mut gradients = Gradients::new(model.parameters())?;
        let (mut loss, mut objective_sum) = (0.0, 0.0);
        for batch in batches {
            let pass = Pass::train(1, 1, 0);
            let pass = if is_composed { pass.composed() } else { pass };
            let output = model.loss(batch, &objective, scale, &pass)?;
            loss += f64::from(output.loss.to_scalar::<f32>()?);
            objective_sum += output.objective_sum * scale;
            common::backward(pass, &output, model.parameters(), &mut gradients)?;
        }
        let theirs = f64::from(guided["loss"].to_scalar::<f32>()?);
        assert!((loss / theirs - 1.0).abs() < 1e-5, "{case}: {loss} {theirs}");
        assert!((objective_sum / theirs - 1.0).abs() < 1e-5, "{case}: {objective_sum} {theirs}");
        compare_gradients(case, &model, gradients.flat()?, &guided);
    }
    // In an evaluation without links, guidance does not change the objective.
    let loss = |batch: &Batch, objective: Objective| {
        let output = model.loss(batch, &objective, scale, &Pass::evaluate());
        output.map(|output| output.objective_sum)
    };
    let plain = loss(&batch, Objective::smoothed(0.1))?;
    assert_eq!(loss(&Batch { links: Vec::new(), ..batch.clone() }, once)?, plain);
    // Impossible guidance is refused.
    let refused = |batch: &Batch, guidance| {
        let objective = Objective { guidance: Some(guidance), ..once };
        loss(batch, objective).expect_err("refused").to_string()
    };
    let of = |layer, head| Guidance { weight: 0.3, layer, head };
    assert!(refused(&batch, of(Some(2), 0)).contains("layer 3 and head 1"));
    assert!(refused(&batch, of(None, 4)).contains("2 layers of 4 heads"));
    let astray = Batch { links: vec![(0, 7)], ..batch };
    assert!(refused(&astray, of(None, 0)).contains("pair 1 with one of another"));
    Ok(())
}

/// Compares on a GPU, if this machine and this build have one.
#[test]
#[cfg(feature = "cuda")]
fn pytorch_agrees_on_cuda() -> TestResult {
    all(&taper_ops::device::cuda(0)?)?;
    others(&taper_ops::device::cuda(0)?)
}
