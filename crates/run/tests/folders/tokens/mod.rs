//! Tokens of folders of the library Transformers: end tokens, beginning tokens, ids without a
//! token, vocabularies of slow tokenizers, and the files of exports. Exports are checked for
//! imported tokenizers and for a tokenizer that was trained by Taper.

mod exports;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use taper_data::{Documents, Task, Tokenizer, TokenizerPair, rows_of};
use taper_model::{LanguageModel, MaskedLanguageModel, Pass, Sequences, TextClassifier};
use taper_run::folders::export;
use taper_run::generation::{GeneratedText, GenerationSettings, Generator, TextScorer};
use taper_run::prediction::predict;
use taper_run::tasks::{TaskModel, build_model};
use taper_run::{LoadSettings, LoadedRun, RunConfig, RunEvent, RunFolder};
use taper_trainer::{Identity, State};

use super::{CONFIG, WEIGHTS, golden, imported, json_of, refusal, set, tensors};

const TOKENIZER: &str = "tokenizer.json";
const EMBEDDING: &str = "transformer.wte.weight";

/// Copies the golden folder `name` (a small model that Transformers has written) to `folder`, and
/// applies `change`.
fn changed(name: &str, folder: &Path, change: impl Fn(&Path)) -> PathBuf {
    let copy = folder.join(name);
    fs::create_dir_all(&copy).unwrap();
    for file in [CONFIG, WEIGHTS, TOKENIZER] {
        fs::copy(golden(name).join(file), copy.join(file)).unwrap();
    }
    change(&copy);
    copy
}

fn gpt2(change: impl Fn(&Path)) -> LoadedRun<LanguageModel> {
    let folder = tempfile::tempdir().unwrap();
    let source = changed("gpt2", folder.path(), change);
    imported(&source, &folder.path().join("run")).unwrap()
}

/// Continues a text by up to `tokens` tokens: the likeliest ones if `temperature` is 0, otherwise
/// sampled ones.
fn written(run: &LoadedRun<LanguageModel>, tokens: usize, temperature: f64) -> GeneratedText {
    let mut settings = GenerationSettings::from_config(&run.config);
    settings.max_tokens = tokens;
    settings.decoding.sampling.temperature = temperature;
    let prompt = ["The sea".to_owned()];
    let found = Generator::new(run, &settings).unwrap().generate(&prompt, |_| {}).unwrap();
    found[0][0].clone()
}

/// Natural logarithm of the probability that each token of the vocabulary has after `text`, by a
/// pass over the whole text.
fn after(run: &LoadedRun<LanguageModel>, text: &[u32]) -> Vec<f64> {
    let pass = Pass::evaluate();
    let hidden = run.model.hidden(&Sequences::pack(&[text]), &pass).unwrap();
    let logits: Vec<Vec<f32>> = run.model.logits(&hidden, &pass).unwrap().to_vec2().unwrap();
    let last = logits.last().unwrap();
    let sum: f64 = last.iter().map(|&x| f64::from(x).exp()).sum();
    last.iter().map(|&x| f64::from(x) - sum.ln()).collect()
}

/// Log-probability of each token of a text.
fn scored(run: &LoadedRun<LanguageModel>, text: &str) -> Vec<f64> {
    let found = TextScorer::new(run).unwrap().texts(&[text.to_owned()], |_| {}).unwrap();
    found[0].as_ref().unwrap().token_log_probabilities.clone()
}

fn likeliest(values: &[f64]) -> u32 {
    (0..values.len()).max_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap() as u32
}

/// The `count` likeliest tokens after "The sea", each by a pass over the whole text so far.
fn continuation(run: &LoadedRun<LanguageModel>, count: usize) -> Vec<u32> {
    let mut ids = run.tokenizers.target().encode("The sea").unwrap();
    let prompt = ids.len();
    while ids.len() < prompt + count {
        ids.push(likeliest(&after(run, &ids)));
    }
    ids.split_off(prompt)
}

