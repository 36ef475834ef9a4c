//! A GPT-2 agrees with Transformers. The golden files are made by
//! `scripts/golden/decoders/gpt2.py`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use candle_core::Tensor;
use serde_json::json;
use taper_data::SpelledSpecial;
use taper_model::{Batch, LanguageModel, Pass, Sequences};
use taper_run::LoadedRun;
use taper_run::attention::AttentionMap;
use taper_run::generation::{GenerationSettings, Generator, PromptContent, TextScore, TextScorer};

use super::{
    CONFIG, WEIGHTS, changed, check_round_trip, refusal, relative, rows, set, tensors, trained,
};

fn golden() -> PathBuf {
    super::golden("gpt2")
}

fn imported(source: &Path, run: &Path) -> anyhow::Result<LoadedRun<LanguageModel>> {
    super::imported(source, run)
}

struct Expected {
    tensors: HashMap<String, Tensor>,
    rows: Vec<Vec<u32>>,
}

fn expected() -> Expected {
    let tensors = tensors(golden().join("expected.safetensors"));
    Expected { rows: rows(&tensors["ids"], &tensors["lengths"]), tensors }
}

#[test]
fn transformers_agrees_and_a_round_trip_changes_no_bit() {
    let folder = tempfile::tempdir().unwrap();
    let run = imported(&golden(), &folder.path().join("run")).unwrap();
    let Expected { tensors, rows } = expected();
    let texts: Vec<&[u32]> = rows.iter().map(|row| &row[..row.len() - 1]).collect();
    let answers: Vec<u32> = rows.iter().flat_map(|row| row[1..].iter().copied()).collect();
    let text = Sequences::pack(&texts);
    let pass = Pass::evaluate();
    let logits = run.model.logits(&run.model.hidden(&text, &pass).unwrap(), &pass).unwrap();
    let error = relative(&logits, &tensors["logits"]);
    assert!(error < 1e-5, "logits {error}");

    let (found, gradients) = trained(&run.model, &Batch::new(vec![text], answers));
    let loss = f64::from(tensors["loss"].to_scalar::<f32>().unwrap());
    assert!((found / loss - 1.0).abs() < 1e-5, "loss");
    let files: (&[_], &[_]) = (&[WEIGHTS, "tokenizer.json"], &[CONFIG]);
    check_round_trip(&run, &golden(), files, &gradients);
}

