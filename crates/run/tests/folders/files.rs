//! Files of weights of all kinds are read: with several types, divided into several files (shards),
//! and saved by PyTorch. Damaged files are refused.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use serde_json::{Value, json};
use taper_model::{LanguageModel, Model};
use taper_run::LoadedRun;
use taper_run::folders::export;

use super::{CONFIG, WEIGHTS, changed, golden, imported, refusal, relative, rewrite, tensors};

const INDEX: &str = "model.safetensors.index.json";
const PICKLED: &str = "pytorch_model.bin";

fn gpt2(source: &Path, run: &Path) -> LoadedRun<LanguageModel> {
    imported(source, run).unwrap()
}

/// Copies the golden GPT-2 folder (a small model that Transformers has written), changes it by
/// `change`, imports it, and returns all parameters of the run.
fn parameters(change: &dyn Fn(&Path)) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let source = changed(&golden("gpt2"), folder.path(), change);
    let run = gpt2(&source, &folder.path().join("run"));
    run.model.parameters().flat().unwrap().to_vec1().unwrap()
}

fn says(change: &dyn Fn(&Path)) -> String {
    refusal::<LanguageModel>(&golden("gpt2"), change)
}

/// Writes a safetensors file from its parts, so that values can have any type and headers can be
/// invalid.
fn write_raw(path: &Path, head: &str, values: &[u8]) {
    let bytes = [&(head.len() as u64).to_le_bytes()[..], head.as_bytes(), values].concat();
    fs::write(path, bytes).unwrap();
}

/// Header of a safetensors file, and the bytes of its values.
fn raw(path: &Path) -> (serde_json::Map<String, Value>, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let head = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    (head, bytes[8 + length..].to_vec())
}

/// Adds a tensor of any type to the weights in `folder`.
fn add(folder: &Path, name: &str, dtype: &str, shape: &[usize], values: &[u8]) {
    let (mut head, mut bytes) = raw(&folder.join(WEIGHTS));
    let offsets = [bytes.len(), bytes.len() + values.len()];
    head.insert(
        name.to_owned(),
        json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets }),
    );
    bytes.extend(values);
    write_raw(&folder.join(WEIGHTS), &json!(head).to_string(), &bytes);
}

/// Function that changes the files of a folder.
type Change<'a> = &'a dyn Fn(&Path);

/// Divides the weights of a folder into several files, one for each tensor, and writes their index.
fn shard(folder: &Path) {
    let weights = tensors(folder.join(WEIGHTS));
    fs::remove_file(folder.join(WEIGHTS)).unwrap();
    let mut names: Vec<&String> = weights.keys().collect();
    names.sort();
    let mut map = serde_json::Map::new();
    for (number, name) in names.into_iter().enumerate() {
        let file = format!("model-{number}.safetensors");
        let one = HashMap::from([(name.clone(), weights[name].clone())]);
        candle_core::safetensors::save(&one, folder.join(&file)).unwrap();
        map.insert(name.clone(), json!(file));
    }
    let index = json!({ "metadata": { "total_size": 1 }, "weight_map": map });
    fs::write(folder.join(INDEX), index.to_string()).unwrap();
}

/// Changes the index in `folder` so that it names `file` as the file with the tensor `tensor`.
fn point(folder: &Path, tensor: &str, file: &str) {
    let text = fs::read_to_string(folder.join(INDEX)).unwrap();
    let mut index: Value = serde_json::from_str(&text).unwrap();
    index["weight_map"][tensor] = json!(file);
    fs::write(folder.join(INDEX), index.to_string()).unwrap();
}

#[test]
fn weights_of_every_type_are_read() {
    let whole = parameters(&|_| {});
    for (dtype, bits) in [(DType::F64, 24), (DType::F16, 11), (DType::BF16, 8)] {
        let found = parameters(&|path| {
            rewrite(path, |weights| {
                weights.values_mut().for_each(|tensor| *tensor = tensor.to_dtype(dtype).unwrap());
            });
        });
        let bound = 2.0_f32.powi(-bits);
        for (&found, &value) in found.iter().zip(&whole) {
            // Very small numbers have fewer significant bits in f16.
            assert!(
                (found - value).abs() <= bound * value.abs() + 1e-7,
                "{dtype:?} {found} {value}"
            );
        }
    }
}

#[test]
fn buffers_of_any_type_are_no_weights() {
    let whole = parameters(&|_| {});
    let found = parameters(&|path| {
        add(path, "transformer.h.0.attn.bias", "BOOL", &[1, 1, 2, 2], &[1, 0, 1, 1]);
        add(path, "h.1.attn.masked_bias", "F32", &[], &0.5_f32.to_le_bytes());
        add(path, "transformer.position_ids", "I64", &[1], &[0; 8]);
        add(path, "transformer.h.0.attn.rotary_emb.inv_freq", "F32", &[1], &[0; 4]);
        add(path, "transformer.of_a_later_format", "F2_E1", &[5], &[7]);
    });
    assert_eq!(found, whole);
    let error = says(&|path| add(path, "transformer.more", "F32", &[1], &[0; 4]));
    assert!(error.contains("has a tensor transformer.more"), "{error}");
}

