//! Tests of `dtype = "auto"`: the type is chosen once, when a run begins, and kept when the run
//! continues on another machine.

use std::process::Output;

use crate::common::{Workspace, mentions, stderr, stdout};

/// Environment variable that makes any machine behave like one without a matrix kernel of Taper.
const POOR: (&str, &str) = ("TAPER_KERNEL", "gemm");

const AUTO: &str = "--set dtype=auto";

fn on_poor_machine(workspace: &Workspace, arguments: &str) -> Output {
    let mut command = workspace.command(format!("{arguments} {AUTO}"));
    let output = command.env(POOR.0, POOR.1).output().expect("the binary runs");
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// Returns the line `dtype = …` of the run's configuration.
fn written(workspace: &Workspace) -> String {
    let config = workspace.read("run/config.toml");
    let mut lines = config.lines().filter(|line| line.starts_with("dtype"));
    lines.next().expect("a dtype").to_owned()
}

#[test]
fn the_choice_is_made_once_and_kept() {
    let workspace = Workspace::new();
    let train = "train tiny.toml --run run --set training.max_updates=20";
    let begun = on_poor_machine(&workspace, train);
    assert_eq!(written(&workspace), "dtype = \"f32\"");
    let reason = "dtype \"auto\" is f32 for this run, since by the gemm crate, bf16 would be";
    assert!(stderr(&begun).contains(reason), "{}", stderr(&begun));
    let operations = "operations: cpu: all fused; products in f32, by the gemm crate (gemm)\n";
    assert!(stdout(&begun).contains(operations), "{}", stdout(&begun));
    // Without the variable `POOR`, this machine may multiply bf16 faster, but the run keeps f32.
    workspace.succeed(format!("resume run --set training.max_updates=40 {AUTO}"));
    assert_eq!(written(&workspace), "dtype = \"f32\"");
}

#[test]
fn a_run_in_bf16_goes_on_in_bf16_where_that_is_slower() {
    let workspace = Workspace::new();
    workspace.succeed("train tiny.toml --run run --set dtype=bf16 --set training.max_updates=20");
    on_poor_machine(&workspace, "resume run --set training.max_updates=40");
    assert_eq!(written(&workspace), "dtype = \"bf16\"");
}

#[test]
fn inspect_says_what_an_open_type_would_be_and_why() {
    let workspace = Workspace::new();
    let shown = stdout(&on_poor_machine(&workspace, "inspect tiny.toml"));
    let line = "products in f32, by the gemm crate (gemm); f32, since by the gemm crate, bf16";
    mentions(&shown, &[line]);
}