#[test]
fn an_imported_model_scores_chooses_and_generates_in_its_own_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let run = imported(&golden(), &folder.path().join("run")).unwrap();
    let Expected { tensors, rows } = expected();
    // Each text is scored after an end token, with which the golden token sequences begin too.
    let texts: Vec<String> =
        rows.iter().map(|row| run.tokenizers.target().decode(&row[1..]).unwrap()).collect();
    let scorer = TextScorer::new(&run).unwrap();
    let scored = |texts: &[String]| -> Vec<TextScore> {
        scorer.texts(texts, |_| {}).unwrap().into_iter().map(Result::unwrap).collect()
    };
    let scores = scored(&texts);
    let logits: Vec<Vec<f32>> = tensors["logits"].to_vec2().unwrap();
    let log_probability = |row: usize, token: u32| {
        let sum: f64 = logits[row].iter().map(|&x| f64::from(x).exp()).sum();
        f64::from(logits[row][token as usize]) - sum.ln()
    };
    let mut at = 0;
    for (row, score) in rows.iter().zip(&scores) {
        assert_eq!(score.token_log_probabilities.len(), row.len() - 1);
        for (&token, found) in row[1..].iter().zip(&score.token_log_probabilities) {
            let wanted = log_probability(at, token);
            assert!((found - wanted).abs() < 1e-4, "{found} for {wanted}");
            at += 1;
        }
    }
    // The tokens of a continuation have the same scores as in the whole text.
    let choices = ["!".to_owned(), " the sea!".to_owned()];
    let chosen = scorer.choices("The sea,", &choices).unwrap();
    let whole = scored(&["The sea, the sea!".to_owned()]);
    let tail: f64 =
        whole[0].token_log_probabilities[whole[0].tokens.len() - chosen.tokens[1]..].iter().sum();
    assert!((chosen.log_probabilities[1] - tail).abs() < 1e-9);
    let higher = usize::from(chosen.log_probabilities[1] > chosen.log_probabilities[0]);
    assert_eq!(chosen.best, higher);
    let long = "sea ".repeat(40);
    // A text that cannot be scored has an error in the result. Other texts are still scored.
    let found = scorer.texts(&[String::new(), "The sea".to_owned(), long], |_| {}).unwrap();
    let error = format!("{:#}", found[0].as_ref().unwrap_err());
    assert!(error.contains("line 1: is empty"), "{error}");
    assert_eq!(*found[1].as_ref().unwrap(), scored(&["The sea".to_owned()])[0]);
    let error = format!("{:#}", found[2].as_ref().unwrap_err());
    assert!(error.contains("line 3") && error.contains("max_positions = 40"), "{error}");

    // Greedy generation must give the likeliest token after each prefix, as computed by passes over
    // the whole text so far.
    let mut settings = GenerationSettings::from_config(&run.config);
    settings.max_tokens = 6;
    settings.decoding.sampling.temperature = 0.0;
    let prompt = "The sea";
    let text =
        &Generator::new(&run, &settings).unwrap().generate(&[prompt.to_owned()], |_| {}).unwrap()
            [0][0];
    let tokenizer = run.tokenizers.target();
    let mut ids = tokenizer.encode(prompt).unwrap();
    let before = ids.len();
    let mut total = 0.0;
    while ids.len() < before + 6 {
        let pass = Pass::evaluate();
        let hidden = run.model.hidden(&Sequences::pack(&[&ids]), &pass).unwrap();
        let logits: Vec<Vec<f32>> = run.model.logits(&hidden, &pass).unwrap().to_vec2().unwrap();
        let last = logits.last().unwrap();
        let best = (0..last.len()).max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap();
        let sum: f64 = last.iter().map(|&x| f64::from(x).exp()).sum();
        if best as u32 == tokenizer.end() {
            break;
        }
        total += f64::from(last[best]) - sum.ln();
        ids.push(best as u32);
    }
    assert_eq!(text.text, {
        let all = tokenizer.decode(&ids).unwrap();
        all.strip_prefix(prompt).unwrap().to_owned()
    });
    assert_eq!(text.tokens, ids.len() - before);
    // The text is truncated, so its probability includes no end token.
    assert!(text.truncated && text.tokens == 6, "{text:?}");
    assert!((text.log_probability - total).abs() < 1e-4, "{} {total}", text.log_probability);
}

#[test]
fn texts_without_tokens_and_texts_longer_than_the_positions_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let strips = json!({ "type": "Strip", "strip_left": true, "strip_right": true });
    let source = changed(&golden(), folder.path(), &|path| {
        set(path.join("tokenizer.json"), "normalizer", &strips);
    });
    let run = imported(&source, &folder.path().join("run")).unwrap();
    let scorer = TextScorer::new(&run).unwrap();
    // Blanks at the end have no tokens with this tokenizer.
    let found = scorer.texts(&[" ".to_owned()], |_| {}).unwrap();
    let error = format!("{:#}", found[0].as_ref().unwrap_err());
    assert!(error.contains("line 1: adds no tokens"), "{error}");
    let choices = [" the sea".to_owned(), "  ".to_owned()];
    let error = format!("{:#}", scorer.choices("The sea,", &choices).unwrap_err());
    assert!(error.contains("choice 2: adds no tokens"), "{error}");

    // The last token of a text is predicted but not read, so it needs a position only if the text
    // is read as a whole.
    let tokenizer = run.tokenizers.target();
    let mut text = String::new();
    while tokenizer.encode(&text).unwrap().len() < 40 {
        text.push('z');
    }
    assert!(scorer.texts(&[text.clone()], |_| {}).unwrap()[0].is_ok());
    let encoded = tokenizer.encode_text(&text).unwrap();
    for error in
        [scorer.read(&text).unwrap_err(), AttentionMap::of_text(&run, &encoded).unwrap_err()]
    {
        let error = format!("{error:#}");
        assert!(error.contains("has 41 tokens") && error.contains("max_positions = 40"), "{error}");
    }
    text.pop();
    let encoded = tokenizer.encode_text(&text).unwrap();
    assert_eq!(AttentionMap::of_text(&run, &encoded).unwrap().layers.len(), 2);
}

