//! `taper train --from`: a new run that begins with the weights of another.

use std::fs;

use crate::common::{Workspace, metrics, stderr, stdout};

const FROM: [&str; 6] = ["train", "tiny.toml", "--run", "child", "--from", "parent"];

/// The first line of a run's record.
fn first_loss(workspace: &Workspace, run: &str) -> f64 {
    metrics(&workspace.path(run))[0]["loss"].as_f64().expect("a loss")
}

#[test]
fn a_new_run_begins_with_the_weights_and_tokenizer_of_another() {
    let workspace = Workspace::new();
    workspace.succeed(&[
        "train",
        "tiny.toml",
        "--run",
        "parent",
        "--set",
        "training.max_updates=60",
    ]);
    workspace.train("fresh");
    // Another vocabulary size would be another tokenizer.
    let output =
        workspace.run(&[&FROM[..], &["--set", "data.tokenizer.vocabulary_size=290"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    for part in [
        "weights of step 60 from",
        "averaged",
        "taken      decoder.final_norm",
        "encoder.layers.0",
        "decoder.layers.0",
        "vocabulary_size is 300 but was 290",
        "new        optimizer",
        "training in child from step 0",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert!(first_loss(&workspace, "child") < first_loss(&workspace, "fresh") - 0.5);
    let file = |run: &str| fs::read(workspace.path(run).join("tokenizer.json")).expect("a file");
    assert!(file("child") == file("parent"));
    // Its own steps, its own best.
    let state: serde_json::Value = serde_json::from_slice(
        &fs::read(workspace.path("child/checkpoints/step-00000012/state.json")).expect("state"),
    )
    .expect("JSON");
    assert_eq!(state["step"], 12);
    assert_eq!(state["parent"]["step"], 60);
    assert_eq!(state["parent"]["sha256"].as_str().map(str::len), Some(64));
    assert!(!workspace.path("child/checkpoints/step-00000000").exists(), "it has served");
    let shown = workspace.succeed(&["inspect", "child"]);
    assert!(shown.contains("first weights from") && shown.contains("step 60"), "{shown}");
    let shown: serde_json::Value =
        serde_json::from_str(&workspace.succeed(&["inspect", "child", "--json"])).expect("JSON");
    assert!(shown["parent"]["path"].as_str().expect("a path").contains("parent/checkpoints"));
    // The parent may go.
    fs::remove_dir_all(workspace.path("parent")).expect("remove");
    workspace.succeed(&["resume", "child", "--set", "training.max_updates=14"]);
}

#[test]
fn what_fits_another_model_is_taken_where_that_is_meant() {
    let workspace = Workspace::new();
    workspace.train("parent");
    let deeper = [&FROM[..], &["--set", "model.encoder_layers=2"]].concat();
    workspace.fail(&deeper, &["--from parent", "model.encoder_layers is 2 but was 1"]);
    workspace.fail(
        &[&FROM[..], &["--set", "model.heads=4"]].concat(),
        &["model.heads is 4 but was 2", "--accept-changes"],
    );
    assert!(!workspace.path("child").exists());
    let output = workspace.run(&[&deeper[..], &["--accept-changes", "--json"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let first = stdout(&output).lines().next().expect("a line").to_owned();
    let event: serde_json::Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(event["event"], "warm_start");
    let drawn = event["weights"]["drawn"].as_array().expect("a list");
    assert!(!drawn.is_empty());
    for one in drawn {
        assert!(one["name"].as_str().expect("a name").starts_with("encoder.layers.1."), "{one}");
    }
    // Dropout is no part of the weights.
    let dropout = ["--run", "other", "--set", "model.residual_dropout=0.3"];
    workspace.succeed(&[&["train", "tiny.toml", "--from", "parent"], &dropout[..]].concat());
}

#[test]
fn a_parent_that_cannot_be_one_is_refused_before_anything_is_written() {
    let workspace = Workspace::new();
    workspace.fail(&FROM, &["--from parent", "no such run"]);
    workspace.train("parent");
    workspace.succeed(&[
        "tokenizer",
        "train",
        "tiny.toml",
        "-o",
        "tokenizer",
        "--set",
        "data.tokenizer.vocabulary_size=280",
    ]);
    workspace.fail(
        &[&FROM[..], &["--set", "data.tokenizer.path=tokenizer/tokenizer.json"]].concat(),
        &["--from parent", "data.tokenizer.path"],
    );
    let weights = workspace.path("parent/checkpoints/averaged/model.safetensors");
    let bytes = fs::read(&weights).expect("weights");
    fs::write(&weights, &bytes[..bytes.len() / 2]).expect("damage");
    workspace.fail(&FROM, &["model.safetensors", "truncated"]);
    assert!(!workspace.path("child").exists());
    // A checkpoint can be named itself.
    workspace.succeed(&[&FROM[..5], &["parent/checkpoints/step-00000012"]].concat());
}

/// A process that is killed before its first own checkpoint goes on from the same weights.
#[cfg(unix)]
#[test]
fn a_run_that_is_killed_early_still_begins_with_its_parents_weights() {
    let workspace = Workspace::new();
    workspace.train("parent");
    workspace.succeed(&FROM);
    let mut child = workspace.spawn(
        &[&["train", "tiny.toml", "--run", "killed", "--from", "parent"], &crate::common::LONG[..]]
            .concat(),
    );
    let beginning = workspace.path("killed/checkpoints/step-00000000");
    crate::common::wait_for("the beginning", || beginning.is_dir());
    let config = workspace.path("killed/config.toml");
    crate::common::wait_for("the configuration", || config.is_file());
    crate::common::signal("-KILL", &child);
    child.wait().expect("ended");
    let ends = ["--set", "training.max_updates=12", "--set", "training.validate_every=6"];
    let output = workspace.run(&[&["resume", "killed"], &ends[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    workspace.same_end("child", "killed", 12);
}
