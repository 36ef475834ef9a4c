//! Tests of bad input: the program must print one clear error that names the file, the line or the
//! key, end with exit code 2, and write nothing.

#[path = "../common/mod.rs"]
mod common;
mod corpora;
mod recipes;
mod runs;

use common::Workspace;

const TRAIN: &str = "train tiny.toml --run run";

/// Checks that training with the override `set` is refused.
fn set_fails(set: &str, fragments: &[&str]) {
    let workspace = Workspace::new();
    workspace.fail(format!("{TRAIN} --set {set}"), fragments);
    assert!(!workspace.path("run").exists(), "a run folder was left behind");
}
