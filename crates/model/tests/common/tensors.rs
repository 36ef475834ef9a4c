//! Golden files (tensors that other implementations computed), and distances between tensors. Tests
//! inside the crate use this file too.

use candle_core::{DType, Device, Tensor};
use std::collections::HashMap;

/// Reads the tensors of a golden file.
pub(crate) fn golden(name: &str) -> HashMap<String, Tensor> {
    let path = format!("{}/tests/golden/{name}.safetensors", env!("CARGO_MANIFEST_DIR"));
    candle_core::safetensors::load(&path, &Device::Cpu)
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the Euclidean distance of two tensors, divided by the norm of the second.
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
