//! Tests of a [`Session`], which answers the calls of a browser, without a browser.

use std::path::{Path, PathBuf};

use taper_run::{LineTranslator, LoadSettings, LoadedRun, TranslationSettings};
use taper_web::{Line, Request, Session};

fn frozen() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/frozen/format-1")
}

fn request(lines: &[&str], beam_size: Option<usize>) -> Request {
    Request { lines: lines.iter().map(|&line| line.to_owned()).collect(), beam_size }
}

/// Returns the text of the best translation of each line, made by the library `taper_run` itself.
fn expected(lines: &[&str], beam_size: Option<usize>) -> Vec<String> {
    let run: LoadedRun = LoadedRun::open(&frozen(), &LoadSettings::default()).expect("loaded");
    let mut settings = TranslationSettings::from_config(&run.config);
    settings.decoding.beam_size = beam_size.unwrap_or(settings.decoding.beam_size);
    let translator = LineTranslator::new(&run, &settings).expect("a translator");
    let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
    let translated = translator.translate(&lines, &[], 1, |_| {}).expect("searched");
    translated.map(|line| line.expect("translated").translations[0].text.clone()).collect()
}

#[test]
fn answers_are_those_of_the_library() {
    let long = "run cat big dogs see two ".repeat(40);
    let lines = ["run cat", "", "big sees red red", long.trim(), "two"];
    let session = Session::open(&frozen()).expect("opened");
    for beam_size in [None, Some(1), Some(7)] {
        let answers = session.translate(&request(&lines, beam_size)).expect("translated");
        let texts: Vec<String> = answers
            .into_iter()
            .map(|line| match line {
                Line::Translated(line) => line.translations[0].text.clone(),
                Line::Refused { error } => panic!("{error}"),
            })
            .collect();
        assert_eq!(texts, expected(&lines, beam_size), "{beam_size:?}");
    }
}

/// Copies the frozen run into `folder`.
fn copied(folder: &Path) -> PathBuf {
    let run = folder.join("run");
    let checkpoint = "checkpoints/step-00001000";
    std::fs::create_dir_all(run.join(checkpoint)).expect("folders");
    let from = frozen();
    for file in ["config.toml", "tokenizer.json", "checkpoints/last"] {
        std::fs::copy(from.join(file), run.join(file)).expect("copied");
    }
    for entry in std::fs::read_dir(from.join(checkpoint)).expect("a checkpoint") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        std::fs::copy(&path, run.join(checkpoint).join(name)).expect("copied");
    }
    run
}

#[test]
fn a_narrow_beam_finds_fewer_translations() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let run = copied(folder.path());
    let config = std::fs::read_to_string(run.join("config.toml")).expect("a recipe");
    let several = config.replace("n_best = 1", "n_best = 3");
    assert_ne!(config, several);
    std::fs::write(run.join("config.toml"), several).expect("written");
    let session = Session::open(&run).expect("opened");
    let answers = session.translate(&request(&["run cat"], Some(2))).expect("translated");
    assert!(matches!(answers[..], [Line::Translated(_)]));
}

#[test]
fn what_is_wrong_is_an_error() {
    let session = Session::open(&frozen()).expect("opened");
    let error = session.translate(&request(&["two"], Some(0))).expect_err("no hypotheses");
    assert!(format!("{error:#}").contains("beam_size"), "{error:#}");
    let folder = tempfile::tempdir().expect("temporary folder");
    assert!(Session::open(folder.path()).is_err());
    // A damaged file is noticed by its checksum.
    let run = copied(folder.path());
    Session::open(&run).expect("a whole copy");
    let weights = run.join("checkpoints/step-00001000/model.safetensors");
    let mut bytes = std::fs::read(&weights).expect("weights");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&weights, bytes).expect("written");
    let error = format!("{:#}", Session::open(&run).expect_err("damaged"));
    assert!(error.contains("model.safetensors"), "{error}");
}
