//! Checks of properties that every model with a decoder must have, whatever its layers.

use super::{TestResult, differentiated, largest_difference, relative};
use candle_core::{DType, Device, Tensor};
use taper_model::{
    Batch, Builder, DecodeState, Inference, LanguageModel, Model, ModelConfig, Objective, Pass,
    Result, Sequences, Transformer,
};

/// Makes a Transformer whose source and target vocabularies have 19 tokens each.
pub(crate) fn transformer(config: &ModelConfig) -> Transformer {
    Transformer::new(config, 19, 19, Builder::seeded(7, &Device::Cpu, DType::F32)).unwrap()
}

/// Computes the logits of whole targets in one pass: `(N, V)`, with N tokens in all targets and V
/// tokens in the vocabulary.
pub(crate) fn full_logits(
    model: &Transformer,
    sources: &[&[u32]],
    targets: &[&[u32]],
) -> Result<Tensor> {
    let pass = Pass::evaluate();
    let encoded = model.encode(&Sequences::pack(sources), &pass)?;
    model.logits(&model.decode(&Sequences::pack(targets), &encoded, &pass)?, &pass)
}

/// Feeds one token to each row, and returns the logits of all rows.
pub(crate) fn step(
    inference: &Inference,
    state: &mut DecodeState,
    tokens: &[u32],
) -> Result<Tensor> {
    let blocks = inference.step(state, tokens)?.collect::<Result<Vec<_>>>()?;
    Ok(Tensor::cat(&blocks, 0)?)
}

/// Decodes targets of equal length step by step, and compares the logits of each step with those of
/// one pass over the whole targets.
pub(crate) fn decodes_as_at_once(
    model: &Transformer,
    (sources, targets): (&[&[u32]], &[&[u32]]),
    (name, bound): (&str, f32),
) -> TestResult {
    let length = targets[0].len();
    let full = full_logits(model, sources, targets)?.reshape((targets.len(), length, 19))?;
    let inference = model.inference();
    let mut state = inference.start(&Sequences::pack(sources))?;
    for t in 0..length {
        let tokens: Vec<u32> = targets.iter().map(|target| target[t]).collect();
        let logits = step(&inference, &mut state, &tokens)?;
        let error = largest_difference(&logits, &full.narrow(1, t, 1)?.squeeze(1)?);
        assert!(error < bound, "{name}: step {t}: {error}");
    }
    Ok(())
}

/// Reorders hypotheses for three sources between steps. Then compares the logits of each hypothesis
/// with those of one pass over the tokens of this hypothesis.
pub(crate) fn rows_carry_their_past(
    model: &Transformer,
    sources: &[&[u32]],
    name: &str,
) -> TestResult {
    let inference = model.inference();
    let mut state = inference.start(&Sequences::pack(sources))?;
    step(&inference, &mut state, &[2, 2, 2])?;
    // There are two hypotheses for the first source, none for the second, and one for the third.
    state.select(&[0, 0, 2])?;
    step(&inference, &mut state, &[12, 13, 16])?;
    state.select(&[2, 1, 0])?;
    let logits = step(&inference, &mut state, &[17, 5, 6])?;
    for (row, (source, target)) in
        [(2, [2, 16, 17]), (0, [2, 13, 5]), (0, [2, 12, 6])].into_iter().enumerate()
    {
        let full = full_logits(model, &[sources[source]], &[&target])?;
        let error = largest_difference(&logits.get(row)?, &full.get(2)?);
        assert!(error < 2e-5, "{name}: row {row}: {error}");
    }
    assert!(state.select(&[3]).is_err(), "{name}");
    Ok(())
}

/// Compares the logits of each pair in a batch with the logits of this pair alone. All targets must
/// have the same length.
pub(crate) fn batch_is_its_sentences(
    model: &Transformer,
    (sources, targets): (&[&[u32]], &[&[u32]]),
    name: &str,
) -> TestResult {
    let (batch, length) = (full_logits(model, sources, targets)?, targets[0].len());
    for i in 0..targets.len() {
        let alone = full_logits(model, &sources[i..=i], &targets[i..=i])?;
        let error = largest_difference(&batch.narrow(0, length * i, length)?, &alone);
        assert!(error < 2e-5, "{name}: sentence {i}: {error}");
    }
    Ok(())
}

/// Compares the gradients that Taper computes from its tape (the record of operations) in a
/// training pass with those of Candle's automatic differentiation. The passes have dropout if the
/// model has. Every parameter must have a gradient other than zero. Returns the gradients that were
/// computed from the tape.
pub(crate) fn tape_differentiates_as_candle(
    model: &impl Model,
    batch: &Batch,
    objective: &Objective,
    name: &str,
) -> Result<Tensor> {
    let gradients_in = |pass: Pass| differentiated(model, batch, objective, 0.1, pass).1;
    let ours = gradients_in(Pass::train(1, 1, 0));
    let error = relative(&ours, &gradients_in(Pass::train(1, 1, 0).composed()));
    assert!(error < 1e-5, "{name}: {error}");
    for parameter in model.parameters().parameters() {
        let gradient = ours.narrow(0, parameter.offset(), parameter.len())?;
        let norm = gradient.sqr()?.sum_all()?.to_scalar::<f32>()?;
        assert!(norm > 0.0, "{name}: no gradient of {}", parameter.name());
    }
    Ok(ours)
}

/// Reads a text at once up to each of the positions in `places`, and steps through the rest.
/// Compares the logits of each step with those of one pass over the whole text.
pub(crate) fn reads_as_it_steps(
    model: &LanguageModel,
    text: &[u32],
    places: &[usize],
    name: &str,
) -> TestResult {
    let pass = Pass::evaluate();
    let full = model.logits(&model.hidden(&Sequences::pack(&[text]), &pass)?, &pass)?;
    let inference = model.inference(200);
    for &read in places {
        let mut state = inference.start(&[&text[..read]])?;
        for (t, &token) in text.iter().enumerate().skip(read) {
            let blocks = inference.step(&mut state, &[token])?.collect::<Result<Vec<_>>>()?;
            let error = largest_difference(&blocks[0].get(0)?, &full.get(t)?);
            assert!(error < 3e-5, "{name}: {read} read, token {t}: {error}");
        }
    }
    Ok(())
}
