//! Exports for CTranslate2 of models from golden folders (small models that Transformers has
//! written). `scripts/check/engines.py` checks that CTranslate2 itself reads such exports.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::json;
use taper_model::{
    ActivationKind, AttentionKind, LanguageModel, Model, ModelConfig, NormKind, Positions,
    RotaryScaling, TranslationModel,
};
use taper_run::LoadedRun;
use taper_run::engines::Engine;
use taper_run::engines::ctranslate2::{Ctranslate2, Quantization};
use taper_run::tasks::TaskModel;

use crate::{golden, imported, json_of};

/// Numbers that stand for the types float32 and int8 in the file.
const FLOAT32: u8 = 0;
const INT8: u8 = 1;

/// A tensor of a `model.bin`.
struct Variable {
    shape: Vec<usize>,
    kind: u8,
    bytes: Vec<u8>,
}

impl Variable {
    fn floats(&self) -> Vec<f32> {
        assert_eq!(self.kind, FLOAT32);
        let parts = self.bytes.chunks_exact(4);
        parts.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }
}

/// Content of a `model.bin`.
struct Stored {
    specification: String,
    variables: BTreeMap<String, Variable>,
    aliases: BTreeMap<String, String>,
}

impl Stored {
    fn read(folder: &Path) -> Self {
        let bytes = fs::read(folder.join("model.bin")).unwrap();
        let mut rest = bytes.as_slice();
        let mut take = |count: usize| {
            let (taken, others) = rest.split_at(count);
            rest = others;
            taken.to_vec()
        };
        let number = |bytes: Vec<u8>| {
            bytes.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
        };
        assert_eq!(number(take(4)), 6);
        let name = |take: &mut dyn FnMut(usize) -> Vec<u8>| {
            let length = number(take(2));
            let mut name = take(length);
            assert_eq!(name.pop(), Some(0));
            String::from_utf8(name).unwrap()
        };
        let specification = name(&mut take);
        take(4);
        let mut variables = BTreeMap::new();
        for _ in 0..number(take(4)) {
            let name = name(&mut take);
            let shape = (0..number(take(1))).map(|_| number(take(4))).collect();
            let kind = take(1)[0];
            let length = number(take(4));
            let variable = Variable { shape, kind, bytes: take(length) };
            assert!(variables.insert(name, variable).is_none());
        }
        let aliases = (0..number(take(4))).map(|_| (name(&mut take), name(&mut take))).collect();
        assert!(rest.is_empty());
        Self { specification, variables, aliases }
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        self.variables[name].floats()
    }

    fn attribute(&self, name: &str) -> &[u8] {
        let variable = &self.variables[name];
        assert!(variable.shape.is_empty(), "{name}");
        &variable.bytes
    }
}

fn exported<M: TaskModel>(name: &str, quantization: Quantization) -> (LoadedRun<M>, Stored) {
    let folder = tempfile::tempdir().unwrap();
    let run: LoadedRun<M> = imported(&golden(name), &folder.path().join("run")).unwrap();
    let out = folder.path().join("out");
    Ctranslate2(quantization).export(&run, &out).unwrap();
    (run, Stored::read(&out))
}

