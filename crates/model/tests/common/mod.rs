//! Tools that tests share: golden files (results of other implementations) and distances of
//! tensors.
#![allow(dead_code, unused_imports, reason = "each test file uses a part")]

mod tensors;
pub(crate) mod translation;

use candle_core::{DType, Device, Tensor};
use std::collections::HashMap;
use taper_model::{Batch, LossOutput, Model, Objective, Pass, Positions};
use taper_ops::{Gradients, MappedFile, Parameter, ParameterStore};

pub(crate) use tensors::{golden, relative};

pub(crate) type TestResult = Result<(), Box<dyn std::error::Error>>;

/// All position encodings.
pub(crate) const ALL_POSITIONS: [Positions; 6] = [
    Positions::Sinusoidal,
    Positions::SinusoidalHalves,
    Positions::Learned,
    Positions::T5,
    Positions::Rotary,
    Positions::Alibi,
];

pub(crate) fn ids(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec1().unwrap()
}

pub(crate) fn lengths(tensor: &Tensor) -> Vec<usize> {
    ids(tensor).into_iter().map(|length| length as usize).collect()
}

/// Largest of some distances; NaN if any of them is NaN, so that every comparison with a bound
/// fails.
pub(crate) fn largest_of(distances: impl IntoIterator<Item = f32>) -> f32 {
    // `total_cmp` orders NaN after infinity, so a NaN is returned as the maximum. `f32::max` and
    // Candle's maximum would ignore it.
    distances.into_iter().map(f32::abs).max_by(f32::total_cmp).unwrap_or(0.0)
}

/// Largest absolute difference between elements of two tensors at the same index.
pub(crate) fn largest_difference(a: &Tensor, b: &Tensor) -> f32 {
    largest_of((a - b).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap())
}

