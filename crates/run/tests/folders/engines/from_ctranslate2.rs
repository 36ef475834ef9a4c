//! Import of CTranslate2 folders as runs. The folders were made by CTranslate2's own converter, or
//! are exports of runs. The golden files are made by
//! `scripts/golden/translation/ctranslate2_folders.py`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use taper_model::{LanguageModel, Pass, Sequences, TranslationModel};
use taper_run::engines::Engine;
use taper_run::engines::ctranslate2::{Ctranslate2, Quantization};
use taper_run::folders::{ImportSettings, import_with};
use taper_run::tasks::TaskModel;
use taper_run::translation::{LineTranslator, TranslationSettings};
use taper_run::{LoadSettings, LoadedRun, RunEvent, RunFolder};

use crate::{golden, imported, json_of};

/// Copies the golden CTranslate2 folder `name` to `folder`, together with the tokenizer in the
/// golden Transformers folder of the same name.
fn converted(name: &str, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for (from, is_copied) in [
        (golden("ctranslate2").join(name), &(|_: &str| true) as &dyn Fn(&str) -> bool),
        (golden(name), &|file| {
            file.ends_with(".spm") || file.ends_with(".model") || file.starts_with("tokenizer")
        }),
    ] {
        for file in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let name = file.file_name().into_string().unwrap();
            if is_copied(&name) {
                fs::copy(file.path(), folder.join(name)).unwrap();
            }
        }
    }
}

fn ids(row: &Value) -> Vec<u32> {
    row.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn rows(list: &Value) -> Vec<Vec<u32>> {
    list.as_array().unwrap().iter().map(ids).collect()
}

/// Logarithms of the probabilities of `answers`, one for each row of `logits`.
fn log_probabilities(logits: &candle_core::Tensor, answers: &[u32]) -> Vec<f64> {
    let rows: Vec<Vec<f32>> = logits.to_vec2().unwrap();
    let of = |(row, &answer): (&Vec<f32>, &u32)| {
        let sum: f64 = row.iter().map(|&logit| f64::from(logit).exp()).sum();
        f64::from(row[answer as usize]) - sum.ln()
    };
    assert_eq!(rows.len(), answers.len());
    rows.iter().zip(answers).map(of).collect()
}

fn require_close(name: &str, found: &[f64], expected: &Value) {
    let expected = expected.as_array().unwrap();
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found, expected) in found.iter().zip(expected) {
        let expected = expected.as_f64().unwrap();
        assert!((found - expected).abs() < 2e-5, "{name}: {found} {expected}");
    }
}