fn values<M: TaskModel>(run: &LoadedRun<M>, name: &str) -> Vec<f32> {
    let parameter = run.model.parameters().get(name).unwrap();
    parameter.var().as_detached_tensor().flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn a_language_model_has_its_weights_and_shape_to_the_bit() {
    let (run, model) = exported::<LanguageModel>("gpt2", Quantization::Float32);
    assert_eq!(model.specification, "TransformerDecoderSpec");
    for (ours, theirs) in [
        ("embedding.weight", "decoder/embeddings/weight"),
        ("decoder.positions.weight", "decoder/position_encodings/encodings"),
        (
            "decoder.layers.0.self_attention.qkv.weight",
            "decoder/layer_0/self_attention/linear_0/weight",
        ),
        (
            "decoder.layers.1.self_attention.out.bias",
            "decoder/layer_1/self_attention/linear_1/bias",
        ),
        (
            "decoder.layers.0.self_attention_norm.weight",
            "decoder/layer_0/self_attention/layer_norm/gamma",
        ),
        ("decoder.layers.1.feed_forward.up.bias", "decoder/layer_1/ffn/linear_0/bias"),
        ("decoder.layers.1.feed_forward_norm.bias", "decoder/layer_1/ffn/layer_norm/beta"),
        ("decoder.final_norm.bias", "decoder/layer_norm/beta"),
    ] {
        assert_eq!(values(&run, ours), model.floats(theirs), "{ours}");
    }
    assert_eq!(model.aliases["decoder/projection/weight"], "decoder/embeddings/weight");
    let floats = model.variables.values().filter(|one| !one.shape.is_empty());
    let count: usize = floats.map(|one| one.bytes.len() / 4).sum();
    assert_eq!(count, run.model.parameters().len());
    assert_eq!(model.attribute("decoder/scale_embeddings"), [0]);
    assert_eq!(model.attribute("decoder/pre_norm"), [1]);
}

#[test]
fn gates_shared_keys_and_rotary_positions_have_their_places() {
    let (run, model) = exported::<LanguageModel>("llama", Quantization::Float32);
    let both = values(&run, "decoder.layers.0.feed_forward.up.weight");
    let (plain, gate) = both.split_at(both.len() / 2);
    assert_eq!(model.floats("decoder/layer_0/ffn/linear_0_noact/weight"), plain);
    assert_eq!(model.floats("decoder/layer_0/ffn/linear_0/weight"), gate);
    let config = &run.config.model;
    let shared = config.attention_shape().key_value_heads as i32;
    let of_layer = |name: &str| model.attribute(&format!("decoder/layer_1/self_attention/{name}"));
    assert_eq!(of_layer("num_heads_kv"), shared.to_le_bytes());
    assert_eq!(of_layer("rotary_dim"), 0_i32.to_le_bytes());
    assert_eq!(of_layer("rotary_interleave"), [0]);
    assert_eq!(of_layer("rotary_base"), (config.rotary.base as f32).to_le_bytes());
    assert!(!model.variables.keys().any(|name| name.ends_with("/beta")));
}

#[test]
fn a_translation_model_that_was_imported_has_its_files_and_forbids_its_padding() {
    let folder = tempfile::tempdir().unwrap();
    let source = golden("marian");
    let run: LoadedRun<TranslationModel> = imported(&source, &folder.path().join("run")).unwrap();
    let out = folder.path().join("out");
    Ctranslate2(Quantization::Float32).export(&run, &out).unwrap();
    let model = Stored::read(&out);
    assert_eq!(model.specification, "TransformerSpec");
    for file in ["source.spm", "target.spm"] {
        assert!(
            fs::read(out.join(file)).unwrap() == fs::read(source.join(file)).unwrap(),
            "{file}"
        );
    }
    let target = run.tokenizers.target();
    let never = &target.special_tokens().never_written;
    assert!(!never.is_empty());
    let bias = model.floats("decoder/projection/bias");
    for (id, (value, ours)) in bias.iter().zip(values(&run, "output.bias")).enumerate() {
        let expected = if never.contains(&(id as u32)) { -1e4 } else { ours };
        assert_eq!(*value, expected, "{id}");
    }
    let config = json_of(out.join("config.json"));
    let name = |id: u32| json!(target.token(id).unwrap());
    assert_eq!(config["decoder_start_token"], name(target.decoder_start()));
    assert_eq!(config["eos_token"], name(target.end()));
    assert_eq!(
        (&config["add_source_eos"], &config["add_source_bos"]),
        (&json!(true), &json!(false))
    );
    for file in ["source_vocabulary.json", "target_vocabulary.json"] {
        let tokens = json_of(out.join(file));
        assert_eq!(tokens.as_array().unwrap().len(), bias.len(), "{file}");
    }
    let table = model.floats("decoder/position_encodings/encodings");
    assert_eq!(table.len(), 1024 * run.config.model.d_model);
    assert_eq!(model.aliases["encoder/embeddings_0/weight"], "decoder/embeddings/weight");
    let card = fs::read_to_string(out.join("README.md")).unwrap();
    assert!(
        card.contains("library_name: ctranslate2") && card.contains("translate_batch"),
        "{card}"
    );
    assert!(!card.contains("model-index") && !card.contains("license"), "{card}");
    let taken = Ctranslate2(Quantization::Float32).export(&run, &out).unwrap_err();
    assert!(taken.to_string().contains("exists already"), "{taken}");
}

#[test]
fn rows_of_int8_are_the_weights_to_half_a_step() {
    let (run, model) = exported::<LanguageModel>("gpt2", Quantization::Int8);
    let weights = values(&run, "decoder.layers.0.feed_forward.down.weight");
    let name = "decoder/layer_0/ffn/linear_1/weight";
    let (rounded, scales) = (&model.variables[name], model.floats(&format!("{name}_scale")));
    assert_eq!((rounded.kind, rounded.shape[0]), (INT8, scales.len()));
    for (at, weight) in weights.iter().enumerate() {
        let scale = scales[at / rounded.shape[1]];
        let value = f32::from(rounded.bytes[at] as i8) / scale;
        assert!((value - weight).abs() <= 0.5001 / scale, "{value} for {weight}");
    }
    // With int8, norms and biases stay in float32. With float16 (type 4), they are rounded to
    // float16.
    assert_eq!(model.variables["decoder/layer_norm/gamma"].kind, FLOAT32);
    let half = exported::<LanguageModel>("gpt2", Quantization::Float16).1;
    assert_eq!(half.variables["decoder/layer_norm/gamma"].kind, 4);
}

#[test]
fn models_that_the_engine_does_not_compute_are_refused_by_their_key() {
    type Change = fn(&mut ModelConfig);
    fn refused<M: TaskModel>(name: &str, cases: &[(&str, Change)]) {
        let folder = tempfile::tempdir().unwrap();
        let mut run: LoadedRun<M> = imported(&golden(name), &folder.path().join("run")).unwrap();
        let model = run.config.model.clone();
        for (said, change) in cases {
            run.config.model = model.clone();
            change(&mut run.config.model);
            let out = folder.path().join("out");
            let error = Ctranslate2(Quantization::Int8).export(&run, &out).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{said} cannot be exported")), "{error}");
            assert!(!out.exists());
        }
    }
    refused::<LanguageModel>(
        "llama",
        &[
            ("model.norm_kind = \"rms-with-bias\"", |model| {
                model.norm_kind = NormKind::RmsWithBias
            }),
            ("model.positions = \"t5\"", |model| model.positions = Positions::T5),
            ("model.rotary.scaling = \"yarn\"", |model| model.rotary.scaling = RotaryScaling::Yarn),
            ("model.decoder_attention = \"linear\"", |model| {
                model.decoder_attention.kind = AttentionKind::Linear;
            }),
        ],
    );
    refused::<TranslationModel>(
        "marian",
        &[("model.positions = \"alibi\"", |model| {
            model.activation = ActivationKind::QuickGelu;
            model.positions = Positions::Alibi;
        })],
    );
}
