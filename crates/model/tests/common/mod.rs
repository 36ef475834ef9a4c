//! Golden files, and how far tensors are apart.
#![allow(dead_code, reason = "each test file uses a part")]

use candle_core::{DType, Device, Tensor};
use std::collections::HashMap;
use taper_model::Positions;

/// Every position encoding.
pub(crate) const ALL_POSITIONS: [Positions; 6] = [
    Positions::Sinusoidal,
    Positions::SinusoidalHalves,
    Positions::Learned,
    Positions::T5,
    Positions::Rotary,
    Positions::Alibi,
];

/// The tensors of a golden file.
pub(crate) fn golden(name: &str) -> HashMap<String, Tensor> {
    let path = format!("{}/tests/golden/{name}.safetensors", env!("CARGO_MANIFEST_DIR"));
    candle_core::safetensors::load(&path, &Device::Cpu)
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The distance of two tensors relative to the size of the second.
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

/// The largest distance of two values.
pub(crate) fn largest_difference(a: &Tensor, b: &Tensor) -> f32 {
    (a - b).unwrap().abs().unwrap().flatten_all().unwrap().max(0).unwrap().to_scalar().unwrap()
}