#[test]
fn any_end_of_the_folder_ends_a_text() {
    let plain = gpt2(|_| {});
    let tokens = continuation(&plain, 12);
    let at = (1..12).find(|&at| !tokens[..at].contains(&tokens[at])).expect("two tokens");
    let tokenizer = plain.tokenizers.target();
    // As in Transformers, an end token that is not a special token is part of the text that it
    // ends.
    let expected = tokenizer.decode(&tokens[..=at]).unwrap();
    let ends = json!([270, tokens[at]]);
    let other = json!(tokens[0]);
    let generation =
        |path: &Path, ends: &Value| fs::write(path, json!({ "eos_token_id": ends }).to_string());
    let file = "generation_config.json";
    for (named, run) in [
        ("config.json", gpt2(|path| set(path.join(CONFIG), "eos_token_id", &ends))),
        ("one", gpt2(|path| set(path.join(CONFIG), "eos_token_id", &json!(tokens[at])))),
        ("generation_config.json", gpt2(|path| generation(&path.join(file), &ends).unwrap())),
        (
            "generation_config.json first",
            gpt2(|path| {
                set(path.join(CONFIG), "eos_token_id", &other);
                generation(&path.join(file), &ends).unwrap();
            }),
        ),
    ] {
        let text = written(&run, 12, 0.0);
        assert_eq!((text.text.as_str(), text.tokens), (expected.as_str(), at + 1), "{named}");
        assert!(!text.truncated, "{named}");
        // The probability of the end token that was written counts.
        let mut ids = tokenizer.encode("The sea").unwrap();
        let mut total = 0.0;
        for &token in &tokens[..=at] {
            total += after(&run, &ids)[token as usize];
            ids.push(token);
        }
        assert!((text.log_probability - total).abs() < 1e-4, "{named}");
        // A text that contains the spelling of this end token is still encoded and decoded as text.
        let again = run.tokenizers.target().encode(&expected).unwrap();
        assert_eq!(run.tokenizers.target().decode(&again).unwrap(), expected, "{named}");
    }
    // An id outside the vocabulary, such as a default of Transformers, is ignored, and the end
    // token is found by its spelling.
    let run = gpt2(|path| set(path.join(CONFIG), "eos_token_id", &json!(50256)));
    assert_eq!(run.tokenizers.target().end(), 271);
    let says = |change: &dyn Fn(&Path)| refusal::<LanguageModel>(&golden("gpt2"), change);
    let error = says(&|path| set(path.join(CONFIG), "eos_token_id", &json!("</s>")));
    assert!(error.contains("eos_token_id is \"</s>\", where the id of a token"), "{error}");
    let error = says(&|path| {
        set(path.join(CONFIG), "eos_token_id", &Value::Null);
        set(path.join(CONFIG), "bos_token_id", &Value::Null);
        respell(path, "<|endoftext|>", "<stop>");
    });
    assert!(error.contains("no token ends a text"), "{error}");
    let error = says(&|path| fs::write(path.join(file), "[]").unwrap());
    assert!(error.contains("generation_config.json: not an object"), "{error}");
}

/// Replaces `token` by `other` in the `tokenizer.json` of `folder`.
fn respell(folder: &Path, token: &str, other: &str) {
    let path = folder.join(TOKENIZER);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(token));
    fs::write(path, text.replace(token, other)).unwrap();
}

