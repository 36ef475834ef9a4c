//! Loss, logits and every gradient against PyTorch, from the golden files of
//! `scripts/golden/transformer.py` and `recurrent.py`.

mod common;

use candle_core::{DType, Device};
use common::{golden, ids, lengths, relative};
use taper_model::{
    ActivationKind, Architecture, Batch, CellKind, ConvolutionalConfig, Model, ModelConfig,
    NormPlacement, Objective, Pass, RecurrentAttention, RecurrentConfig, Sequences, Tied,
    Transformer,
};
use taper_ops::Gradients;

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn check(name: &str, config: ModelConfig, vocab_source: usize, device: &Device) -> TestResult {
    let file = golden(name);
    let model = Transformer::new(&config, vocab_source, 37, 1, device, DType::F32)?;
    for parameter in model.parameters().parameters() {
        let value = file
            .get(parameter.name())
            .unwrap_or_else(|| panic!("the golden file has no {}", parameter.name()));
        parameter.var().set(&value.to_device(device)?)?;
    }
    let gradients_stored = file.keys().filter(|key| key.starts_with("grad.")).count();
    assert_eq!(
        gradients_stored,
        model.parameters().parameters().len(),
        "the golden file has other parameters"
    );

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

    // The model's dropout rates are zero, so that a training pass is deterministic and tracks
    // gradients.
    let scale = 1.0 / target_out.len() as f64;
    let pass = Pass::train(1, 1, 0);
    let batch = Batch::new(vec![source, target_in], target_out);
    let output = model.loss(&batch, &Objective::smoothed(0.1), scale, &pass)?;
    let (loss, nll) = (file["loss"].to_scalar::<f32>()?, file["nll"].to_scalar::<f32>()?);
    assert!((output.smoothed_sum * scale / f64::from(loss) - 1.0).abs() < 1e-5, "{name}: loss");
    assert!((output.nll_sum * scale / f64::from(nll) - 1.0).abs() < 1e-5, "{name}: nll");
    assert!((output.loss.to_scalar::<f32>()? / loss - 1.0).abs() < 1e-5, "{name}: loss tensor");

    let mut gradients = Gradients::new(model.parameters())?;
    pass.backward(&output, model.parameters(), &mut gradients)?;
    let flat = gradients.flat()?.to_device(&Device::Cpu)?;
    for parameter in model.parameters().parameters() {
        let ours =
            flat.narrow(0, parameter.offset(), parameter.len())?.reshape(parameter.shape())?;
        let error = relative(&ours, &file[&format!("grad.{}", parameter.name())]);
        assert!(error < 1e-5, "{name}: gradient of {}: {error}", parameter.name());
    }
    Ok(())
}

fn small() -> ModelConfig {
    ModelConfig {
        d_model: 32,
        d_ff: 64,
        heads: 4,
        encoder_layers: 2,
        decoder_layers: 2,
        embedding_dropout: 0.0,
        attention_dropout: 0.0,
        feed_forward_dropout: 0.0,
        residual_dropout: 0.0,
        ..Default::default()
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
    check("transformer-decoder-tied-swish", swish, 41, device)
}

/// The layers of before the Transformer: `torch.nn.GRU`, `LSTM` and their cells, `conv1d` and `glu`.
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

/// The same on a GPU, where this machine and this build have one.
#[test]
#[cfg(feature = "cuda")]
fn pytorch_agrees_on_cuda() -> TestResult {
    all(&taper_ops::device::cuda(0)?)?;
    others(&taper_ops::device::cuda(0)?)
}
