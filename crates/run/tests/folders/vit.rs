//! A ViT agrees with Transformers. The golden files are made by `scripts/golden/images/vit.py`.
#![allow(clippy::disallowed_methods, reason = "Candle's own products")]

use std::fs;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use serde_json::json;
use taper_model::{Batch, ImageClassifier, Sequences};
use taper_run::LoadedRun;
use taper_run::attention::rolled_out;
use taper_run::folders::export;

use super::{
    CONFIG, WEIGHTS, changed, check_round_trip, refusal, relative, rewrite, set, tensors, trained,
};

/// File with the settings of image preparation.
const PROCESSOR: &str = "preprocessor_config.json";

fn golden() -> PathBuf {
    super::golden("vit")
}

fn imported(source: &Path, run: &Path) -> anyhow::Result<LoadedRun<ImageClassifier>> {
    super::imported(source, run)
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
    let batch = Batch { asked: Some(asked), ..Batch::new(vec![images], classes) };
    let (found, gradients) = trained(&run.model, &batch);
    let loss = f64::from(expected["loss"].to_scalar::<f32>().unwrap());
    assert!((found / loss - 1.0).abs() < 1e-5, "loss");
    let files: (&[_], &[_]) = (&[WEIGHTS], &[CONFIG, PROCESSOR]);
    check_round_trip(&run, &golden(), files, &gradients);
}

#[test]
fn attention_is_rolled_out_over_the_layers() {
    let folder = tempfile::tempdir().unwrap();
    let run = imported(&golden(), &folder.path().join("run")).unwrap();
    let expected = tensors(golden().join("expected.safetensors"));
    let values = run.model.shape().values();
    let images: Vec<u32> = expected["images"].to_vec1().unwrap();
    // Expected: `(I + A₂) / 2 · (I + A₁) / 2` for the first image, where A₁ and A₂ are the mean
    // attention weights of the two layers in Transformers.
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
    let says = |change: &dyn Fn(&Path)| refusal::<ImageClassifier>(&golden(), change);
    for (key, value, said) in [
        ("model_type", "swin".into(), "\"vit\""),
        ("hidden_act", "tanh".into(), "hidden_act = \"tanh\""),
        ("qkv_bias", false.into(), "qkv_bias"),
        ("num_attention_heads", 3.into(), "model.heads = 3 does not divide"),
        ("num_hidden_layers", 3.into(), "no tensor vit.encoder.layer.2.layernorm_before.weight"),
        ("num_hidden_layers", 1.into(), "has a tensor vit.encoder.layer.1."),
        ("image_size", 16.into(), "size is 12 x 12 and do_center_crop is off"),
        ("patch_size", 5.into(), "data.images.patch"),
        ("num_channels", 2.into(), "data.images.channels"),
        ("id2label", json!({"0": "a", "2": "b"}), "id2label"),
        ("hidden_size", "wide".into(), "not a ViT that can be imported"),
        ("hidden_size", json!(1_u64 << 40), "memory"),
    ] {
        let error = says(&|path| set(path.join(CONFIG), key, &value));
        assert!(error.contains(said), "{key}: {error}");
    }
    for (key, value, said) in [
        ("do_pad", json!(true), "do_pad"),
        ("image_std", json!([0.0, 0.1, 0.2]), "data.images.deviation"),
        ("image_mean", json!([0.1, 0.2]), "data.images.mean"),
    ] {
        let error = says(&|path| set(path.join(PROCESSOR), key, &value));
        assert!(error.contains(said), "{key}: {error}");
    }
    let error = says(&|path| fs::remove_file(path.join(WEIGHTS)).unwrap());
    assert!(error.contains("cannot read"), "{error}");
    let error = says(&|path| fs::write(path.join(PROCESSOR), b"{").unwrap());
    assert!(error.contains("preprocessor_config.json: not JSON"), "{error}");
}

#[test]
fn labels_without_names_are_called_as_transformers_calls_them() {
    let folder = tempfile::tempdir().unwrap();
    let source = changed(&golden(), folder.path(), &|path| {
        set(path.join(CONFIG), "id2label", &json!(null));
        set(path.join(CONFIG), "label2id", &json!(null));
    });
    let run = imported(&source, &folder.path().join("run")).unwrap();
    let expected = ["LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3", "LABEL_4"];
    assert_eq!(run.config.data.images.labels, expected);
}

#[test]
fn a_vit_without_a_head_knows_no_class() {
    let folder = tempfile::tempdir().unwrap();
    let source = changed(&golden(), folder.path(), &|path| {
        set(path.join(CONFIG), "architectures", &json!(["ViTModel"]));
        set(path.join(CONFIG), "id2label", &json!(null));
        rewrite(path, |weights| {
            let body = weights.iter().filter_map(|(name, tensor)| {
                Some((name.strip_prefix("vit.")?.to_owned(), tensor.clone()))
            });
            *weights = body.collect();
            // `save_pretrained` of Transformers also writes a pooler.
            let bias = weights["layernorm.bias"].clone();
            weights.insert("pooler.dense.weight".to_owned(), bias.unsqueeze(0).unwrap());
            weights.insert("pooler.dense.bias".to_owned(), bias);
        });
    });
    let run = imported(&source, &folder.path().join("run")).unwrap();
    assert_eq!(run.config.data.images.labels, ["LABEL_0", "LABEL_1"]);
    let expected = tensors(golden().join("expected.safetensors"));
    let values = run.model.shape().values();
    let ids: Vec<u32> = expected["images"].to_vec1().unwrap();
    let lengths = vec![values; ids.len() / values];
    let logits = run.model.logits(&Sequences { ids, lengths }).unwrap();
    assert_eq!(logits.abs().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap(), 0.0);
    let out = folder.path().join("out");
    export(&run, &out).unwrap();
    let (ours, theirs) = (tensors(out.join(WEIGHTS)), tensors(golden().join(WEIGHTS)));
    for (name, tensor) in theirs.iter().filter(|(name, _)| name.starts_with("vit.")) {
        assert!(relative(&ours[name], tensor) == 0.0, "{name}");
    }
}