#[test]
fn ends_and_beginnings_may_be_spelled_in_any_way() {
    let plain = gpt2(|_| {});
    let texts = ["The sea, the sea!".to_owned()];
    let score = |run: &LoadedRun<LanguageModel>| scored(run, &texts[0]);
    for spelling in ["</s>", "<stop>", "[SEP]"] {
        let run = gpt2(|path| respell(path, "<|endoftext|>", spelling));
        assert_eq!(run.tokenizers.target().end(), 271);
        assert_eq!(score(&run), score(&plain), "{spelling}");
        assert_eq!(written(&run, 9, 0.0).text, written(&plain, 9, 0.0).text, "{spelling}");
        // Text with the spelling of the end token is read as text.
        let ids = run.tokenizers.target().encode(spelling).unwrap();
        assert!(!ids.contains(&271), "{spelling}");
        assert_eq!(run.tokenizers.target().decode(&ids).unwrap(), spelling);
    }
    // A text is scored after the token that marks the beginning of texts.
    let begun = gpt2(|path| set(path.join(CONFIG), "bos_token_id", &json!(40)));
    let tokenizer = begun.tokenizers.target();
    assert_eq!((tokenizer.end(), tokenizer.special_tokens().start), (271, Some(40)));
    let first = tokenizer.encode(&texts[0]).unwrap()[0];
    assert!((score(&begun)[0] - after(&begun, &[40])[first as usize]).abs() < 1e-4);
    assert!((score(&begun)[0] - score(&plain)[0]).abs() > 1e-6);
    // The end token is named in another file than config.json.
    let named = gpt2(|path| {
        respell(path, "<|endoftext|>", "<stop>");
        set(path.join(CONFIG), "eos_token_id", &Value::Null);
        set(path.join(CONFIG), "bos_token_id", &Value::Null);
        let map = json!({ "eos_token": { "content": "<stop>", "lstrip": false } });
        fs::write(path.join("special_tokens_map.json"), map.to_string()).unwrap();
    });
    assert_eq!(named.tokenizers.target().end(), 271);
}

/// Adds `rows` rows without a token to the embedding in `folder`. The model gives them more
/// probability than any token.
fn padded(folder: &Path, rows: usize) {
    let path = folder.join(WEIGHTS);
    let mut weights = tensors(path.clone());
    let embedding = weights[EMBEDDING].clone();
    let (vocabulary, width) = embedding.dims2().unwrap();
    let likely = embedding.narrow(0, 0, rows).unwrap().affine(9.0, 0.0).unwrap();
    weights.insert(EMBEDDING.to_owned(), Tensor::cat(&[&embedding, &likely], 0).unwrap());
    candle_core::safetensors::save(&weights, &path).unwrap();
    set(folder.join(CONFIG), "vocab_size", &json!(vocabulary + rows));
    assert_eq!(width, 16);
}

#[test]
fn rows_that_no_token_has_are_kept_and_never_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let source = changed("gpt2", folder.path(), |path| padded(path, 48));
    let run: LoadedRun<LanguageModel> = imported(&source, &folder.path().join("run")).unwrap();
    let tokenizer = run.tokenizers.target();
    assert_eq!((tokenizer.vocabulary_size(), run.model.vocabulary()), (320, 320));
    assert_eq!(tokenizer.ids_without_token(), (272..320).collect::<Vec<u32>>());
    // Rows without a token have most of the probability, and probabilities of tokens are computed
    // over all rows.
    let prompt = tokenizer.encode("The sea").unwrap();
    let all = after(&run, &prompt);
    assert!(likeliest(&all) >= 272);
    let (greedy, drawn) = (written(&run, 1, 0.0), written(&run, 30, 1.5));
    let token = likeliest(&all[..272]);
    assert_eq!(greedy.text, tokenizer.decode(&[token]).unwrap());
    assert!(greedy.log_probability < all[token as usize] + 1e-4, "{greedy:?}");
    assert!(drawn.tokens == 30 || !drawn.truncated, "{drawn:?}");
    let ids = tokenizer.encode(&format!("The sea{}", drawn.text)).unwrap();
    assert!(ids.iter().all(|&id| id < 272));
    assert!((scored(&run, "The sea")[0] - after(&run, &[271])[prompt[0] as usize]).abs() < 1e-4);

    let out = folder.path().join("out");
    export(&run, &out).unwrap();
    assert_eq!(json_of(out.join(CONFIG))["vocab_size"], 320);
    assert!(fs::read(out.join(TOKENIZER)).unwrap() == fs::read(source.join(TOKENIZER)).unwrap());
    let embedding = |folder: &Path| -> Vec<Vec<f32>> {
        tensors(folder.join(WEIGHTS))[EMBEDDING].to_vec2().unwrap()
    };
    assert!(embedding(&out) == embedding(&source));

    // In a BERT, rows without a token are never predicted, and an export has all of them again.
    let source = changed("bert", folder.path(), |path| {
        let mut weights = tensors(path.join(WEIGHTS));
        for (name, shape) in [
            ("bert.embeddings.word_embeddings.weight", vec![4, 16]),
            ("cls.predictions.bias", vec![4]),
        ] {
            let more = Tensor::ones(shape, candle_core::DType::F32, &Device::Cpu).unwrap();
            let whole = Tensor::cat(&[&weights[name], &more], 0).unwrap();
            weights.insert(name.to_owned(), whole);
        }
        candle_core::safetensors::save(&weights, path.join(WEIGHTS)).unwrap();
        set(path.join(CONFIG), "vocab_size", &json!(40));
    });
    let run: LoadedRun<MaskedLanguageModel> =
        imported(&source, &folder.path().join("bert-run")).unwrap();
    assert_eq!(run.model.vocabulary(), 40);
    let out = folder.path().join("bert-out");
    export(&run, &out).unwrap();
    assert_eq!(tensors(out.join(WEIGHTS))["cls.predictions.bias"].dims(), [40]);
}