#[test]
fn a_weight_that_cannot_be_read_is_named() {
    let name = "transformer.h.1.mlp.c_fc.bias";
    let retyped = |path: &Path, dtype: &str, width: usize| {
        let (mut head, mut bytes) = raw(&path.join(WEIGHTS));
        let offsets = [bytes.len(), bytes.len() + 64 * width];
        bytes.resize(offsets[1], 0);
        let entry = json!({ "dtype": dtype, "shape": [64], "data_offsets": offsets });
        let former = head.insert(name.to_owned(), entry).unwrap();
        // The format allows no bytes outside of tensors. So the former bytes of the weight become a
        // tensor that an import ignores.
        head.insert("transformer.h.1.attn.masked_bias".to_owned(), former);
        write_raw(&path.join(WEIGHTS), &json!(head).to_string(), &bytes);
    };
    for (dtype, width) in [("I8", 1), ("F8_E4M3", 1), ("I64", 8), ("BOOL", 1)] {
        let error = says(&|path| retyped(path, dtype, width));
        assert!(error.contains(&format!("tensor {name} has type {dtype}")), "{error}");
    }
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let error = says(&|path| {
            rewrite(path, |weights| {
                let mut values: Vec<f32> = weights[name].to_vec1().unwrap();
                values[63] = value;
                let other = Tensor::from_vec(values, 64, &Device::Cpu).unwrap();
                weights.insert(name.to_owned(), other);
            });
        });
        assert!(error.contains(name) && error.contains("NaN or infinite"), "{error}");
    }
}

#[test]
fn a_damaged_file_is_refused() {
    let (mut head, values) = raw(&golden("gpt2").join(WEIGHTS));
    let whole = json!(head).to_string();
    head["transformer.ln_f.weight"]["data_offsets"] =
        head["transformer.ln_f.bias"]["data_offsets"].clone();
    let (shared, head) = (json!(head).to_string(), whole);
    let write =
        |path: &Path, head: &str, values: &[u8]| write_raw(&path.join(WEIGHTS), head, values);
    let twice = head.replacen("{\"", "{\"transformer.wpe.weight\":1,\"", 1);
    let damaged: [(&str, Change); 9] = [
        ("another ends at", &|path| write(path, &shared, &values)),
        ("no head", &|path| fs::write(path.join(WEIGHTS), b"1234567").unwrap()),
        ("cut short", &|path| fs::write(path.join(WEIGHTS), [255; 20]).unwrap()),
        ("cut short", &|path| write(path, &head, &values[..values.len() - 1])),
        ("after its last tensor", &|path| write(path, &head, &[&values[..], &[0]].concat())),
        ("not a safetensors file", &|path| write(path, "[]", &[])),
        ("is there twice", &|path| write(path, &twice, &values)),
        ("has 3 bytes", &|path| add(path, "transformer.x", "F32", &[1], &[0; 3])),
        ("tensor transformer.x", &|path| {
            add(path, "transformer.x", "F32", &[usize::MAX, 8], &[0; 4]);
        }),
    ];
    for (said, change) in damaged {
        let error = says(change);
        assert!(error.contains(WEIGHTS) && error.contains(said), "{said}: {error}");
    }
}