#[test]
fn encoder_decoders_of_the_converter_translate_as_in_the_engine() {
    for name in ["marian", "t5", "mt5"] {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        converted(name, &source);
        let run: LoadedRun<TranslationModel> =
            imported(&source, &folder.path().join("run")).unwrap();
        let expected = json_of(source.join("expected.json"));
        let sources = rows(&expected["sources"]);
        let goal = run.tokenizers.target();
        let scores = expected["log_probabilities"].as_array().unwrap();
        for (at, (answers, scores)) in rows(&expected["goals"]).iter().zip(scores).enumerate() {
            let words = answers[..answers.len() - 1].to_vec();
            assert_eq!(goal.answer_row(words.clone()), *answers);
            let pass = Pass::evaluate();
            let source = Sequences::pack(&sources[at..=at]);
            let encoded = run.model.encode(&source, &pass).unwrap();
            let target = Sequences::pack(&[goal.target_row(words)]);
            let hidden = run.model.decode(&target, &encoded, &pass).unwrap();
            let logits = run.model.logits(&hidden, &pass).unwrap();
            require_close(name, &log_probabilities(&logits, answers), scores);
        }
        // Only the Marian model is also searched here: folders of CTranslate2 do not have the task
        // prefix that T5 needs.
        if name != "marian" {
            continue;
        }
        let texts = json_of(golden(name).join("expected.json"));
        let lines: Vec<String> = texts["texts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|text| text.as_str().unwrap().to_owned())
            .collect();
        let mut settings = TranslationSettings::from_config(&run.config);
        assert_eq!((settings.decoding.beam_size, settings.decoding.max_length), (2, 256));
        (settings.decoding.max_length, settings.decoding.max_length_offset) = (20, 20);
        for beam_size in [1, 2] {
            settings.decoding.beam_size = beam_size;
            let translator = LineTranslator::new(&run, &settings).unwrap();
            let found = translator.translate(&lines, &[], 1, |_| {}).unwrap();
            let found: Vec<String> =
                found.map(|line| line.unwrap().translations[0].text.clone()).collect();
            let theirs: Vec<String> = rows(&expected[format!("beam_{beam_size}")])
                .iter()
                .map(|row| goal.decode(row).unwrap())
                .collect();
            assert_eq!(found, theirs, "{name}: beam {beam_size}");
        }
    }
}

#[test]
fn decoders_of_the_converter_give_its_log_probabilities() {
    for name in ["gpt2", "llama", "gptj"] {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        converted(name, &source);
        let run: LoadedRun<LanguageModel> = imported(&source, &folder.path().join("run")).unwrap();
        let expected = json_of(source.join("expected.json"));
        let scores = expected["log_probabilities"].as_array().unwrap();
        for (row, scores) in rows(&expected["rows"]).iter().zip(scores) {
            let pass = Pass::evaluate();
            let read = Sequences::pack(&[row[..row.len() - 1].to_vec()]);
            let hidden = run.model.hidden(&read, &pass).unwrap();
            let logits = run.model.logits(&hidden, &pass).unwrap();
            require_close(name, &log_probabilities(&logits, &row[1..]), scores);
        }
    }
}

/// Imports the golden folder `name`, exports the run, imports the export, and compares the
/// parameters. They must be equal up to `half_a_step` times the largest value of their row; 0 means
/// identical bits.
fn check_round_trip<M: TaskModel>(name: &str, quantization: Quantization, half_a_step: f32) {
    let folder = tempfile::tempdir().unwrap();
    let settings = |languages: [Option<&str>; 2]| {
        let [source, target] = languages.map(|name| name.map(str::to_owned));
        ImportSettings { source_language: source, target_language: target }
    };
    let languages = if name == "nllb" { [Some("eng_Latn"), Some("deu_Latn")] } else { [None; 2] };
    let read = |source: &Path, run: &str| -> LoadedRun<M> {
        let run = folder.path().join(run);
        let quiet = &mut |_: &RunEvent<'_>| Ok(());
        import_with(source, &RunFolder::new(&run), &settings(languages), quiet).unwrap();
        LoadedRun::open(&run, &LoadSettings::default()).unwrap()
    };
    let run = read(&golden(name), "run");
    let out = folder.path().join("out");
    Ctranslate2(quantization).export(&run, &out).unwrap();
    let back = read(&out, "back");
    let (mut compared, offset) = (0, run.config.model.position_offset);
    for parameter in back.model.parameters().parameters() {
        let name = parameter.name();
        let ours = run.model.parameters().get(name).unwrap_or_else(|| panic!("{name}"));
        let (mut expected, found) = (ours.values().unwrap(), parameter.values().unwrap());
        let columns = ours.shape().last().copied().unwrap();
        if name.ends_with("positions.weight") && back.config.model.position_offset == 0 {
            expected.drain(..offset * columns);
        }
        assert_eq!(found.len(), expected.len(), "{name}");
        let largest = |row: &[f32]| row.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        for (found, expected) in found.chunks(columns).zip(expected.chunks(columns)) {
            let close = largest(expected) * half_a_step;
            for (found, expected) in found.iter().zip(expected) {
                let is_forbidden = name == "output.bias" && *found == -1e4;
                assert!(
                    is_forbidden || (found - expected).abs() <= close,
                    "{name}: {found} {expected}"
                );
            }
        }
        compared += 1;
    }
    assert_eq!(compared, run.model.parameters().parameters().len(), "{name}");
    let texts = ["The seagulls sail on.", "ships"];
    for text in texts {
        let [ours, theirs] = [&run, &back].map(|run| {
            let tokenizers = &run.tokenizers;
            (tokenizers.source().encode(text).unwrap(), tokenizers.target().end())
        });
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn exports_are_read_back_to_the_bit() {
    for name in ["marian", "marian-two", "t5", "mt5", "umt5", "nllb", "bart"] {
        check_round_trip::<TranslationModel>(name, Quantization::Float32, 0.0);
    }
    for name in ["llama", "gpt2", "gpt-neox", "gptj", "phi"] {
        check_round_trip::<LanguageModel>(name, Quantization::Float32, 0.0);
    }
}

#[test]
fn exports_of_other_types_are_read_back_to_half_a_step() {
    check_round_trip::<TranslationModel>("marian", Quantization::Int8, 0.5001 / 127.0);
    check_round_trip::<TranslationModel>("t5", Quantization::Int8Float16, 0.5001 / 127.0);
    check_round_trip::<LanguageModel>("gpt2", Quantization::Float16, 1.0 / 2048.0);
    check_round_trip::<LanguageModel>("llama", Quantization::Bfloat16, 1.0 / 256.0);
}

/// Position of the name `name` in `bytes`, a `model.bin`.
fn place(bytes: &[u8], name: &str) -> usize {
    let name = format!("{name}\0");
    bytes.windows(name.len()).position(|part| part == name.as_bytes()).unwrap()
}

#[test]
fn folders_that_cannot_be_read_say_why() {
    type Change = fn(&Path);
    let cases: &[(&str, Change)] = &[
        ("a TransformerSpeX, which cannot be imported: only TransformerSpec and", |folder| {
            change(folder, |bytes| {
                let at = place(bytes, "TransformerSpec");
                bytes[at + 14] = b'X';
            });
        }),
        ("version 7", |folder| change(folder, |bytes| bytes[0] = 7)),
        ("cut short", |folder| change(folder, |bytes| bytes.truncate(bytes.len() / 2))),
        ("bytes follow its end", |folder| change(folder, |bytes| bytes.push(0))),
        ("activation is 6", |folder| {
            change(folder, |bytes| {
                for stack in ["encoder", "decoder"] {
                    let at = place(bytes, &format!("{stack}/activation"));
                    bytes[at + format!("{stack}/activation").len() + 7] = 6;
                }
            });
        }),
        ("in another layer", |folder| {
            change(folder, |bytes| {
                let at = place(bytes, "encoder/activation");
                bytes[at + "encoder/activation".len() + 7] = 0;
            });
        }),
        ("which the models here have no setting for", |folder| {
            change(folder, |bytes| {
                let at = place(bytes, "decoder/scale_alibi");
                bytes[at + "decoder/scale_alibi".len() + 7] = 1;
            });
        }),
        ("has no tokenizer, since CTranslate2 takes tokens and not text", |folder| {
            for file in ["source.spm", "target.spm"] {
                fs::remove_file(folder.join(file)).unwrap();
            }
        }),
        ("has no shared_vocabulary.json", |folder| {
            fs::remove_file(folder.join("shared_vocabulary.json")).unwrap();
        }),
        ("its vocabulary has 2 tokens", |folder| {
            fs::write(folder.join("shared_vocabulary.json"), r#"["</s>"]"#).unwrap();
        }),
        ("eos_token is \"<end>\"", |folder| {
            crate::set(folder.join("config.json"), "eos_token", &json!("<end>"));
        }),
    ];
    for (said, change) in cases {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        converted("marian", &source);
        change(&source);
        let run = folder.path().join("run");
        let quiet = &mut |_: &RunEvent<'_>| Ok(());
        let settings = ImportSettings::default();
        let error = import_with(&source, &RunFolder::new(&run), &settings, quiet).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(said) && !error.contains('\n'), "{said}: {error}");
        assert!(!run.exists(), "{said}");
    }
}

fn change(folder: &Path, change: impl Fn(&mut Vec<u8>)) {
    let path = folder.join("model.bin");
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}
