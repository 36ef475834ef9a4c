//! Texts that are missing, of different lengths, empty or damaged, and settings that do not suit
//! them. All are refused before training.

use std::fs;

use super::TRAIN;
use super::common::Workspace;

/// Checks that training is refused and leaves no run folder behind.
fn train_fails(workspace: &Workspace, fragments: &[&str]) {
    workspace.fail(TRAIN, fragments);
    assert!(!workspace.path("run").exists(), "a run folder was left behind");
}

#[test]
fn a_missing_corpus() {
    let workspace = Workspace::new();
    fs::remove_file(workspace.path("data/val.bb")).expect("remove");
    train_fails(&workspace, &["val.bb"]);
}

#[test]
fn unequal_line_counts() {
    let workspace = Workspace::new();
    workspace.write("data/train.bb", "one\n");
    train_fails(&workspace, &["train.aa has 200 lines", "train.bb has 1;"]);
}

#[test]
fn an_empty_corpus() {
    let workspace = Workspace::new();
    workspace.write("data/train.aa", "");
    workspace.write("data/train.bb", "");
    train_fails(&workspace, &["train", "empty"]);
}

#[test]
fn all_pairs_dropped() {
    let workspace = Workspace::new();
    workspace.write("data/train.aa", "x\n\n");
    workspace.write("data/train.bb", "\ny\n");
    train_fails(&workspace, &["train", "all 2 pairs were dropped"]);
}

#[test]
fn invalid_utf8_names_the_line() {
    let workspace = Workspace::new();
    workspace.write("data/train.aa", b"good\n\xff\xfe\n");
    workspace.write("data/train.bb", "gut\nschlecht\n");
    train_fails(&workspace, &["train.aa", "2", "UTF-8"]);
}

#[test]
fn unequal_files_for_bleu() {
    let workspace = Workspace::new();
    workspace.write("hypothesis", "a\nb\n");
    workspace.write("reference", "a\n");
    workspace.fail("bleu hypothesis reference", &["hypothesis has 2 lines", "reference has 1"]);
    workspace.fail("bleu hypothesis hypothesis --tokenize zj", &["zj", "zh"]);
}

#[test]
fn what_would_fail_after_the_training_fails_before_it() {
    let workspace = Workspace::new();
    let test = workspace.read("data/test.aa");
    let train = "train tiny.toml --run run";
    let shorter = test.split_inclusive('\n').skip(2).collect::<String>();
    for (text, fragments) in
        [(shorter.as_bytes(), ["test.aa", "10 lines"]), (b"\xff\n", ["test.aa", "UTF-8"])]
    {
        workspace.write("data/test.aa", text);
        workspace.fail(train, &fragments);
        assert!(!workspace.path("run").exists());
    }
    workspace.write("data/test.aa", "");
    workspace.write("data/test.bb", "");
    workspace.fail(train, &["split \"test\" is empty"]);
    let learned = format!("{train} --set data.test=[] --set model.positions=learned");
    workspace.fail(
        format!("{learned} --set model.max_positions=5"),
        &["model.max_positions = 5", "data.cleaning.max_tokens = 4"],
    );
    // The limit of positions also holds for the validation set, and for the tokens into which
    // subword sampling may divide a sentence.
    let validation = ["data/val.aa", "data/val.bb"].map(|name| (name, workspace.read(name)));
    for (name, text) in &validation {
        workspace.write(name, format!("{}{text}", "red cat sees ".repeat(30)));
    }
    let longer = format!("{learned} --set model.max_positions=60");
    workspace.fail(&longer, &["the longest row has", "model.max_positions = 60"]);
    for (name, text) in &validation {
        workspace.write(name, text);
    }
    workspace.fail(
        format!("{longer} --set data.tokenizer.dropout=0.1"),
        &["sampling", "251 tokens", "data.cleaning.max_tokens = 59"],
    );
    workspace.fail(
        format!("{train} --set data.test=[] --set threads=5000"),
        &["threads` = 5000", "at most"],
    );
    // A model that needs more memory than any machine has is refused without allocating it.
    for inner in ["100000000000", "72057594037927935"] {
        let huge = format!("--set data.test=[] --set model.d_ff={inner}");
        workspace
            .fail(format!("{train} {huge}"), &["parameters takes", "but the limit is", "[model]"]);
    }
    // Sizes whose sums would overflow are refused too.
    let wide = "--set data.test=[] --set model.d_ff=9223372036854775807";
    workspace.fail(
        format!("{train} {wide}"),
        &["model.d_ff = 9223372036854775807", "at most 72057594037927935"],
    );
    let beam = "--set data.test=[] --set decoding.beam_size=2000000000000000000";
    workspace.fail(
        format!("{train} {beam}"),
        &["decoding.beam_size = 2000000000000000000", "at most 65536"],
    );
    let vocabulary = "--set data.test=[] --set data.tokenizer.vocabulary_size=1000000000000";
    workspace.fail(
        format!("{train} {vocabulary}"),
        &["data.tokenizer.vocabulary_size", "at most 4194304"],
    );
    assert!(!workspace.path("run").exists());
}
