//! A ViT as the library Transformers has it: the same logits, loss, gradients and attention, the
//! same bytes after a round trip, and folders that are refused. Golden files of
//! `scripts/golden/vit.py`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use serde_json::{Value, json};
use taper_model::{Batch, ImageClassifier, Model, Objective, Pass, Sequences};
use taper_ops::Gradients;
use taper_run::attention_picture::rolled_out;
use taper_run::hugging_face::{export_vit, import};
use taper_run::{LoadSettings, LoadedRun, RunEvent, RunFolder};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/vit")
}

fn imported(source: &Path, run: &Path) -> anyhow::Result<LoadedRun<ImageClassifier>> {
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

fn tensors(path: PathBuf) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(path, &Device::Cpu).unwrap()
}

#[test]
fn transformers_agrees_and_a_round_trip_changes_no_bit() {
    let folder = tempfile::tempdir().unwrap();
    let run = imported(&golden(), &folder.path().join("run")).unwrap();
    let expected = tensors(golden().join("expected.safetensors"));
    let classes: Vec<u32> = expected["classes"].to_vec1().unwrap();
    let values = run.model.shape().values();
    let images = Sequences {
        ids: expected["images"].to_vec1().unwrap(),
        lengths: vec![values; classes.len()],
    };
    let error = relative(&run.model.logits(&images).unwrap(), &expected["logits"]);
    assert!(error < 1e-5, "logits {error}");
    for (layer, record) in run.model.attention(&images).unwrap().iter().enumerate() {
        let error = relative(&record.weights, &expected[&format!("attention.{layer}")]);
        assert!(error < 1e-5, "attention of layer {layer}: {error}");
    }

    let asked = (0..classes.len()).map(|image| (image * values) as u32).collect();
    let scale = 1.0 / classes.len() as f64;
    let batch = Batch { asked: Some(asked), ..Batch::new(vec![images], classes) };
    let pass = Pass::train(1, 1, 0);
    let output = run.model.loss(&batch, &Objective::smoothed(0.0), scale, &pass).unwrap();
    let loss = f64::from(expected["loss"].to_scalar::<f32>().unwrap());
    assert!((output.nll_sum * scale / loss - 1.0).abs() < 1e-5, "loss");
    let mut gradients = Gradients::new(run.model.parameters()).unwrap();
    pass.backward(&output, run.model.parameters(), &mut gradients).unwrap();

    let out = folder.path().join("out");
    export_vit(&run, &out).unwrap();
    let weights = "model.safetensors";
    assert!(fs::read(out.join(weights)).unwrap() == fs::read(golden().join(weights)).unwrap());
    for file in ["config.json", "preprocessor_config.json"] {
        let theirs = json_of(golden().join(file));
        for (key, value) in json_of(out.join(file)).as_object().unwrap() {
            assert_eq!(*value, theirs[key], "{file}: {key}");
        }
    }
    // The gradients as weights, so that the export names them as Transformers does.
    run.model.parameters().set_flat(gradients.flat().unwrap()).unwrap();
    let named = folder.path().join("gradients");
    export_vit(&run, &named).unwrap();
    let ours = tensors(named.join(weights));
    let stored = expected.keys().filter(|key| key.starts_with("grad.")).count();
    assert_eq!(stored, ours.len(), "the file has other parameters");
    for (name, gradient) in ours {
        let theirs = &expected[&format!("grad.{name}")];
        if name.ends_with("key.bias") {
            // A softmax ignores a constant: this gradient is rounding, in both.
            assert!(norm(&gradient) < 1e-5 && norm(theirs) < 1e-5, "{name}");
            continue;
        }
        let error = relative(&gradient, theirs);
        assert!(error < 1e-5, "gradient of {name}: {error}");
    }
}

