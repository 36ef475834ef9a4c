//! Tests of a run whose files were edited or damaged: the error must name the problem, and no other
//! file may be used in place of the damaged one.

use std::fs;

#[cfg(unix)]
use crate::common::refused;
use crate::common::{Workspace, metrics, stderr};

/// Replaces text in the file `name`.
fn edit(workspace: &Workspace, name: &str, from: &str, to: &str) {
    let text = workspace.read(name);
    assert!(text.contains(from), "{from} is not in {name}");
    workspace.write(name, text.replacen(from, to, 1));
}

#[test]
fn an_edited_configuration_is_refused_wherever_weights_are_loaded() {
    let workspace = Workspace::new();
    workspace.train("run");
    workspace.train("other");
    let config = workspace.read("run/config.toml");
    let edits = [
        ("heads = 2", "heads = 4", "model.heads is 4 but was 2"),
        ("activation = \"relu\"", "activation = \"gelu\"", "model.activation is \"gelu\""),
        ("positions = \"sinusoidal\"", "positions = \"alibi\"", "model.positions is \"alibi\""),
        ("residual_dropout = 0.1", "residual_dropout = 0.4", "model.residual_dropout is 0.4"),
        ("max_ratio = 9.0", "max_ratio = 3.0", "data.cleaning.max_ratio is 3.0 but was 9.0"),
        ("\ndropout = 0.0", "\ndropout = 0.2", "data.tokenizer.dropout is 0.2"),
        ("dtype = \"f32\"", "dtype = \"bf16\"", "dtype is \"bf16\" but was \"f32\""),
    ];
    let loads = [
        "evaluate run",
        "translate run -i data/test.aa",
        "score run --source data/test.aa --target data/test.bb",
        "translate other -i data/test.aa --ensemble run",
        "inspect run",
        "resume run --set training.max_updates=14",
    ];
    for (from, to, named) in edits {
        assert!(config.contains(from), "{from}");
        workspace.write("run/config.toml", config.replacen(from, to, 1));
        // One command is checked with every edit, and every command with one edit.
        workspace.fail(loads[0], &["run/config.toml", named]);
        if named.starts_with("model.heads") {
            for command in loads {
                workspace.fail(command, &["run/config.toml", named]);
            }
        }
    }
    // Settings that do not affect training, such as those of decoding, may be edited.
    workspace.write("run/config.toml", config.replacen("beam_size = 2", "beam_size = 3", 1));
    workspace.succeed("evaluate run");
    workspace.write("run/config.toml", &config);

    for set in ["model.positions=alibi", "data.tokenizer.vocabulary_size=400"] {
        workspace.fail(
            format!("translate run -i data/test.aa --set {set}"),
            &["an override would change", set.split('=').next().expect("a key")],
        );
    }
    // Accepted changes become the configuration of the run at once, also for older checkpoints.
    let accepted = config.replacen("residual_dropout = 0.1", "residual_dropout = 0.4", 1);
    workspace.write("run/config.toml", &accepted);
    workspace.succeed("resume run --set training.max_updates=13 --accept-changes");
    for checkpoint in ["step-00000006", "last", "best", "average"] {
        workspace.succeed(format!("evaluate run --checkpoint {checkpoint}"));
    }
    workspace.succeed("resume run --set training.max_updates=14");
    workspace.write("run/config.toml", &config);
    workspace.fail("evaluate run", &["residual_dropout is 0.1 but was 0.4"]);
}

#[test]
fn a_damaged_pointer_is_named_and_not_passed_over() {
    let workspace = Workspace::new();
    workspace.succeed("train tiny.toml --run run --set training.average_last=0");
    let commands = [
        "evaluate run",
        "translate run -i data/test.aa",
        "score run --source data/test.aa --target data/test.bb",
    ];
    for content in ["garbage\n", "step-00000099\n", "", "../../other", "\u{1}\u{2}"] {
        for pointer in ["best", "last"] {
            let path = format!("run/checkpoints/{pointer}");
            let before = fs::read(workspace.path(&path)).expect("a pointer");
            workspace.write(&path, content);
            let named = [path.as_str(), "no checkpoint there", "step-00000012"];
            if pointer == "best" {
                for command in commands {
                    workspace.fail(command, &named);
                }
            }
            workspace.fail(format!("evaluate run --checkpoint {pointer}"), &named);
            if pointer == "last" {
                let message = workspace.fail("resume run --set training.max_updates=13", &named);
                assert!(!message.contains("--checkpoint"), "{message}");
            }
            workspace.write(&path, before);
        }
    }
    workspace.succeed("evaluate run");
}

#[test]
fn a_key_has_one_value() {
    let workspace = Workspace::new();
    workspace.fail("config check tiny.toml --set 'model.heads=2\nmodel.d_ff=3'", &["model.heads"]);
}

#[cfg(unix)]
#[test]
fn a_result_that_cannot_be_printed_is_an_error() {
    let workspace = Workspace::new();
    workspace.train("run");
    for command in [
        "translate run -i data/test.aa",
        "evaluate run",
        "score run --source data/test.aa --target data/test.bb",
        "bleu data/test.aa data/test.bb",
        "inspect run",
        "config show tiny.toml",
        "config check tiny.toml",
        "average run",
        "tokenizer encode run < data/test.aa",
        "tokenizer train tiny.toml -o tokenizer",
        "completions bash",
        "bench decode run --input data/test.aa --repeats 1",
    ] {
        let output = workspace.script(&["sh"], &format!("\"$0\" {command} >&-"));
        refused(&output, &["standard output", "closed"]);
    }
    if cfg!(target_os = "linux") {
        for command in [
            "--help",
            "train --help",
            "--version",
            "inspect run",
            "translate run -i data/test.aa",
            "config show tiny.toml",
            "completions bash",
            "generate --help",
        ] {
            let output = workspace.script(&["sh"], &format!("\"$0\" {command} > /dev/full"));
            refused(&output, &["standard output", "No space left on device"]);
        }
    }
    // A reader that is gone is not an error.
    let output = workspace.script(&["bash", "-o", "pipefail"], "\"$0\" --help | true");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
    // An output that is discarded is not an error.
    for to in ["> /dev/null", "<> /dev/null 1>&0"] {
        let output = workspace.script(&["sh"], &format!("\"$0\" inspect run {to}"));
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

#[test]
fn a_record_that_does_not_parse_is_set_aside() {
    let workspace = Workspace::new();
    workspace.train("run");
    let whole = metrics(&workspace.path("run"));
    edit(&workspace, "run/metrics.jsonl", "{\"event\":\"log\"", "not a record\n{\"event\":\"log\"");
    let damaged = fs::read(workspace.path("run/metrics.jsonl")).expect("metrics");
    let output = workspace.finish("resume run");
    assert!(
        stderr(&output).contains("run/metrics.jsonl, line 1")
            && stderr(&output).contains("kept as run/metrics.damaged.jsonl"),
        "{}",
        stderr(&output)
    );
    let kept = fs::read(workspace.path("run/metrics.damaged.jsonl")).expect("kept");
    assert!(kept == damaged, "as it was");
    assert_eq!(metrics(&workspace.path("run"))[..whole.len()], whole);
}