/// In a prompt and in a scored text, `<|endoftext|>` is read as the end token if this is requested;
/// otherwise, it is read as text.
#[test]
fn the_end_of_a_text_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = imported(&golden(), &folder.path().join("run")).unwrap();
    let end = run.tokenizers.target().end();
    let text = "The sea<|endoftext|>the";
    let plain = TextScorer::new(&run).unwrap().read(text).unwrap();
    assert_eq!(plain.iter().filter(|&&id| id == end).count(), 1, "that before the text");
    let mut settings = GenerationSettings::from_config(&run.config);
    settings.max_tokens = 3;
    let prompt = PromptContent::Text(text);
    let as_text = Generator::new(&run, &settings).unwrap().read(prompt).unwrap().len();
    settings.special_tokens = SpelledSpecial::Read;
    let generator = Generator::new(&run, &settings).unwrap();
    assert!(generator.read(prompt).unwrap().len() < as_text);
    let found = generator.generate(&[text.to_owned()], |_| {}).unwrap();
    assert!(!found[0][0].text.contains("<|endoftext|>"), "{found:?}");
    settings.special_tokens = SpelledSpecial::Refuse;
    let error = Generator::new(&run, &settings).unwrap().read(prompt).unwrap_err();
    assert!(format!("{error:#}").contains("<|endoftext|>"), "{error:#}");

    run.tokenizers = run.tokenizers.with_spelled(SpelledSpecial::Read);
    let scorer = TextScorer::new(&run).unwrap();
    let ids = scorer.read(text).unwrap();
    assert_eq!(ids.iter().filter(|&&id| id == end).count(), 2);
    // The probability of an ended text is the probability of its tokens times that of the end
    // token.
    let ended = scorer.texts(&["The sea<|endoftext|>".to_owned()], |_| {}).unwrap();
    let alone = scorer.texts(&["The sea".to_owned()], |_| {}).unwrap();
    let (ended, alone) = (ended[0].as_ref().unwrap(), alone[0].as_ref().unwrap());
    let of_end = ended.token_log_probabilities.last().unwrap();
    assert!((ended.log_probability - of_end - alone.log_probability).abs() < 1e-5, "{ended:?}");
}

