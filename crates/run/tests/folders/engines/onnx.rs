//! Exports as ONNX graphs of models from golden folders (small models that Transformers has
//! written). `scripts/check/engines.py` checks that ONNX Runtime computes the right values with
//! such graphs.

use std::fs;

use taper_model::{AttentionKind, LanguageModel, Model, TranslationModel};
use taper_run::LoadedRun;
use taper_run::engines::Engine;
use taper_run::engines::onnx::Onnx;

use crate::{golden, imported, json_of};

#[test]
fn a_translation_model_has_three_graphs_with_its_weights() {
    let folder = tempfile::tempdir().unwrap();
    let run: LoadedRun<TranslationModel> =
        imported(&golden("marian"), &folder.path().join("run")).unwrap();
    let out = folder.path().join("out");
    Onnx::default().export(&run, &out).unwrap();
    let weights = run.model.parameters().get("encoder.layers.0.feed_forward.up.bias").unwrap();
    let values = weights.values().unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    for (name, parts, has_weights) in [
        ("encoder_model.onnx", ["attention_mask", "last_hidden_state"], true),
        ("decoder_model.onnx", ["encoder_hidden_states", "present.0.encoder.key"], false),
        (
            "decoder_with_past_model.onnx",
            ["past_key_values.0.encoder.value", "present.0.decoder.key"],
            false,
        ),
    ] {
        let file = fs::read(out.join(name)).unwrap();
        let has = |part: &[u8]| file.windows(part.len()).any(|window| window == part);
        assert!(parts.iter().all(|part| has(part.as_bytes())), "{name}");
        assert_eq!(has(&bytes), has_weights, "{name}");
    }
    assert_eq!(json_of(out.join("config.json"))["model_type"], "marian");
    assert!(fs::read_to_string(out.join("README.md")).unwrap().contains("ORTModelForSeq2SeqLM"));
    let taken = Onnx::default().export(&run, &out).unwrap_err();
    assert!(taken.to_string().contains("exists already"), "{taken}");
}

#[test]
fn weights_can_be_in_a_file_beside_the_graph() {
    let folder = tempfile::tempdir().unwrap();
    let run: LoadedRun<TranslationModel> =
        imported(&golden("umt5"), &folder.path().join("run")).unwrap();
    let [inside, beside] = [false, true].map(|external_data| {
        let out = folder.path().join(external_data.to_string());
        Onnx { external_data }.export(&run, &out).unwrap();
        out
    });
    let weights = run.model.parameters().get("embedding.weight").unwrap().values().unwrap();
    let weights: Vec<u8> = weights.iter().flat_map(|value| value.to_le_bytes()).collect();
    for graph in ["encoder_model", "decoder_model", "decoder_with_past_model"] {
        let name = format!("{graph}.onnx");
        let data = format!("{name}_data");
        let [whole, bare] = [&inside, &beside].map(|out| fs::read(out.join(&name)).unwrap());
        let values = fs::read(beside.join(&data)).unwrap();
        let place =
            |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).position(|window| window == part);
        assert!(!inside.join(&data).exists() && place(&whole, data.as_bytes()).is_none(), "{name}");
        assert!(place(&whole, &weights).is_some() && place(&bare, &weights).is_none(), "{name}");
        assert!(bare.len() + weights.len() < whole.len(), "{name}");
        // The graph names the offset of the weights in the file. The offset is a multiple of the
        // page size, so that the weights can be mapped into memory.
        let offset = place(&values, &weights).expect("in the file");
        assert_eq!(offset % 4096, 0, "{name}");
        let said = [b"offset\x12", &[offset.to_string().len() as u8][..]].concat();
        let said = [&said, offset.to_string().as_bytes()].concat();
        assert!(place(&bare, &said).is_some(), "{name}: {offset}");
        assert!(place(&bare, data.as_bytes()).is_some(), "{name}");
    }
}

#[test]
fn a_model_that_no_graph_expresses_is_refused_by_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut run: LoadedRun<LanguageModel> =
        imported(&golden("llama"), &folder.path().join("run")).unwrap();
    run.config.model.decoder_attention.kind = AttentionKind::Linear;
    let out = folder.path().join("out");
    let error = Onnx::default().export(&run, &out).unwrap_err().to_string();
    assert!(error.starts_with("model.decoder_attention = \"linear\" cannot be exported for ONNX"));
    assert!(!out.exists());
}