#[test]
fn shards_are_read_by_their_index() {
    assert_eq!(parameters(&shard), parameters(&|_| {}));
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_file() {
    let expected = parameters(&|_| {});
    let read = parameters(&|folder| {
        shard(folder);
        for file in [CONFIG, INDEX, "tokenizer.json"] {
            let text = fs::read_to_string(folder.join(file)).unwrap();
            fs::write(folder.join(file), format!("\u{feff}{text}")).unwrap();
        }
        fs::write(folder.join("generation_config.json"), "\u{feff}{}").unwrap();
    });
    assert_eq!(read, expected);
    let error = says(&|folder| fs::write(folder.join(CONFIG), "[1]").unwrap());
    assert!(error.contains(CONFIG) && error.contains("not an object of JSON"), "{error}");
}

#[test]
fn an_index_leads_nowhere_else() {
    let name = "transformer.wpe.weight";
    let pointed = |file: &str| {
        says(&|path| {
            shard(path);
            fs::copy(path.join("model-0.safetensors"), path.join("../outside.safetensors"))
                .unwrap();
            point(path, name, file);
        })
    };
    for file in ["../outside.safetensors", "/etc/passwd", "", "./../x", "a/../b", "..\\x"] {
        let error = pointed(file);
        assert!(error.contains(INDEX) && error.contains(name), "{file}: {error}");
        assert!(error.contains("leads out of the folder"), "{file}: {error}");
    }
    for (file, said) in
        [("model-99.safetensors", "no such file"), ("model-1.safetensors", "is not")]
    {
        let error = pointed(file);
        assert!(error.contains(INDEX) && error.contains(name) && error.contains(said), "{error}");
    }
    #[cfg(unix)]
    {
        let error = says(&|path| {
            shard(path);
            let outside = path.parent().unwrap().join("outside.safetensors");
            fs::rename(path.join("model-3.safetensors"), &outside).unwrap();
            std::os::unix::fs::symlink(&outside, path.join("model-3.safetensors")).unwrap();
        });
        assert!(error.contains("a link leads out of the folder"), "{error}");
    }
    for (index, said) in [
        ("{}", "weight_map"),
        ("{\"weight_map\": {}}", "weight_map is empty"),
        ("{\"weight_map\": {\"a\": 1}}", "weight_map.\"a\" is 1"),
        ("{\"weight_map\": {\"a\": \"b\", \"a\": \"c\"}}", "is there twice"),
    ] {
        let error = says(&|path| {
            fs::remove_file(path.join(WEIGHTS)).unwrap();
            fs::write(path.join(INDEX), index).unwrap();
        });
        assert!(error.contains(INDEX) && error.contains(said), "{index}: {error}");
    }
    // A tensor must not be in two of the files.
    let error = says(&|path| {
        shard(path);
        let one = tensors(path.join("model-0.safetensors"));
        let mut two = tensors(path.join("model-1.safetensors"));
        two.extend(one);
        candle_core::safetensors::save(&two, path.join("model-1.safetensors")).unwrap();
    });
    assert!(error.contains("model-0.safetensors has too"), "{error}");
}

/// Replaces the weights in the folder `path` by a file that PyTorch has saved, and changes the
/// bytes of this file.
fn pickled(path: &Path, change: impl Fn(&mut Vec<u8>)) {
    fs::remove_file(path.join(WEIGHTS)).unwrap();
    let mut bytes = fs::read(golden("gpt2-pytorch").join(PICKLED)).unwrap();
    change(&mut bytes);
    fs::write(path.join(PICKLED), bytes).unwrap();
}

#[test]
fn what_pytorch_saves_is_read() {
    assert_eq!(parameters(&|path| pickled(path, |_| {})), parameters(&|_| {}));
}

#[test]
fn damage_to_what_pytorch_saves_is_refused() {
    // Files of older versions of PyTorch are a pickle and not an archive.
    let error = says(&|path| pickled(path, |bytes| *bytes = b"\x80\x02\x8a\nl\xfc".to_vec()));
    assert!(error.contains(PICKLED) && error.contains("save_pretrained"), "{error}");
    let length = fs::metadata(golden("gpt2-pytorch").join(PICKLED)).unwrap().len() as usize;
    for at in (0..length).step_by(length / 40) {
        let folder = tempfile::tempdir().unwrap();
        let source = changed(&golden("gpt2"), folder.path(), &|path| {
            pickled(path, |bytes| bytes[at] ^= 0x55);
        });
        // The damaged file may be refused or read, but must not cause a panic.
        let _ = imported::<LanguageModel>(&source, &folder.path().join("run"));
    }
}

#[test]
fn a_folder_without_weights_says_what_was_looked_for() {
    let error = says(&|path| fs::rename(path.join(WEIGHTS), path.join("tf_model.h5")).unwrap());
    assert!(error.contains(WEIGHTS) && error.contains(PICKLED) && error.contains(INDEX), "{error}");
}

#[test]
fn what_is_tied_may_be_there_under_the_other_name_alone() {
    let found = parameters(&|path| {
        rewrite(path, |weights| {
            let embedding = weights.remove("transformer.wte.weight").unwrap();
            weights.insert("lm_head.weight".to_owned(), embedding);
        });
    });
    assert_eq!(found, parameters(&|_| {}));
}

#[test]
fn a_language_model_with_a_projection_of_its_own_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let source = changed(&golden("gpt2"), folder.path(), &|path| {
        rewrite(path, |weights| {
            let other = (&weights["transformer.wte.weight"] * 2.0).unwrap();
            weights.insert("lm_head.weight".to_owned(), other);
        });
    });
    let run = gpt2(&source, &folder.path().join("run"));
    let out = folder.path().join("out");
    export(&run, &out).unwrap();
    assert_eq!(super::json_of(out.join(CONFIG))["tie_word_embeddings"], json!(false));
    let (ours, theirs) = (tensors(out.join(WEIGHTS)), tensors(source.join(WEIGHTS)));
    assert_eq!(ours.len(), theirs.len());
    for (name, tensor) in ours {
        assert!(relative(&tensor, &theirs[&name]) == 0.0, "{name}");
    }
}