#[test]
fn a_folder_that_is_no_gpt2_is_refused_and_leaves_nothing() {
    let says = |change: &dyn Fn(&Path)| refusal::<LanguageModel>(&golden(), change);
    for (key, value, said) in [
        ("model_type", "t5".into(), "only \"gpt2\""),
        ("activation_function", "tanh".into(), "activation_function = \"tanh\""),
        ("scale_attn_by_inverse_layer_idx", true.into(), "scale_attn_by_inverse_layer_idx"),
        ("vocab_size", 271.into(), "vocab_size is 271, but tokenizer.json has 272"),
        ("n_head", 3.into(), "model.heads = 3 does not divide"),
        ("n_layer", 3.into(), "no tensor transformer.h.2.ln_1.weight"),
        ("n_layer", 1.into(), "has a tensor transformer.h.1."),
        ("n_positions", 41.into(), "has shape [40, 16], but config.json asks for [41, 16]"),
        ("tie_word_embeddings", false.into(), "no tensor lm_head.weight"),
        ("n_embd", "wide".into(), "not a GPT-2 that can be imported: n_embd is \"wide\""),
        ("n_embd", serde_json::json!(1_u64 << 40), "memory"),
    ] {
        let error = says(&|path| set(path.join(CONFIG), key, &value));
        assert!(error.contains(said), "{key}: {error}");
    }
    for (file, said) in [
        ("config.json", "cannot read"),
        ("model.safetensors", "cannot read"),
        ("tokenizer.json", "tokenizer.json: no such file"),
    ] {
        let error = says(&|path| fs::remove_file(path.join(file)).unwrap());
        assert!(error.contains(said), "{file}: {error}");
        let error = says(&|path| fs::write(path.join(file), b"{\"model_type\"").unwrap());
        assert!(error.contains(file), "{file}: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    fs::create_dir_all(&taken).unwrap();
    fs::write(taken.join("mine"), "kept").unwrap();
    let error = imported(&golden(), &taken).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
    assert_eq!(fs::read_dir(&taken).unwrap().count(), 1);
}

#[test]
fn a_model_writes_as_its_generation_config_says() {
    let folder = tempfile::tempdir().unwrap();
    let run_of = |name: &str, generation: &serde_json::Value| {
        let source = super::changed(&golden(), &folder.path().join(name), &|path| {
            fs::write(path.join("generation_config.json"), generation.to_string()).unwrap();
        });
        imported(&source, &folder.path().join(name).join("run")).unwrap()
    };
    let ids = |run: &LoadedRun<LanguageModel>| {
        let settings =
            GenerationSettings { max_tokens: 8, ..GenerationSettings::from_config(&run.config) };
        let generator = Generator::new(run, &settings).unwrap();
        generator.generate(&["he".to_owned()], |_| {}).unwrap().remove(0).remove(0).ids
    };
    let plain = run_of("plain", &serde_json::json!({ "eos_token_id": 271 }));
    assert!(!plain.config.decoding.sampling.is_active());
    let first = ids(&plain)[0];
    for (name, excluded) in [
        ("suppressed", serde_json::json!({ "suppress_tokens": [first] })),
        ("excluded", serde_json::json!({ "bad_words_ids": [[first], [1, 2]] })),
    ] {
        assert!(!ids(&run_of(name, &excluded)).contains(&first), "{name}");
    }
    let drawn = run_of(
        "drawn",
        &serde_json::json!({
            "do_sample": true, "temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.5,
            "no_repeat_ngram_size": 3, "min_new_tokens": 2, "max_new_tokens": 6,
        }),
    );
    let decoding = &drawn.config.decoding;
    let sampling = &decoding.sampling;
    assert_eq!((sampling.temperature, sampling.top_k, sampling.top_p), (0.7, 50, 0.9));
    assert_eq!((decoding.repetition_penalty, decoding.no_repeat_ngram), (1.5, 3));
    assert_eq!((decoding.min_length, decoding.max_length), (2, 6));
}

#[test]
fn a_largest_length_that_counts_the_prompt_is_named() {
    let notes = |name: &str, generation: serde_json::Value| -> String {
        let folder = tempfile::tempdir().unwrap();
        let source = super::changed(&golden(), folder.path(), &|path| {
            fs::write(path.join("generation_config.json"), generation.to_string()).unwrap();
        });
        let mut notes = String::new();
        let run = taper_run::RunFolder::new(&folder.path().join(name));
        taper_run::folders::import(&source, &run, &mut |event: &taper_run::RunEvent<'_>| {
            if let taper_run::RunEvent::Notice(notice) = event {
                notes += &notice.to_string();
            }
            Ok(())
        })
        .unwrap();
        notes
    };
    let alone = notes("alone", serde_json::json!({ "max_length": 50 }));
    assert!(alone.contains("max_length is 50, which is not followed"), "{alone}");
    let both = notes("both", serde_json::json!({ "max_length": 50, "max_new_tokens": 6 }));
    assert!(!both.contains("max_length"), "{both}");
}

#[test]
fn a_shape_is_read_by_its_general_names() {
    let folder = tempfile::tempdir().unwrap();
    let source = super::changed(&golden(), folder.path(), &|path| {
        let mut text = fs::read_to_string(path.join(CONFIG)).unwrap();
        for (own, general) in [
            ("n_positions", "max_position_embeddings"),
            ("n_embd", "hidden_size"),
            ("n_layer", "num_hidden_layers"),
            ("n_head", "num_attention_heads"),
        ] {
            assert!(text.contains(own));
            text = text.replace(&format!("{own:?}"), &format!("{general:?}"));
        }
        fs::write(path.join(CONFIG), text).unwrap();
    });
    let run = imported(&source, &folder.path().join("run")).unwrap();
    let plain = imported(&golden(), &folder.path().join("plain")).unwrap();
    assert_eq!(run.config.model, plain.config.model);
}
