//! Language models like Llama, and others with rotary positions, agree with Transformers.
//! `scripts/golden/decoders/llama.py` makes a Llama in bf16 and in several files, a Qwen2, a Qwen3,
//! a Mistral with a sliding window, and a Qwen2 with a sliding window in its last layer; both
//! windows are shorter than the texts. `parallel.py` in the same folder makes a GPT-NeoX, a GPT-J
//! and a Phi, whose feed-forward layers are computed in parallel with attention.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use taper_model::{AttentionKind, Batch, LanguageModel, Model, Pass, RotaryScaling, Sequences};
use taper_run::LoadedRun;
use taper_run::folders::export;
use taper_run::generation::{GenerationSettings, Generator, TextScorer};

use super::{
    CONFIG, WEIGHTS, check_round_trip, golden, imported, json_of, refusal, relative, rows, set,
    tensors, trained,
};

const FAMILIES: [&str; 8] =
    ["llama", "qwen2", "qwen3", "mistral", "qwen2-windows", "gpt-neox", "gptj", "phi"];

fn opened(family: &str, folder: &Path) -> LoadedRun<LanguageModel> {
    imported(&golden(family), &folder.join("run")).unwrap()
}

#[test]
fn transformers_agrees_and_a_round_trip_changes_no_bit() {
    for family in FAMILIES {
        let folder = tempfile::tempdir().unwrap();
        let run = opened(family, folder.path());
        let expected = tensors(golden(family).join("expected.safetensors"));
        let rows = rows(&expected["ids"], &expected["lengths"]);
        let texts: Vec<&[u32]> = rows.iter().map(|row| &row[..row.len() - 1]).collect();
        let answers: Vec<u32> = rows.iter().flat_map(|row| row[1..].iter().copied()).collect();
        let text = Sequences::pack(&texts);
        let pass = Pass::evaluate();
        let logits = run.model.logits(&run.model.hidden(&text, &pass).unwrap(), &pass).unwrap();
        let error = relative(&logits, &expected["logits"]);
        assert!(error < 1e-5, "{family}: logits {error}");
        let (found, gradients) = trained(&run.model, &Batch::new(vec![text], answers));
        let loss = f64::from(expected["loss"].to_scalar::<f32>().unwrap());
        assert!((found / loss - 1.0).abs() < 1e-5, "{family}: loss {found} for {loss}");

        // The Llama has weights in bf16, which are exported in f32, so that the values but not the
        // bytes stay the same.
        let all = [WEIGHTS, "tokenizer.json", "generation_config.json", "chat_template.jinja"];
        let whole = if family == "llama" { &all[1..] } else { &all[..] };
        check_round_trip(&run, &golden(family), (whole, &[CONFIG]), &gradients);
    }
}

#[test]
fn an_export_is_imported_again_to_the_bit() {
    for family in FAMILIES {
        let folder = tempfile::tempdir().unwrap();
        let run = opened(family, folder.path());
        let out = folder.path().join("out");
        export(&run, &out).unwrap();
        let again: LoadedRun<LanguageModel> = imported(&out, &folder.path().join("again")).unwrap();
        assert_eq!(again.config.model, run.config.model);
        let [ours, theirs] = [&run, &again]
            .map(|run| run.model.parameters().flat().unwrap().to_vec1::<f32>().unwrap());
        assert!(ours == theirs, "{family}");
    }
}

#[test]
fn ids_scores_and_greedy_texts_are_those_of_transformers() {
    for family in FAMILIES {
        let folder = tempfile::tempdir().unwrap();
        let run = opened(family, folder.path());
        let expected = json_of(golden(family).join("expected.json"));
        let tokenizer = run.tokenizers.target();
        let texts: Vec<&String> = expected["ids"].as_object().unwrap().keys().collect();
        for &text in &texts {
            assert_eq!(json!(tokenizer.encode(text).unwrap()), expected["ids"][text], "{text}");
        }
        let all = tensors(golden(family).join("expected.safetensors"));
        let loss = f64::from(all["loss"].to_scalar::<f32>().unwrap());
        let texts: Vec<String> = texts.into_iter().cloned().collect();
        let scores = TextScorer::new(&run).unwrap().texts(&texts, |_| {}).unwrap();
        let scores: Vec<f64> =
            scores.into_iter().flat_map(|score| score.unwrap().token_log_probabilities).collect();
        let mean = -scores.iter().sum::<f64>() / scores.len() as f64;
        assert!((mean / loss - 1.0).abs() < 1e-5, "{family}: {mean} for {loss}");

        let mut settings = GenerationSettings::from_config(&run.config);
        settings.max_tokens = 8;
        settings.decoding.sampling.temperature = 0.0;
        let prompts: Vec<String> = expected["texts"].as_object().unwrap().keys().cloned().collect();
        let written = Generator::new(&run, &settings).unwrap().generate(&prompts, |_| {}).unwrap();
        for (prompt, texts) in prompts.iter().zip(written) {
            assert_eq!(json!(texts[0].text), expected["texts"][prompt], "{family}: {prompt}");
        }
    }
}