/// Writes the parameters of a model that only decodes to a file, and lets the model leave in this
/// file what it can. Completes the loading of the other parameters. The file has no name any more.
pub(crate) fn leave_in_a_file(model: &impl Model) -> candle_core::Result<()> {
    let mut bytes = Vec::new();
    for parameter in model.parameters().all() {
        bytes.extend(parameter.values()?.iter().flat_map(|value| value.to_le_bytes()));
    }
    let thread = std::thread::current().id();
    let name = format!("taper-parameters-{}-{thread:?}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, bytes)?;
    let file = MappedFile::new(&std::fs::File::open(&path)?);
    std::fs::remove_file(&path)?;
    let mut start = 0;
    for parameter in model.parameters().all() {
        let end = start + parameter.len() * size_of::<f32>();
        let values = file.as_ref().and_then(|file| file.values(start..end));
        start = end;
        if !values.map_or(Ok(false), |values| model.leave_in_file(parameter, &values))? {
            model.finish_loading(parameter)?;
        }
    }
    Ok(())
}

/// Sets the parameters of a model to those of a golden file. Checks that the file has a gradient
/// for each parameter, and no other gradients.
pub(crate) fn load(model: &impl Model, file: &HashMap<String, Tensor>) {
    fill(model, file);
    let stored = file.keys().filter(|key| key.starts_with("grad.")).count();
    assert_eq!(stored, model.parameters().parameters().len(), "the file has other parameters");
}

/// Sets the parameters of a model to those of a golden file.
pub(crate) fn fill(model: &impl Model, file: &HashMap<String, Tensor>) {
    for parameter in model.parameters().parameters() {
        let name = parameter.name();
        let value = file.get(name).unwrap_or_else(|| panic!("the golden file has no {name}"));
        parameter.var().set(&value.to_device(model.device()).unwrap()).unwrap();
    }
}

/// Returns the loss of a training pass, and the gradients of all parameters in one flat tensor.
pub(crate) fn differentiated(
    model: &impl Model,
    batch: &Batch,
    objective: &Objective,
    scale: f64,
    pass: Pass,
) -> (LossOutput, Tensor) {
    let output = model.loss(batch, objective, scale, &pass).unwrap();
    let mut gradients = Gradients::new(model.parameters()).unwrap();
    backward(pass, &output, model.parameters(), &mut gradients).unwrap();
    let flat = gradients.flat().unwrap().copy().unwrap();
    (output, flat)
}

/// Returns the loss and the gradients of a training pass. The model must have no dropout, so the
/// pass is deterministic. With `composed`, the plain Candle operations run.
pub(crate) fn trained(model: &impl Model, batch: &Batch, composed: bool) -> (f64, Tensor) {
    let scale = 1.0 / batch.tokens() as f64;
    let pass = Pass::train(1, 1, 0);
    let pass = if composed { pass.composed() } else { pass };
    let (output, flat) = differentiated(model, batch, &Objective::smoothed(0.0), scale, pass);
    let loss = f64::from(output.loss.to_scalar::<f32>().unwrap());
    assert!((output.objective_sum * scale / loss - 1.0).abs() < 1e-5);
    (output.objective_sum * scale, flat)
}

/// Returns the gradient of one parameter from `flat`, which has the gradients of all parameters.
pub(crate) fn gradient_of(flat: &Tensor, parameter: &Parameter) -> Tensor {
    let gradient = flat.narrow(0, parameter.offset(), parameter.len()).unwrap();
    gradient.reshape(parameter.shape()).unwrap()
}

/// Compares the gradients in `flat` with those of a golden file.
pub(crate) fn compare_gradients(
    name: &str,
    model: &impl Model,
    flat: &Tensor,
    file: &HashMap<String, Tensor>,
) {
    for parameter in model.parameters().parameters() {
        let theirs = &file[&format!("grad.{}", parameter.name())];
        let error = relative(&gradient_of(flat, parameter), theirs);
        assert!(error < 1e-5, "{name}: gradient of {}: {error}", parameter.name());
    }
}

/// Compares the gradients in `flat` with slopes of the loss. For each parameter p, the slope is
/// `(L(p + h d) - L(p - h d)) / 2h`, where L is the loss and d is the direction of the gradient of
/// p. The slope must be the norm of this gradient, with a relative error below `bound`. Parameters
/// whose gradient has a norm below `least` are left out, because a step along such a gradient
/// changes the loss too little for f32.
pub(crate) fn compare_slopes<'p>(
    name: &str,
    parameters: impl IntoIterator<Item = &'p Parameter>,
    flat: &Tensor,
    (h, least, bound): (f64, f64, f64),
    loss: impl Fn() -> f64,
) {
    for parameter in parameters {
        let gradient = gradient_of(flat, parameter);
        let norm = gradient.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap();
        let norm = f64::from(norm).sqrt();
        assert!(norm > 0.0, "{name}: nothing reaches {}", parameter.name());
        if norm < least {
            continue;
        }
        let before = parameter.var().as_tensor().copy().unwrap();
        let direction = (&gradient / norm).unwrap();
        let loss_at = |step: f64| -> f64 {
            let moved = (&before + (&direction * step).unwrap()).unwrap();
            parameter.var().set(&moved).unwrap();
            loss()
        };
        let slope = (loss_at(h) - loss_at(-h)) / (2.0 * h);
        parameter.var().set(&before).unwrap();
        let error = (slope - norm).abs() / norm;
        assert!(error < bound, "{name}: {}: {slope} for {norm}", parameter.name());
    }
}

/// Runs the backward pass from a loss. While the pass runs, it reports parts of the gradient as
/// final. Checks that these parts do not change afterwards.
pub(crate) fn backward(
    pass: Pass,
    output: &LossOutput,
    store: &ParameterStore,
    gradients: &mut Gradients,
) -> candle_core::Result<()> {
    let is_fused =
        store.device().is_cpu() && pass.tape().is_some_and(|tape| tape.knows(&output.loss));
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
