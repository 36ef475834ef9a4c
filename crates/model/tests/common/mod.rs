//! Golden files, and distances of tensors.
#![allow(dead_code, reason = "each test file uses a part")]

use candle_core::{DType, Device, Tensor};
use std::collections::HashMap;
use taper_model::{LossOutput, Pass, Positions};
use taper_ops::{Gradients, ParameterStore};

/// All position encodings.
pub(crate) const ALL_POSITIONS: [Positions; 6] = [
    Positions::Sinusoidal,
    Positions::SinusoidalHalves,
    Positions::Learned,
    Positions::T5,
    Positions::Rotary,
    Positions::Alibi,
];

/// Reads the tensors of a golden file.
pub(crate) fn golden(name: &str) -> HashMap<String, Tensor> {
    let path = format!("{}/tests/golden/{name}.safetensors", env!("CARGO_MANIFEST_DIR"));
    candle_core::safetensors::load(&path, &Device::Cpu)
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Distance of two tensors, relative to the size of the second.
pub(crate) fn relative(ours: &Tensor, theirs: &Tensor) -> f64 {
    assert_eq!(ours.dims(), theirs.dims());
    let norm = |x: &Tensor| {
        x.to_dtype(DType::F64)
            .unwrap()
            .sqr()
            .unwrap()
            .sum_all()
            .unwrap()
            .to_scalar::<f64>()
            .unwrap()
            .sqrt()
    };
    let difference =
        (ours.to_dtype(DType::F64).unwrap() - theirs.to_dtype(DType::F64).unwrap()).unwrap();
    norm(&difference) / norm(theirs).max(1e-12)
}

pub(crate) fn ids(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec1().unwrap()
}

pub(crate) fn lengths(tensor: &Tensor) -> Vec<usize> {
    ids(tensor).into_iter().map(|length| length as usize).collect()
}

/// Largest difference of two values.
pub(crate) fn largest_difference(a: &Tensor, b: &Tensor) -> f32 {
    (a - b).unwrap().abs().unwrap().flatten_all().unwrap().max(0).unwrap().to_scalar().unwrap()
}

/// Runs the backward pass from a loss, and checks that what it reports as final does not change
/// afterwards.
pub(crate) fn backward(
    pass: Pass,
    output: &LossOutput,
    store: &ParameterStore,
    gradients: &mut Gradients,
) -> candle_core::Result<()> {
    let is_fused = pass.tape().is_some_and(|tape| tape.knows(&output.loss));
    let (mut from, mut told) = (store.len(), Vec::new());
    let mut when_final = |start: usize, values: &[f32]| {
        assert!(start < from, "nothing is told twice");
        told.push((start, values[start..from].to_vec()));
        from = start;
        Ok(())
    };
    pass.backward_watched(output, store, gradients, Some(&mut when_final))?;
    if is_fused {
        assert_eq!(from, 0, "all is told in the end");
        assert!(told.len() > 1, "all is told at once");
    }
    let whole = gradients.flat()?.to_vec1::<f32>()?;
    for (start, values) in told {
        let end = start + values.len();
        let same = |(one, other): (&f32, &f32)| one.to_bits() == other.to_bits();
        assert!(values.iter().zip(&whole[start..end]).all(same), "{start}..{end} was not final");
    }
    Ok(())
}
