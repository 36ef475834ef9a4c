//! Models in folders of the library Transformers, imported and served. The expected texts were
//! written by the library's `generate`, and are in the golden files of `taper-run`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use taper_run::folders::import;
use taper_run::{RunEvent, RunFolder};

use crate::common::Running;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../run/tests/golden").join(name)
}

fn expected(name: &str) -> Value {
    let text = std::fs::read(golden(name).join("expected.json")).expect("a golden file");
    serde_json::from_slice(&text).expect("JSON")
}

/// Starts a server of runs that are imported from the golden folders `names`; also returns the
/// folder that contains the runs.
fn serving(names: &[&str]) -> (Running, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |name: &&str| {
        let run = folder.path().join(name);
        let quiet = &mut |_: &RunEvent<'_>| Ok(());
        import(&golden(name), &RunFolder::new(&run), quiet).expect("imported");
        run
    };
    (Running::start(names.iter().map(run).collect()), folder)
}

#[test]
fn served_translations_are_those_of_generate() {
    let names = ["marian", "marian-two", "nllb", "bart", "mbart", "t5", "mt5", "umt5"];
    let (server, _folder) = serving(&names);
    for name in names {
        let expected = expected(name);
        // A T5 model needs a prefix that names its task. The run `t5` adds the prefix by itself.
        let own = if name == "t5" { "" } else { expected["prefix"].as_str().unwrap_or("") };
        let texts: Vec<String> = serde_json::from_value(expected["texts"].clone()).expect("texts");
        let texts: Vec<String> = texts.iter().map(|text| format!("{own}{text}")).collect();
        for (search, beam) in [("greedy", 1), ("beam", 4)] {
            let asked = json!({ "run": name, "text": texts, "beam": beam });
            let found = server.post("/api/translate", &asked).expect(200);
            let found: Vec<&Value> = found["translations"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|line| &line["translations"][0]["text"])
                .collect();
            assert_eq!(json!(found), expected[search], "{name}: {search}");
        }
    }
}

#[test]
fn served_texts_go_on_like_those_of_generate() {
    let names = ["llama", "qwen2", "qwen3", "gpt-neox", "gptj", "phi"];
    let (server, _folder) = serving(&names);
    for name in names {
        for (prompt, text) in expected(name)["texts"].as_object().expect("texts") {
            let asked = json!({ "run": name, "prompt": prompt, "max_tokens": 8, "temperature": 0 });
            let found = server.post("/api/generate", &asked).expect(200);
            assert_eq!(found["texts"][0]["text"], *text, "{name}: {prompt}");
        }
    }
}
