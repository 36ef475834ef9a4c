//! Bad input: one clear error that names file, line or key, exit code 2, and
//! nothing written.

#[path = "../common/mod.rs"]
mod common;
mod corpora;
mod recipes;
mod runs;

use common::Workspace;

const TRAIN: &str = "train tiny.toml --run run";

/// Training with one override is refused.
fn set_fails(set: &str, fragments: &[&str]) {
    let workspace = Workspace::new();
    workspace.fail(format!("{TRAIN} --set {set}"), fragments);
    assert!(!workspace.path("run").exists(), "a run folder was left behind");
}