/// The keys of rotary positions are read as version 5 of Transformers writes them, and as older
/// versions do.
#[test]
fn keys_of_rotary_positions_have_two_spellings() {
    let folder = tempfile::tempdir().unwrap();
    let usual = opened("llama", folder.path()).config.model.rotary;
    for (at, (theta, scaling)) in [
        (
            json!(500.0),
            json!({
                "type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            }),
        ),
        (
            Value::Null,
            json!({
                "rope_theta": 500, "rope_type": "llama3", "factor": 4, "low_freq_factor": 1,
                "high_freq_factor": 4, "original_max_position_embeddings": 16,
            }),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let change = |path: &Path| {
            set(path.join(CONFIG), "rope_parameters", &Value::Null);
            set(path.join(CONFIG), "rope_theta", &theta);
            set(path.join(CONFIG), "rope_scaling", &scaling);
        };
        let older = super::changed(&golden("llama"), &folder.path().join(at.to_string()), &change);
        let run: LoadedRun<LanguageModel> =
            imported(&older, &folder.path().join(format!("older-{at}"))).unwrap();
        assert_eq!(run.config.model.rotary, usual);
    }
}

/// Keys that are in two places, and keys that are absent, mean what they mean in version 5 of
/// Transformers.
#[test]
fn keys_have_the_precedence_and_defaults_of_transformers() {
    let folder = tempfile::tempdir().unwrap();
    let mut at = 0;
    let mut model = |family: &str, keys: &Value| {
        at += 1;
        let change = |path: &Path| {
            let mut config = json_of(path.join(CONFIG));
            for (key, value) in keys.as_object().unwrap() {
                config[key] = value.clone();
                if value == "absent" {
                    config.as_object_mut().unwrap().remove(key);
                }
            }
            fs::write(path.join(CONFIG), config.to_string()).unwrap();
        };
        let other = super::changed(&golden(family), &folder.path().join(at.to_string()), &change);
        let run = imported(&other, &folder.path().join(format!("run-{at}")));
        let run: LoadedRun<LanguageModel> = run.unwrap();
        run.config.model
    };
    let linear = json!({"type": "linear", "factor": 2});
    let rotary = model("llama", &json!({"rope_scaling": linear})).rotary;
    assert_eq!((rotary.scaling, rotary.factor), (RotaryScaling::Interpolation, 2.0));
    assert_eq!((rotary.base, rotary.original_length), (10_000.0, None));
    let rotary = model("llama", &json!({"rope_scaling": {}})).rotary;
    assert_eq!((rotary.scaling, rotary.base), (RotaryScaling::Llama3, 500.0));
    let rotary = model("llama", &json!({"original_max_position_embeddings": 32})).rotary;
    assert_eq!(rotary.original_length, Some(32));

    let neox = model(
        "gpt-neox",
        &json!({
            "rope_parameters": null, "rotary_pct": 0.5, "rotary_emb_base": 300,
            "partial_rotary_factor": 0.25, "rope_theta": 55,
        }),
    );
    assert_eq!(neox.rotary.width, Some(neox.attention_shape().head_width / 2));
    assert_eq!(neox.rotary.base, 300.0);

    for family in ["mistral", "qwen2-windows"] {
        let attention = model(family, &json!({"sliding_window": "absent"})).decoder_attention;
        assert_eq!((attention.window, attention.kind_of(1)), (4096, AttentionKind::Sparse));
        let attention = model(family, &json!({"sliding_window": null})).decoder_attention;
        assert_eq!(attention.kind_of(1), AttentionKind::Full, "{family}");
    }
}

#[test]
fn a_folder_that_is_no_llama_is_refused_and_leaves_nothing() {
    let says = |family: &str, key: &str, value: &Value| {
        refusal::<LanguageModel>(&golden(family), &|path| set(path.join(CONFIG), key, value))
    };
    let rope = |kind: &str| json!({"rope_type": kind, "factor": 2.0});
    for (family, key, value, said) in [
        ("llama", "rope_parameters", rope("dynamic"), "rope_type is \"dynamic\""),
        ("llama", "rope_parameters", json!({"rope_type": "linear"}), "no factor"),
        ("llama", "rope_parameters", json!(7), "is 7, expected keys"),
        (
            "llama",
            "rope_parameters",
            json!({"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
            "partial_rotary_factor is 0.5",
        ),
        ("llama", "mlp_bias", json!(true), "mlp_bias is true"),
        ("llama", "attention_bias", json!(true), "no tensor model.layers.0.self_attn"),
        ("llama", "num_key_value_heads", json!(4), "but config.json asks for"),
        ("llama", "num_key_value_heads", json!(3), "does not divide model.heads"),
        ("llama", "num_attention_heads", json!(0), "model.heads"),
        ("llama", "head_dim", json!(5), "even width of a head"),
        ("qwen2-windows", "layer_types", json!(["chunked_attention"]), "layer_types is"),
        ("qwen2-windows", "sliding_window", json!("wide"), "sliding_window is \"wide\""),
        ("mistral", "sliding_window", json!(-1), "sliding_window is -1"),
        ("qwen2", "tie_word_embeddings", json!(false), "no tensor lm_head.weight"),
        (
            "mistral",
            "layer_types",
            json!(["sliding_attention", "full_attention"]),
            "layer_types is",
        ),
        ("gpt-neox", "head_dim", json!(64), "head_dim is 64"),
        // If the number of key-value heads is null, there is one for each query head, and not the
        // default of 32.
        ("qwen2", "num_key_value_heads", Value::Null, "but config.json asks for"),
    ] {
        let error = says(family, key, &value);
        assert!(error.contains(said), "{key}: {error}");
    }
    let mistral = |path: &Path| {
        let path = path.join(CONFIG);
        set(path.clone(), "model_type", &json!("mistral"));
        set(path.clone(), "architectures", &json!(["MistralForCausalLM"]));
        set(path, "sliding_window", &Value::Null);
    };
    let folder = tempfile::tempdir().unwrap();
    let without = super::changed(&golden("llama"), &folder.path().join("of"), &mistral);
    let run: LoadedRun<LanguageModel> = imported(&without, &folder.path().join("run")).unwrap();
    let out = folder.path().join("out");
    export(&run, &out).unwrap();
    let written = json_of(out.join(CONFIG));
    // Without a window, this Mistral is also a Llama, which is the family that is tried first.
    assert_eq!(written["model_type"], "llama");
    assert!(fs::exists(out.join(WEIGHTS)).unwrap());
}

#[test]
fn a_prompt_of_tokens_without_the_first_token_of_prompts_has_its_own_scores() {
    let folder = tempfile::tempdir().unwrap();
    let run = opened("llama", folder.path());
    let tokenizer = run.tokenizers.target();
    let start = tokenizer.special_tokens().start.unwrap();
    let generator = Generator::new(&run, &GenerationSettings::from_config(&run.config)).unwrap();
    let prompt = tokenizer.encode("the sea").unwrap();
    let begun = [&[start][..], &prompt].concat();
    let scores = generator.token_scores(&[(&prompt, &[]), (&begun, &[])], true, 0).unwrap();
    for scores in &scores {
        assert_eq!(scores.iter().map(|score| score.id).collect::<Vec<_>>(), prompt);
    }
    // Nothing stands before the first token of the first prompt.
    let predicted = |row: usize| scores[row].iter().filter(|one| one.log_probability.is_some());
    assert_eq!(predicted(0).count(), prompt.len() - 1);
    assert!(scores[0][0].log_probability.is_none() && predicted(1).count() == prompt.len());
}
