//! Tests that decoding token by token gives the results of one pass over the whole target. This
//! must hold for any order of hypotheses, and up to rounding also in int8 and in bf16.

use candle_core::{DType, Device, Tensor};
use taper_model::{Builder, Model, ModelError, Sequences, Transformer};

use super::common::translation::{decodes_as_at_once, rows_carry_their_past, step};
use super::common::{TestResult, largest_difference, leave_in_a_file};
use super::{SOURCES, TARGETS, blocks, every, others};

#[test]
fn cached_decoding_is_full_decoding() -> TestResult {
    every(|model, name| decodes_as_at_once(model, (&SOURCES, &TARGETS), (name, 2e-5)))
}

#[test]
fn selected_rows_carry_their_past() -> TestResult {
    every(|model, name| rows_carry_their_past(model, &SOURCES, name))
}

/// Compares decoding in int8 and in bf16 with decoding in f32. The results must be equal up to
/// rounding: of weights and activations in int8, and of products in bf16.
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

/// Compares models that keep only weights that are packed for the matrix kernels, or that leave
/// them in a file, with models that keep their own weights too.
#[test]
fn packed_weights_alone_decode_to_the_same_bits() -> TestResult {
    every(|model, name| {
        for (dtype, is_int8) in [(DType::F32, false), (DType::BF16, false), (DType::F32, true)] {
            let made = || {
                let builder = Builder::seeded(7, &Device::Cpu, dtype);
                Transformer::new(model.config(), 19, 19, builder)
            };
            let logits = |model: &Transformer| -> Result<Vec<Vec<f32>>, ModelError> {
                let inference = model.inference();
                let mut state = inference.start(&Sequences::pack(&SOURCES))?;
                step(&inference, &mut state, &[2, 2, 2])?;
                let mut rows: Vec<Vec<f32>> =
                    step(&inference, &mut state, &[12, 5, 16])?.to_vec2()?;
                let sources = Sequences::pack(&SOURCES);
                let mut state = inference.start_shortlisted(&sources, &[5, 2, 18])?;
                rows.extend(step(&inference, &mut state, &[2, 2, 2])?.to_vec2::<f32>()?);
                Ok(rows)
            };
            let (mut whole, mut packed, mut in_file) = (made()?, made()?, made()?);
            if is_int8 {
                whole.round_to_int8()?;
            }
            packed.only_decode(is_int8);
            packed.parameters().all().try_for_each(|one| packed.finish_loading(one))?;
            in_file.only_decode(is_int8);
            leave_in_a_file(&in_file)?;
            let expected = logits(&whole)?;
            for _ in 0..2 {
                assert_eq!(logits(&packed)?, expected, "{name}, {dtype:?}, int8: {is_int8}");
            }
            // The last of these products are made with packed weights.
            for _ in 0..8 {
                assert_eq!(logits(&in_file)?, expected, "{name}, {dtype:?}, int8: {is_int8}");
            }
        }
        Ok(())
    })
}

#[test]
fn a_shortlist_without_tokens_is_refused() {
    let (config, _) = others().swap_remove(0);
    let model = Transformer::new(&config, 19, 19, Builder::seeded(7, &Device::Cpu, DType::F32));
    let inference = model.unwrap().inference();
    let refused = inference.start_shortlisted(&Sequences::pack(&SOURCES), &[]);
    assert_eq!(refused.unwrap_err().to_string(), "a shortlist has no tokens");
}
