//! Tests of dual chunk attention (rotary positions that restart in each chunk of tokens) in
//! language models. For a text within one chunk, the result is that of the same model without
//! chunks. For a text within a chunk and its window (the tokens that see the previous chunk at true
//! distances), the result is the same up to rounding. Reading a text at once gives the result of
//! single steps, and gradients are right.

use crate::common::{TestResult, differentiated, largest_difference, relative};
use candle_core::{DType, Device, Tensor};
use taper_model::{
    AttentionConfig, AttentionKind, Batch, Builder, LanguageModel, Model, ModelConfig, ModelError,
    Objective, Pass, Positions, RotaryConfig, RotaryScaling, Sequences, TextInference, TextState,
};

/// Configuration of a model that is trained on sequences of eight tokens. With dual chunks, a chunk
/// then has six tokens (three quarters of eight), and a window has the other two.
fn config(scaling: RotaryScaling) -> ModelConfig {
    ModelConfig {
        d_model: 24,
        d_ff: 40,
        heads: 3,
        decoder_layers: 2,
        positions: Positions::Rotary,
        rotary: RotaryConfig { scaling, original_length: Some(8), ..RotaryConfig::default() },
        ..ModelConfig::default().with_dropout(0.0)
    }
}

fn model(config: &ModelConfig) -> LanguageModel {
    LanguageModel::new(config, 19, Builder::seeded(7, &Device::Cpu, DType::F32)).unwrap()
}

fn text(length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| 4 + (i * i + 3 * i) % 13).collect()
}

fn logits(model: &LanguageModel, texts: &[Vec<u32>]) -> Result<Tensor, ModelError> {
    let pass = Pass::evaluate();
    model.logits(&model.hidden(&Sequences::pack(texts), &pass)?, &pass)
}

fn step(inference: &TextInference, state: &mut TextState, token: u32) -> Tensor {
    let blocks: Vec<Tensor> =
        inference.step(state, &[token]).unwrap().collect::<Result<_, ModelError>>().unwrap();
    Tensor::cat(&blocks, 0).unwrap()
}

#[test]
fn texts_within_a_chunk_are_read_as_without_chunks() -> TestResult {
    let (plain, chunked) =
        (model(&config(RotaryScaling::None)), model(&config(RotaryScaling::DualChunk)));
    let values = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    for lengths in [vec![1], vec![6], vec![3, 6, 5]] {
        let texts: Vec<Vec<u32>> = lengths.into_iter().map(text).collect();
        let (ours, theirs) = (logits(&chunked, &texts)?, logits(&plain, &texts)?);
        assert_eq!(values(&ours), values(&theirs), "to the bit");
    }
    // In a text that is as long as a chunk and its window, all distances are the true ones. But
    // they come from other rotations, so the results are equal only up to rounding.
    let (ours, theirs) = (logits(&chunked, &[text(8)])?, logits(&plain, &[text(8)])?);
    let difference = largest_difference(&ours, &theirs);
    assert!(difference < 1e-5, "{difference}");
    let (ours, theirs) = (logits(&chunked, &[text(9)])?, logits(&plain, &[text(9)])?);
    let last = |x: &Tensor| x.get(8).unwrap();
    assert!(largest_difference(&last(&ours), &last(&theirs)) > 1e-4);
    // Single steps within a chunk also have the same results.
    let (ours, theirs) = (chunked.inference(100), plain.inference(100));
    let mut states = (ours.start(&[&text(2)])?, theirs.start(&[&text(2)])?);
    for &token in &text(6)[2..] {
        let steps = (step(&ours, &mut states.0, token), step(&theirs, &mut states.1, token));
        assert_eq!(values(&steps.0), values(&steps.1), "to the bit");
    }
    Ok(())
}

