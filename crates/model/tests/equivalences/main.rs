//! Tests of equivalences that hold for any numbers. In this file: a batch gives the results of its
//! sentences, a training step reaches every parameter, and a seed determines the model. The other
//! files test decoding, attention maps and masked heads, and facts about a model that are known
//! before the model is made.

#[path = "../common/mod.rs"]
mod common;
mod configurations;
mod decoding;
mod seeing;

use candle_core::{DType, Device};
use common::translation::batch_is_its_sentences;
use common::{ALL_POSITIONS, TestResult, differentiated, largest_difference};
use taper_model::{
    ActivationKind, Architecture, Batch, Builder, CellKind, ConvolutionalConfig, FeedForwardKind,
    Model, ModelConfig, ModelError, NormKind, NormPlacement, Objective, Pass, Positions,
    RecurrentAttention, RecurrentConfig, Sequences, SinusoidFrequencies, Tied, Transformer,
};
use taper_ops::Gradients;

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
    for (config, name) in others().into_iter().chain(blocks()) {
        let model =
            Transformer::new(&config, 19, 19, Builder::seeded(7, &Device::Cpu, DType::F32))?;
        check(&model, &name)?;
    }
    Ok(())
}

/// Makes configurations of Transformers whose layers differ from those of Vaswani et al. 2017.
fn blocks() -> Vec<(ModelConfig, String)> {
    let base = config(NormPlacement::Pre, Positions::Sinusoidal);
    let of_bart = ModelConfig { embedding_norm: true, output_bias: true, ..base.clone() };
    let of_t5 = ModelConfig {
        positions: Positions::T5,
        relative_buckets: 4,
        relative_distance: 3,
        output_scale: Some(0.2),
        final_dropout: 0.2,
        tied: Tied::Embeddings,
        ..base.clone()
    };
    let of_umt5 = ModelConfig { relative_by_layer: true, ..of_t5.clone() };
    let mut all = vec![
        (of_umt5, "biases of distances in each layer".to_owned()),
        (of_bart, "embedding norm and output bias".to_owned()),
        (of_t5, "output scale and dropout of the result".to_owned()),
    ];
    for positions in [Positions::Learned, Positions::SinusoidalHalves] {
        let own = ModelConfig { positions, max_positions: 40, position_offset: 2, ..base.clone() };
        let sinusoid_frequencies = SinusoidFrequencies::Tensor2Tensor;
        let own = ModelConfig { sinusoid_frequencies, ..own };
        all.push((own, format!("{positions:?} from position 2")));
    }
    let kinds = [NormKind::LayerWithoutBias, NormKind::Rms, NormKind::RmsWithBias];
    let activations = [ActivationKind::Swish, ActivationKind::Gelu, ActivationKind::Relu];
    for (norm_kind, activation) in kinds.into_iter().zip(activations) {
        let feed_forward = FeedForwardKind::Gated;
        let own = ModelConfig { norm_kind, activation, feed_forward, ..base.clone() };
        let own = ModelConfig { feed_forward_biases: norm_kind == NormKind::Rms, ..own };
        all.push((own, format!("{norm_kind:?} and gated {activation:?}")));
    }
    all
}

/// Makes configurations of all architectures but the Transformer, each in all of its kinds.
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

const SOURCES: [&[u32]; 3] = [&[4, 5, 6, 7, 3], &[8, 3], &[9, 10, 11, 3]];
const TARGETS: [&[u32]; 3] = [&[2, 12, 13, 14, 15], &[2, 5, 4, 6, 7], &[2, 16, 17, 18, 4]];

/// Compares a pass that computes layers again with a pass that keeps their results, both with
/// dropout. The encoder has seven layers, which are computed again in segments of three, and the
/// decoder has five.
#[test]
fn layers_that_are_computed_again_give_the_same_bits() -> TestResult {
    for positions in [Positions::T5, Positions::Rotary] {
        let own = config(NormPlacement::Pre, positions);
        let own = ModelConfig { encoder_layers: 7, decoder_layers: 5, ..own };
        let model = Transformer::new(&own, 19, 19, Builder::seeded(7, &Device::Cpu, DType::F32))?;
        let streams = vec![Sequences::pack(&SOURCES), Sequences::pack(&TARGETS)];
        let batch = Batch::new(streams, (0..15).collect());
        let gradients_with = |checkpoints| -> Result<(f32, Vec<f32>), ModelError> {
            let pass = Pass::train(1, 1, 0).checkpointed(checkpoints);
            let (output, flat) =
                differentiated(&model, &batch, &Objective::smoothed(0.1), 0.1, pass);
            Ok((output.loss.to_scalar()?, flat.to_vec1()?))
        };
        assert_eq!(gradients_with(true)?, gradients_with(false)?, "{positions:?}");
    }
    Ok(())
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
            differentiated(model, &batch, &objective, 1.0, Pass::train(1, 1, 0))
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
fn a_batch_is_its_sentences() -> TestResult {
    every(|model, name| batch_is_its_sentences(model, (&SOURCES, &TARGETS), name))
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
