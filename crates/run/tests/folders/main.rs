//! Folders of the library Transformers. Models give the same outputs, losses and gradients as in
//! Transformers. An import and an export leave the bytes of files the same. Unsupported folders are
//! refused. The golden files have small models and what other libraries compute with them; they are
//! made by `scripts/golden`.

mod adapters;
mod attention;
mod bart;
mod bert;
mod engines;
mod files;
mod gpt2;
mod llama;
mod marian;
mod roberta;
mod t5;
mod tokens;
mod translation;
mod vit;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use serde_json::Value;
use taper_model::{Batch, Model, Objective, Pass, Positions};
use taper_ops::Gradients;
use taper_run::folders::{export, import};
use taper_run::tasks::TaskModel;
use taper_run::{LoadSettings, LoadedRun, RunEvent, RunFolder};

const WEIGHTS: &str = "model.safetensors";
const CONFIG: &str = "config.json";

/// Path of the golden folder `name`.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn imported<M: TaskModel>(source: &Path, run: &Path) -> anyhow::Result<LoadedRun<M>> {
    import(source, &RunFolder::new(run), &mut |_: &RunEvent<'_>| Ok(()))?;
    LoadedRun::open(run, &LoadSettings::default())
}

fn norm(x: &Tensor) -> f64 {
    let x = x.to_dtype(DType::F64).unwrap();
    x.sqr().unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap().sqrt()
}

fn relative(ours: &Tensor, theirs: &Tensor) -> f64 {
    assert_eq!(ours.dims(), theirs.dims());
    norm(&(ours - theirs).unwrap()) / norm(theirs).max(1e-12)
}

fn json_of(path: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn set(path: PathBuf, key: &str, value: &Value) {
    let mut config = json_of(path.clone());
    config[key] = value.clone();
    fs::write(path, config.to_string()).unwrap();
}

fn tensors(path: PathBuf) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(path, &Device::Cpu).unwrap()
}

/// Divides `ids`, a concatenation of token sequences with these lengths, into the sequences.
fn rows(ids: &Tensor, lengths: &Tensor) -> Vec<Vec<u32>> {
    let ids: Vec<u32> = ids.to_vec1().unwrap();
    let mut rest = ids.as_slice();
    let mut rows = Vec::new();
    for length in lengths.to_vec1::<u32>().unwrap() {
        let (row, others) = rest.split_at(length as usize);
        rows.push(row.to_vec());
        rest = others;
    }
    rows
}

/// Mean loss on `batch`, and its gradients as a flat tensor.
fn trained(model: &impl Model, batch: &Batch) -> (f64, Tensor) {
    let scale = 1.0 / batch.tokens() as f64;
    let pass = Pass::train(1, 1, 0);
    let output = model.loss(batch, &Objective::smoothed(0.0), scale, &pass).unwrap();
    let mut gradients = Gradients::new(model.parameters()).unwrap();
    pass.backward(&output, model.parameters(), &mut gradients).unwrap();
    (output.objective_sum * scale, gradients.flat().unwrap().copy().unwrap())
}

/// Exports a run that was imported from the golden folder `source`, and compares files: those in
/// `whole` must have the same bytes, and those in `keyed`, which are JSON, the same keys. Then
/// replaces the weights by `gradients`, which get Transformers' names by an export, and compares
/// them with the golden gradients.
fn check_round_trip<M: TaskModel>(
    run: &LoadedRun<M>,
    source: &Path,
    (whole, keyed): (&[&str], &[&str]),
    gradients: &Tensor,
) {
    let expected = tensors(source.join("expected.safetensors"));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    export(run, &out).unwrap();
    for file in whole {
        let [ours, theirs] = [&out, source].map(|folder| fs::read(folder.join(file)).unwrap());
        assert!(ours == theirs, "{file} differs");
    }
    for file in keyed {
        let theirs = json_of(source.join(file));
        for (key, value) in json_of(out.join(file)).as_object().unwrap() {
            // Keys that the golden file omits have their defaults.
            assert!(theirs.get(key).is_none_or(|theirs| value == theirs), "{file}: {key}");
        }
    }
    run.model.parameters().set_flat(gradients).unwrap();
    let named = folder.path().join("gradients");
    export(run, &named).unwrap();
    let ours = tensors(named.join(WEIGHTS));
    let stored = expected.keys().filter(|key| key.starts_with("grad.")).count();
    assert_eq!(stored, ours.len(), "the file has other parameters");
    for (name, gradient) in ours {
        let theirs = &expected[&format!("grad.{name}")];
        // Softmax does not change if a constant is added to all its inputs. The bias of keys adds
        // the same to all scores of a query, and some parameters add the same to the logits of all
        // positions in a text. So their gradients are only rounding errors, both in Transformers
        // and in Taper.
        let last_norm = "bert.encoder.layer.1.output.LayerNorm.bias";
        let is_added_to_all = expected.contains_key("grad.qa_outputs.bias")
            && ["qa_outputs.bias", last_norm].contains(&name.as_str());
        // With rotary positions, the bias of keys is rotated, and so does not add the same to all
        // scores.
        let is_constant = run.config.model.positions != Positions::Rotary
            && ["key.bias", "k_proj.bias"].iter().any(|end| name.ends_with(end));
        if is_constant || is_added_to_all {
            assert!(norm(&gradient) < 1e-5 && norm(theirs) < 1e-5, "{name}");
            continue;
        }
        let error = relative(&gradient, theirs);
        assert!(error < 1e-5, "gradient of {name}: {error}");
    }
}

/// Path of a copy of the golden folder `source`, made in `folder` and changed by `change`.
fn changed(source: &Path, folder: &Path, change: &dyn Fn(&Path)) -> PathBuf {
    let changed = folder.join("source");
    fs::create_dir_all(&changed).unwrap();
    for file in fs::read_dir(source).unwrap() {
        let file = file.unwrap();
        if file.file_name() != "expected.safetensors" {
            fs::copy(file.path(), changed.join(file.file_name())).unwrap();
        }
    }
    change(&changed);
    changed
}

/// Changes the tensors in the weights of the folder `path` by `change`.
fn rewrite(path: &Path, change: impl Fn(&mut HashMap<String, Tensor>)) {
    let mut weights = tensors(path.join(WEIGHTS));
    change(&mut weights);
    candle_core::safetensors::save(&weights, path.join(WEIGHTS)).unwrap();
}

/// Message of the error when a changed copy of the golden folder `source` is imported.
fn refusal<M: TaskModel>(source: &Path, change: &dyn Fn(&Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let changed = changed(source, folder.path(), change);
    let run = folder.path().join("run");
    let error = imported::<M>(&changed, &run).map(|_| ()).expect_err("refused");
    assert!(!run.exists(), "{error:#}");
    taper_run::one_line(&error)
}