#[test]
fn a_run_keeps_what_its_folder_said_and_is_told_from_others_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let source = changed("gpt2", folder.path(), |path| {
        set(path.join(CONFIG), "eos_token_id", &json!([5, 271]));
    });
    let run = folder.path().join("run");
    let loaded: LoadedRun<LanguageModel> = imported(&source, &run).unwrap();
    let kept = run.join("tokenizer.special.json");
    let again = TokenizerPair::load(&run).unwrap();
    assert_eq!(again.target().special_tokens().ends, [5, 271]);
    assert_eq!(again.hash(), loaded.tokenizers.hash());
    let text = fs::read_to_string(&kept).unwrap();
    for (other, said) in [
        (text.replace("271", "272"), "names the token 272, but the vocabulary has 272"),
        (text.replace("\"ends\"", "\"end\""), "unknown field `end`"),
        ("{".to_owned(), "not the special tokens of a run"),
    ] {
        fs::write(&kept, other).unwrap();
        let error = TokenizerPair::load(&run).unwrap_err().to_string();
        assert!(error.contains("tokenizer.special.json") && error.contains(said), "{error}");
    }
    fs::remove_file(&kept).unwrap();
    assert_ne!(TokenizerPair::load(&run).unwrap().hash(), loaded.tokenizers.hash());
}

