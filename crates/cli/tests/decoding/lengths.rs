//! Expected lengths of translations: they are measured when a run begins, used by every search, and
//! measured by `tune` for a run without them.

use std::fs;

use serde_json::Value;

use crate::common::Workspace;

const PENALTY: &str = "--set decoding.shortfall_penalty=4";

/// Returns the value of a key in a run's `config.toml`; `None` if it is not there.
fn key(workspace: &Workspace, run: &str, section: &str, key: &str) -> Option<f64> {
    let text = fs::read_to_string(workspace.path(run).join("config.toml")).expect("config.toml");
    let header = format!("[{section}]");
    let of_section = text.lines().skip_while(|line| *line != header).skip(1);
    let mut keys = of_section.take_while(|line| !line.starts_with('['));
    let named = keys.find_map(|line| line.strip_prefix(&format!("{key} = ")))?;
    Some(named.parse().expect("a number"))
}

#[test]
fn a_run_measures_how_long_translations_are_and_keeps_it() {
    let workspace = Workspace::new();
    workspace.train("without");
    workspace.succeed(format!("train tiny.toml --run with {PENALTY}"));
    let expected = |run: &str, name: &str| key(&workspace, run, "decoding.expected_length", name);
    // Translations in the corpus have as many words as the sources.
    let ratio = expected("with", "ratio").expect("measured");
    assert!((ratio - 1.0).abs() < 0.1, "{ratio}");
    assert_eq!(expected("without", "ratio"), None);
    let weights = "checkpoints/step-00000012/model.safetensors";
    let read = |run: &str| fs::read(workspace.path(run).join(weights)).expect("weights");
    assert!(read("with") == read("without"), "training is the same");

    let translate = |run: &str, more: &str| {
        workspace.succeed(format!("translate {run} --input data/test.aa {more}"))
    };
    let none = "--set decoding.shortfall_penalty=0";
    assert_eq!(translate("with", none), translate("without", ""));
    let found = translate("with", "");
    assert_eq!(translate("with", "--ensemble with"), found);
    assert_eq!(translate("with", "--threads 3"), found);
    let best = translate("with", "--n-best 2");
    let best: Vec<&str> =
        best.lines().step_by(2).filter_map(|line| line.split('\t').nth(2)).collect();
    assert_eq!(best.join("\n") + "\n", found);
    let int8 = translate("with", "--weights int8");
    workspace.succeed("quantize with");
    assert_eq!(translate("with-int8", ""), int8);

    // A resumed run keeps the expected length.
    workspace.succeed("resume with --set training.max_updates=14");
    assert_eq!(expected("with", "ratio"), Some(ratio));
    assert_eq!(key(&workspace, "with", "decoding", "shortfall_penalty"), Some(4.0));
}

#[test]
fn an_earlier_run_is_told_how_to_measure_and_is_tuned() {
    let workspace = Workspace::of_frozen_run();
    workspace.write("mono.aa", "red cat sees two dogs\n");
    let with = format!("translate run --input mono.aa {PENALTY}");
    workspace.fail(&with, &["decoding.expected_length.ratio", "taper tune"]);
    workspace.succeed(format!("{with} --set decoding.expected_length.ratio=1.1"));
    let tune = "tune run --shortfall-penalties 0,4 --length-penalties 1";
    let tuning = workspace.json(format!("{tune} --beams 3 --split val --dry-run --json"));
    let ratio = tuning["expected_length"]["ratio"].as_f64().expect("a number");
    assert!((ratio - 1.0).abs() < 0.1, "{ratio}");
    let trials = tuning["trials"].as_array().expect("trials");
    let length = |penalty: f64| {
        let of = |trial: &&Value| {
            trial["shortfall_penalty"] == penalty
                && trial["length_penalty"] == 1.0
                && trial["length_reward"] == 0.0
        };
        trials.iter().find(of).expect("a trial")["length_ratio"].as_f64().expect("a number")
    };
    assert!(length(4.0) >= length(0.0), "{trials:?}");
}
