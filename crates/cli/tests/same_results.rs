//! Tests that results do not depend on the number of threads, on which sentences are decoded
//! together, or on the form of reports.

mod common;

use std::fs;
use std::path::Path;

use common::{Workspace, metrics, stdout};
use serde_json::Value;

const SETTINGS: &str = "--set training.max_updates=40 --set training.validate_every=20 \
     --set model.embedding_dropout=0.1";

/// Checks that two runs have the same metrics, without times, and the same files.
fn assert_same(left: &Path, right: &Path) {
    assert_eq!(metrics(left), metrics(right));
    for file in [
        "checkpoints/step-00000040/model.safetensors",
        "checkpoints/step-00000040/optimizer.safetensors",
        "checkpoints/averaged/model.safetensors",
        "tokenizer.json",
        "cache/train.bin",
        "data.json",
        "translations/test.txt",
        "scores.json",
    ] {
        assert!(
            fs::read(left.join(file)).expect(file) == fs::read(right.join(file)).expect(file),
            "{file} differs"
        );
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let workspace = Workspace::new();
    let train = |run: &str, threads: &str| {
        let threads = format!("threads={threads}");
        workspace.succeed(format!("train tiny.toml --run {run} --set {threads} {SETTINGS}"));
    };
    train("one", "1");
    for threads in ["2", "7", "16"] {
        train(threads, threads);
        assert_same(&workspace.path("one"), &workspace.path(threads));
    }
}

/// With enough lines, threads translate separate batches if the rows of the matrix kernel are
/// independent. The result must be the same with such a kernel, and with `gemm`, whose rows may
/// depend on each other.
#[test]
fn threads_that_share_lines_translate_as_one() {
    let workspace = Workspace::new();
    workspace.succeed(format!("train tiny.toml --run run {SETTINGS}"));
    let text = workspace.read("data/train.aa");
    let lines: String = text.lines().cycle().take(300).flat_map(|line| [line, "\n"]).collect();
    workspace.write("lines.aa", &lines);
    for kernel in ["", "gemm"] {
        for beam in ["1", "3"] {
            let translated = |threads: &str| {
                let mut command = workspace.command("translate run --input lines.aa");
                command.args(["--json", "--beam", beam, "--threads", threads]);
                if !kernel.is_empty() {
                    command.env("TAPER_KERNEL", kernel);
                }
                let output = command.output().expect("the binary runs");
                assert!(output.status.success(), "{}", common::stderr(&output));
                stdout(&output)
            };
            let one = translated("1");
            for threads in ["2", "5", "16"] {
                assert!(translated(threads) == one, "{kernel} {beam} {threads}");
            }
        }
    }
}

#[test]
fn reporting_as_json_changes_nothing() {
    let workspace = Workspace::new();
    workspace.succeed(format!("train tiny.toml --run plain {SETTINGS}"));
    let reported = workspace.succeed(format!("train tiny.toml --run json --json {SETTINGS}"));
    assert_same(&workspace.path("plain"), &workspace.path("json"));
    let events: Vec<Value> = reported
        .lines()
        .map(|line| serde_json::from_str(line).expect("every line is JSON"))
        .collect();
    let recorded = |event: &&Value| matches!(event["event"].as_str(), Some("log" | "validation"));
    assert_eq!(events.iter().filter(recorded).count(), metrics(&workspace.path("json")).len());
    let report: Value =
        serde_json::from_slice(&fs::read(workspace.path("json/data.json")).expect("data.json"))
            .expect("JSON");
    assert_eq!((&events[0]["event"], &events[0]["train"]), (&"data".into(), &report["train"]));
}

/// Returns the translations of `lines` with their scores, from the output of `--json`.
fn translations(workspace: &Workspace, lines: &[&str]) -> Vec<Value> {
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let output = workspace.run_with_input("translate run --json", input.as_bytes());
    stdout(&output)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["translations"].clone())
        .collect()
}

#[test]
fn sentences_decoded_together_do_not_change_each_other() {
    let workspace = Workspace::new();
    workspace.succeed(format!("train tiny.toml --run run {SETTINGS}"));
    let text = workspace.read("data/train.aa");
    let mut lines: Vec<&str> = text.lines().take(40).collect();
    lines.push("");
    let all = translations(&workspace, &lines);
    assert_eq!(all.len(), lines.len());
    // The lines are translated in reverse order, together with other lines, and one by one.
    let backwards: Vec<&str> = lines.iter().rev().copied().collect();
    let mut reversed = translations(&workspace, &backwards);
    reversed.reverse();
    assert_equal(&reversed, &all);
    assert_equal(&translations(&workspace, &lines[7..12]), &all[7..12]);
    for index in [0, 20, 40] {
        assert_equal(&translations(&workspace, &lines[index..=index]), &all[index..=index]);
    }
    // The texts are the same without `--json`.
    let plain = workspace.run_with_input("translate run", (lines.join("\n") + "\n").as_bytes());
    let texts: Vec<&str> =
        all.iter().map(|found| found[0]["text"].as_str().expect("text")).collect();
    assert_eq!(stdout(&plain).lines().collect::<Vec<_>>(), texts);
    // The test set is translated in batches of one sentence, and in one batch of all sentences.
    let evaluate = |tokens: &str, rows: &str| {
        let (tokens, rows) =
            (format!("decoding.batch_tokens={tokens}"), format!("decoding.batch_rows={rows}"));
        let shown = workspace
            .succeed(format!("evaluate run --split train --json --set {tokens} --set {rows}"));
        serde_json::from_str::<Value>(&shown).expect("JSON")["results"].clone()
    };
    assert_eq!(evaluate("1", "1"), evaluate("100000", "100000"));
}

/// Checks that texts are the same, in the same order, and that scores differ at most in the last
/// bits of f32. They may differ because a matrix product adds in an order that depends on the
/// number of rows.
fn assert_equal(left: &[Value], right: &[Value]) {
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(right) {
        assert_eq!(left[0]["text"], right[0]["text"]);
        let score = |found: &Value| found[0]["log_probability"].as_f64().expect("a number");
        assert!((score(left) - score(right)).abs() <= 1e-6 * score(left).abs(), "{left} {right}");
    }
}