/// Ids and tokens in the `tokenizer.json` of `folder`, in the order of the ids.
fn vocabulary(folder: &Path) -> Vec<(u64, String)> {
    let file = json_of(folder.join(TOKENIZER));
    let mut all: Vec<(u64, String)> = file["model"]["vocab"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(token, id)| (id.as_u64().unwrap(), token.clone()))
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn vocabularies_of_slow_tokenizers_are_read() {
    let texts = [
        "The seagulls sail on!",
        "  Nothing's LOST, caf\u{e9} 7 [MASK]",
        "the\tsea\u{3000}\u{65e5}\u{672c}",
    ];
    let ids = |tokenizer: &Tokenizer| texts.map(|text| tokenizer.encode(text).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = |name: &str, run: &str, change: &dyn Fn(&Path)| {
        let source = changed(name, &folder.path().join(run), change);
        let run = folder.path().join(run).join(format!("run-of-{name}"));
        super::import(&source, &taper_run::RunFolder::new(&run), &mut |_: &taper_run::RunEvent<
            '_,
        >| Ok(()))
        .unwrap();
        TokenizerPair::load(&run).unwrap().target().clone()
    };
    let pieces = |path: &Path| {
        let lines: Vec<String> = vocabulary(path).into_iter().map(|(_, token)| token).collect();
        fs::write(path.join("vocab.txt"), lines.join("\n") + "\n").unwrap();
        fs::remove_file(path.join(TOKENIZER)).unwrap();
    };
    let fast = tokenizer("bert", "fast", &|_| {});
    let slow = tokenizer("bert", "slow", &pieces);
    assert_eq!(ids(&slow), ids(&fast));
    assert_eq!(slow.mark_ids(), fast.mark_ids());
    let cased = tokenizer("bert", "cased", &|path| {
        pieces(path);
        fs::write(path.join("tokenizer_config.json"), r#"{"do_lower_case": false}"#).unwrap();
    });
    assert!(ids(&cased)[0].contains(&1) && !ids(&slow)[0].contains(&1), "T is no token");
    // Tokenizer classes derived from BERT's have its arguments, which take precedence over
    // tokenizer.json.
    let distilled = tokenizer("bert", "distilled", &|path| {
        let config = r#"{"tokenizer_class": "DistilBertTokenizer", "do_lower_case": false}"#;
        fs::write(path.join("tokenizer_config.json"), config).unwrap();
    });
    assert_eq!(ids(&distilled), ids(&cased));
    let added = tokenizer("bert", "added", &|path| {
        pieces(path);
        set(path.join(CONFIG), "vocab_size", &json!(36));
        fs::write(path.join("added_tokens.json"), r#"{"[MASK]": 4}"#).unwrap();
    });
    assert_eq!(ids(&added)[0], ids(&fast)[0]);

    let pairs = |path: &Path| {
        let file = json_of(path.join(TOKENIZER));
        let mut all = file["model"]["vocab"].clone();
        all["<|endoftext|>"] = json!(271);
        fs::write(path.join("vocab.json"), all.to_string()).unwrap();
        let pair =
            |pair: &Value| format!("{} {}\n", pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
        let merges: String = file["model"]["merges"].as_array().unwrap().iter().map(pair).collect();
        fs::write(path.join("merges.txt"), format!("#version: 0.2\n{merges}")).unwrap();
        fs::remove_file(path.join(TOKENIZER)).unwrap();
    };
    let fast = tokenizer("gpt2", "fast", &|_| {});
    let slow = tokenizer("gpt2", "slow", &pairs);
    assert_eq!(ids(&slow), ids(&fast));
    assert_eq!((slow.end(), slow.is_special(271)), (271, true));
    let unspaced = tokenizer("gpt2", "unspaced", &|path| {
        let mut file = json_of(path.join(TOKENIZER));
        let prepended = json!({ "type": "Prepend", "prepend": " " });
        file["normalizer"] = json!({ "type": "Sequence", "normalizers": [prepended] });
        fs::write(path.join(TOKENIZER), file.to_string()).unwrap();
        let config = r#"{"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false}"#;
        fs::write(path.join("tokenizer_config.json"), config).unwrap();
    });
    assert_eq!(ids(&unspaced), ids(&fast));
    for class in ["GPTNeoXTokenizerFast", "CodeGenTokenizer"] {
        let spaced = tokenizer("gpt2", class, &|path| {
            let config = json!({ "tokenizer_class": class, "add_prefix_space": true });
            fs::write(path.join("tokenizer_config.json"), config.to_string()).unwrap();
        });
        assert_eq!(spaced.encode("The sea").unwrap(), fast.encode(" The sea").unwrap(), "{class}");
    }
    let says = |change: &dyn Fn(&Path)| refusal::<LanguageModel>(&golden("gpt2"), change);
    let error = says(&|path| {
        pairs(path);
        fs::write(path.join("merges.txt"), "#version: 0.2\nh e\nhe\n").unwrap();
    });
    assert!(error.contains("merges.txt, line 3: not two tokens"), "{error}");
    let error = says(&|path| {
        pairs(path);
        fs::remove_file(path.join("merges.txt")).unwrap();
    });
    assert!(
        error.contains("tokenizer.json: no such file, nor spiece.model, sentencepiece"),
        "{error}"
    );
}

#[test]
fn bytes_that_are_marked_as_special_are_text() {
    let bytes: Vec<String> = (0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>")).collect();
    let tokens = ["<unk>", "</s>", "a"].into_iter().chain(bytes.iter().map(String::as_str));
    let ids: Vec<(usize, &str)> = tokens.enumerate().collect();
    let added = ids.iter().filter(|(_, token)| *token != "a").map(|(id, token)| {
        json!({
            "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })
    });
    let vocabulary: serde_json::Map<String, Value> =
        ids.iter().map(|(id, token)| ((*token).to_owned(), json!(id))).collect();
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": false,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "byte_fallback": true,
            "ignore_merges": false, "vocab": vocabulary, "merges": [],
        },
    });
    let run = gpt2(|path| {
        fs::write(path.join(TOKENIZER), file.to_string()).unwrap();
        set(path.join(CONFIG), "eos_token_id", &json!(1));
        set(path.join(CONFIG), "bos_token_id", &json!(1));
    });
    let ids = run.tokenizers.target().encode("a\u{e9}").unwrap();
    assert_eq!(ids, [2, 3 + 0xC3, 3 + 0xA9]);
}

#[test]
fn pairs_have_the_segments_that_transformers_gives_them_and_other_rows_are_told() {
    let folder = tempfile::tempdir().unwrap();
    // Returns the messages of an import, and the segments of a pair of texts.
    let read = |number: usize, change: &dyn Fn(&mut Value)| {
        let source = changed("bert-classifier", &folder.path().join(number.to_string()), |path| {
            let mut file = json_of(path.join(TOKENIZER));
            change(&mut file["post_processor"]);
            fs::write(path.join(TOKENIZER), file.to_string()).unwrap();
            if (3..6).contains(&number) {
                let mut keys = json!({ "cls_token": "[CLS]", "sep_token": "[SEP]" });
                if number == 5 {
                    keys["tokenizer_class"] = json!("TokenizersBackend");
                } else {
                    keys["tokenizer_class"] = json!("PreTrainedTokenizerFast");
                    keys["model_input_names"] = json!(["input_ids", "attention_mask"]);
                }
                fs::write(path.join("tokenizer_config.json"), keys.to_string()).unwrap();
            }
        });
        let (run, mut said) = (source.with_extension("run"), String::new());
        super::import(&source, &RunFolder::new(&run), &mut |event: &RunEvent<'_>| {
            if let RunEvent::Notice(notice) = event {
                said += &notice.to_string();
            }
            Ok(())
        })
        .unwrap();
        let run: LoadedRun<TextClassifier> =
            LoadedRun::open(&run, &LoadSettings::default()).unwrap();
        let config = &run.config.data.labelled;
        let rows = rows_of(run.tokenizers.target(), &["The sail\tNothing".to_owned()], config);
        let segments: BTreeSet<u32> = rows.unwrap()[0].segments().collect();
        (said, segments.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(read(0, &|_| {}), (String::new(), vec![0, 1]));
    let roberta = |processor: &mut Value| {
        *processor = json!({
            "type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2],
            "trim_offsets": true, "add_prefix_space": false,
        });
    };
    let without = |processor: &mut Value| {
        processor["single"].as_array_mut().unwrap().pop();
    };
    let untouched: &dyn Fn(&mut Value) = &|_| {};
    for (number, change) in [(1, &roberta as &dyn Fn(&mut Value)), (3, untouched), (5, untouched)] {
        assert_eq!(read(number, change), (String::new(), vec![0]), "{number}");
    }
    let third = |processor: &mut Value| {
        processor["pair"][3]["Sequence"]["type_id"] = json!(0);
    };
    for (number, change, which) in [
        (2, &without as &dyn Fn(&mut Value), "another row of a text"),
        (4, &|processor| *processor = Value::Null, "another row of a text"),
        (6, &third, "another row of a pair of texts"),
    ] {
        let (said, _) = read(number, change);
        assert!(said.contains(TOKENIZER) && said.contains(which), "{number}: {said}");
    }
}
