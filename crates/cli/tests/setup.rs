//! The commands for newcomers and packagers.

mod common;

use std::fs;

use common::Workspace;

#[test]
fn the_quickstart_needs_nothing_but_the_program() {
    let workspace = Workspace::new();
    let short = ["training.max_updates=6", "training.schedule.warmup=2", "training.log_every=2"];
    let quick = [
        &short[..],
        &["evaluation.test_after_training=false", "evaluation.validation_sentences=0"],
        &["model.d_model=32", "model.d_ff=64"],
    ];
    let set: Vec<&str> = quick.concat().into_iter().flat_map(|set| ["--set", set]).collect();
    let said = workspace.succeed(&[&["quickstart", "first"], &set[..]].concat());
    assert!(said.contains("the recipe and its corpus are in first"), "{said}");
    for name in ["configs/quickstart.toml", "data/everyday-en-zh/test.zh"] {
        let bundled = fs::read(format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR")));
        let written = fs::read(workspace.path(&format!("first/{name}")));
        assert!(bundled.expect("bundled") == written.expect("unpacked"), "{name}");
    }
    // Again: files of the user's stay, and what is trained is not trained again.
    workspace.write("first/data/everyday-en-zh/test.zh", "mine\n");
    workspace.succeed(&[&["quickstart", "first"], &set[..]].concat());
    assert_eq!(fs::read(workspace.path("first/data/everyday-en-zh/test.zh")).unwrap(), b"mine\n");
    workspace.succeed(&["translate", "first/runs/quickstart", "--input", "data/test.aa"]);
}

#[test]
fn the_doctor_knows_what_a_short_training_comes_to() {
    let workspace = Workspace::new();
    let said = workspace.succeed(&["doctor"]);
    assert!(said.contains("check      passed"), "{said}");
}

#[test]
fn every_command_has_a_page_of_the_manual() {
    let workspace = Workspace::new();
    workspace.succeed(&["manual", "man"]);
    for name in ["taper.1", "taper-train.1", "taper-bench-train.1"] {
        let page = fs::read_to_string(workspace.path("man").join(name)).expect("a page");
        assert!(page.contains(".SH OPTIONS") || page.contains(".SH SUBCOMMANDS"), "{name}");
    }
}