#[test]
fn reading_is_stepping_and_the_whole_pass() -> TestResult {
    let grouped = ModelConfig { key_value_heads: Some(1), ..config(RotaryScaling::DualChunk) };
    let window = ModelConfig {
        decoder_attention: AttentionConfig {
            kind: AttentionKind::Sparse,
            window: 9,
            ..AttentionConfig::default()
        },
        ..config(RotaryScaling::DualChunk)
    };
    for config in [config(RotaryScaling::DualChunk), grouped, window] {
        let model = model(&config);
        let (text, inference) = (text(40), model.inference(100));
        let whole = logits(&model, std::slice::from_ref(&text))?;
        for read in [0, 1, 5, 6, 7, 20, 39] {
            let mut state = inference.start(&[&text[..read]])?;
            for (at, &token) in text.iter().enumerate().skip(read) {
                let row = step(&inference, &mut state, token).get(0)?;
                let difference = largest_difference(&row, &whole.get(at)?);
                assert!(difference < 2e-5, "{read} read, token {at}: {difference}");
            }
        }
        // The same holds in a batch with other texts, one of which is within a chunk.
        let among = logits(&model, &[self::text(4), text.clone(), self::text(13)])?;
        let difference = largest_difference(&among.narrow(0, 4, 40)?, &whole);
        assert!(difference < 1e-5, "{difference}");
    }
    Ok(())
}

/// Checks the gradient of texts in which all distances are the true ones. It must be the gradient
/// of the model without chunks, which computes it by other operations.
#[test]
fn a_model_can_be_trained_on_with_chunks() -> TestResult {
    let trained = |scaling: RotaryScaling, length: usize| {
        let model = model(&config(scaling));
        let texts = Sequences::pack(&[text(length), text(4)]);
        let answers: Vec<u32> = texts.ids.iter().map(|id| (id + 3) % 19).collect();
        let batch = Batch::new(vec![texts], answers);
        let pass = Pass::train(1, 1, 0);
        let (output, flat) = differentiated(&model, &batch, &Objective::smoothed(0.0), 1.0, pass);
        let evaluated =
            model.loss(&batch, &Objective::smoothed(0.0), 1.0, &Pass::evaluate()).unwrap();
        assert!((output.nll_sum / evaluated.nll_sum - 1.0).abs() < 1e-5, "{length}");
        flat
    };
    let [ours, theirs] = [RotaryScaling::DualChunk, RotaryScaling::None].map(|of| trained(of, 8));
    let error = relative(&ours, &theirs);
    assert!(error < 1e-5, "{error}");
    let [ours, theirs] = [RotaryScaling::DualChunk, RotaryScaling::None].map(|of| trained(of, 30));
    assert!(relative(&ours, &theirs) > 1e-3);
    Ok(())
}

#[test]
fn impossible_chunks_are_refused() {
    let chunked = config(RotaryScaling::DualChunk);
    let refused = |config: ModelConfig| {
        LanguageModel::new(&config, 19, Builder::seeded(7, &Device::Cpu, DType::F32))
            .unwrap_err()
            .to_string()
    };
    let rotary = |rotary: RotaryConfig| ModelConfig { rotary, ..chunked.clone() };
    let error = refused(rotary(RotaryConfig { original_length: None, ..chunked.rotary }));
    assert!(error.contains("set model.rotary.original_length"), "{error}");
    let error = refused(rotary(RotaryConfig { chunk: Some(9), ..chunked.rotary }));
    assert!(error.contains("model.rotary.chunk is 9"), "{error}");
    let error = refused(rotary(RotaryConfig { local_window: Some(3), ..chunked.rotary }));
    assert!(error.contains("model.rotary.local_window is 3"), "{error}");
    let kind = AttentionKind::Performer;
    let decoder_attention = AttentionConfig { kind, ..AttentionConfig::default() };
    let error = refused(ModelConfig { decoder_attention, ..chunked.clone() });
    assert!(error.contains("\"performer\" does not see apart"), "{error}");
    let rule = chunked.rotary.dual_chunk().unwrap();
    assert_eq!((rule.chunk, rule.window, rule.trained), (6, 2, 8));
}