#[test]
fn attention_is_rolled_out_over_the_layers() {
    let folder = tempfile::tempdir().unwrap();
    let run = imported(&golden(), &folder.path().join("run")).unwrap();
    let expected = tensors(golden().join("expected.safetensors"));
    let values = run.model.shape().values();
    let images: Vec<u32> = expected["images"].to_vec1().unwrap();
    // (1 + A₂) / 2 · (1 + A₁) / 2 of what Transformers gives, of the first image.
    let mixed = |layer: usize| {
        let of_heads = expected[&format!("attention.{layer}")].get(0).unwrap();
        let identity = Tensor::eye(10, DType::F32, &Device::Cpu).unwrap();
        ((of_heads.mean(0).unwrap() + identity).unwrap() * 0.5).unwrap()
    };
    let flow: Vec<Vec<f32>> = mixed(1).matmul(&mixed(0)).unwrap().to_vec2().unwrap();
    let sum: f32 = flow[0][1..].iter().sum();
    let image: Vec<u8> = images[..values].iter().map(|&value| value as u8).collect();
    let found = rolled_out(&run.model, &image).unwrap();
    assert_eq!(found.len(), 9);
    for (ours, theirs) in found.iter().zip(&flow[0][1..]) {
        assert!((ours - f64::from(theirs / sum)).abs() < 1e-5, "{ours} {}", theirs / sum);
    }
}

#[test]
fn a_folder_that_is_no_vit_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let says = |change: &dyn Fn(&Path)| {
        let source = folder.path().join("source");
        fs::create_dir_all(&source).unwrap();
        for file in ["config.json", "model.safetensors", "preprocessor_config.json"] {
            fs::copy(golden().join(file), source.join(file)).unwrap();
        }
        change(&source);
        let run = folder.path().join("run");
        let error = imported(&source, &run).map(|_| ()).expect_err("refused");
        assert!(!run.exists(), "{error:#}");
        fs::remove_dir_all(&source).unwrap();
        taper_run::one_line(&error)
    };
    let set = |path: &Path, file: &str, key: &str, value: &Value| {
        let mut config = json_of(path.join(file));
        config[key] = value.clone();
        fs::write(path.join(file), config.to_string()).unwrap();
    };
    let config = "config.json";
    for (key, value, said) in [
        ("model_type", "swin".into(), "\"vit\""),
        ("hidden_act", "tanh".into(), "hidden_act = \"tanh\""),
        ("qkv_bias", false.into(), "qkv_bias"),
        ("num_attention_heads", 3.into(), "model.heads = 3 does not divide"),
        ("num_hidden_layers", 3.into(), "no tensor vit.encoder.layer.2.layernorm_before.weight"),
        ("num_hidden_layers", 1.into(), "has a tensor vit.encoder.layer.1."),
        ("image_size", 16.into(), "has shape [1, 10, 16], but config.json asks for [1, 17, 16]"),
        ("patch_size", 5.into(), "data.images.patch"),
        ("num_channels", 2.into(), "data.images.channels"),
        ("id2label", json!({"0": "a", "2": "b"}), "id2label"),
        ("id2label", json!({}), "id2label"),
        ("hidden_size", "wide".into(), "not the config.json of a ViT"),
        ("hidden_size", json!(1_u64 << 40), "memory"),
    ] {
        let error = says(&|path| set(path, config, key, &value));
        assert!(error.contains(said), "{key}: {error}");
    }
    let processor = "preprocessor_config.json";
    for (key, value, said) in [
        ("rescale_factor", json!(1.0), "rescale_factor is not 1/255"),
        ("image_std", json!([0.0, 0.1, 0.2]), "data.images.deviation"),
        ("image_mean", json!([0.1, 0.2]), "data.images.mean"),
    ] {
        let error = says(&|path| set(path, processor, key, &value));
        assert!(error.contains(said), "{key}: {error}");
    }
    let error = says(&|path| fs::remove_file(path.join("model.safetensors")).unwrap());
    assert!(error.contains("cannot read"), "{error}");
    let error = says(&|path| fs::write(path.join(processor), b"{").unwrap());
    assert!(error.contains("preprocessor_config.json: not JSON"), "{error}");
}
