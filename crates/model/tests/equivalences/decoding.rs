//! Decoding token by token: equal to a whole pass, for any order of hypotheses, and in int8.

use candle_core::{DType, Device, Tensor};
use taper_model::{Builder, DecodeState, Inference, ModelError, Sequences, Transformer};

use super::{SOURCES, TARGETS, TestResult, blocks, every, full_logits, largest_difference, others};

/// Logits of all rows.
fn step(
    inference: &Inference,
    state: &mut DecodeState,
    tokens: &[u32],
) -> Result<Tensor, ModelError> {
    let blocks = inference.step(state, tokens)?.collect::<Result<Vec<_>, _>>()?;
    Ok(Tensor::cat(&blocks, 0)?)
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

/// Rounded weights decode in int8 as in f32, except for the rounding of activations; so do bf16
/// products, with the rounding of both.
#[test]
fn each_architecture_decodes_in_int8_and_bf16() -> TestResult {
    for (config, name) in others().into_iter().chain(blocks()) {
        let made =
            |dtype| Transformer::new(&config, 19, 19, Builder::seeded(7, &Device::Cpu, dtype));
        let mut model = made(DType::F32)?;
        let logits = |model: &Transformer| -> Result<Tensor, ModelError> {
            let inference = model.inference();
            let mut state = inference.start(&Sequences::pack(&SOURCES))?;
            step(&inference, &mut state, &[2, 2, 2])?;
            step(&inference, &mut state, &[12, 5, 16])
        };
        let exact = logits(&model)?;
        let error = largest_difference(&logits(&made(DType::BF16)?)?, &exact);
        assert!(error < 0.2, "{name}: {error} in bf16");
        model.round_to_int8()?;
        let error = largest_difference(&logits(&model)?, &exact);
        assert!(error > 0.0 && error < 0.2, "{name}: {error}");
    }
    Ok(())
}
