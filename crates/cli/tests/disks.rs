//! Runs on a disk that is full, too small or read only, runs whose files are removed, and runs
//! behind a link.
#![cfg(unix)]

mod common;

use std::fs;

use common::{LONG, Workspace, metrics, refused, signal, stderr, wait_for};

/// Resumes `rescued`, and checks that it ends as the undisturbed run `whole` did.
fn equals_an_undisturbed_run(workspace: &Workspace, rescued: &str, whole: &str) {
    workspace.succeed(format!("resume {rescued}"));
    workspace.same_end(rescued, whole, 600);
}

/// Makes a workspace with a folder `disk`, on which a test can mount a file system in a separate
/// name space. If the system does not allow this, prints a message and returns `None`.
#[cfg(target_os = "linux")]
fn with_mount_point() -> Option<Workspace> {
    if !std::process::Command::new("unshare")
        .args(["-rm", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!("skipped: this system allows no mount");
        return None;
    }
    let workspace = Workspace::new();
    fs::create_dir(workspace.path("disk")).expect("a mount point");
    Some(workspace)
}

/// The size of files is limited, as by a disk quota, and the state of the optimizer exceeds the
/// limit.
#[test]
fn a_checkpoint_that_does_not_fit_fails_and_leaves_nothing_behind() {
    let workspace = Workspace::new();
    let size = "--set model.d_model=64 --set model.d_ff=256";
    // Beyond the limit, the system also sends a signal, which must not end the process without a
    // message.
    let output = workspace
        .script(&["sh"], &format!("ulimit -f 1600; \"$0\" train tiny.toml --run run {size}"));
    refused(
        &output,
        &[
            "optimizer.safetensors",
            "File too large",
            "could not be saved elsewhere either",
            "--rescue",
        ],
    );
    let left: Vec<_> =
        fs::read_dir(workspace.path("run/checkpoints")).expect("checkpoints").collect();
    assert!(left.is_empty(), "{left:?}");
    // Without the limit, the run can be resumed.
    workspace.succeed("resume run");
    workspace.checkpoints_are_whole("run");
}

/// A real file system of a few MiB is filled by another process during training.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_loses_nothing() {
    let Some(workspace) = with_mount_point() else { return };
    let settings = "--set training.max_updates=600 --set training.validate_every=20";
    workspace.succeed(format!("train tiny.toml --run whole {settings}"));
    // There is at least one checkpoint when the disk becomes full.
    let text = r#"
        mount -t tmpfs -o size=6m tmpfs disk || exit 99
        "$0" train tiny.toml --run disk/run SETTINGS > log 2> errors &
        taper=$!
        while [ ! -f disk/run/checkpoints/last ]; do sleep 0.001; done
        kill -STOP $taper
        cat /dev/zero > disk/junk 2> junk.errors
        kill -CONT $taper
        wait $taper
        status=$?
        rm disk/junk
        cp -r disk/run kept
        cat errors >&2
        exit $status
    "#;
    let output = workspace.script(&["unshare", "-rm", "sh"], &text.replace("SETTINGS", settings));
    refused(
        &output,
        &[
            "No space left on device",
            "nothing is lost: the state after step",
            "taper-rescue/run",
            "taper resume",
        ],
    );
    workspace.checkpoints_are_whole("kept");
    // The rescued run still has the file with which `taper resume` recognises the training text.
    assert!(workspace.path("taper-rescue/run/text/train.json").is_file());
    equals_an_undisturbed_run(&workspace, "taper-rescue/run", "whole");
    // The folder on the full disk is a complete run too, up to its last checkpoint.
    equals_an_undisturbed_run(&workspace, "kept", "whole");
}

/// A disk that is too small is an error before the first update.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_too_small_is_refused_before_training() {
    let Some(workspace) = with_mount_point() else { return };
    let text = "mount -t tmpfs -o size=1m tmpfs disk && \"$0\" train tiny.toml --run disk/run";
    let output = workspace.script(&["unshare", "-rm", "sh"], text);
    refused(&output, &["free", "training.keep_last", "a folder on another disk"]);
    // Training into a folder on a read-only disk must be refused.
    let text = "mount -t tmpfs -o ro tmpfs disk && \"$0\" train tiny.toml --run disk/run";
    refused(
        &workspace.script(&["unshare", "-rm", "sh"], text),
        &["cannot make disk/run", "Read-only file system"],
    );
}

#[test]
fn a_run_folder_that_is_removed_is_saved_elsewhere() {
    let workspace = Workspace::new();
    let child = workspace.spawn(format!("train tiny.toml --run run --rescue safe {LONG}"));
    let run = workspace.path("run");
    workspace.wait_for_checkpoint("run");
    fs::rename(&run, workspace.path("moved")).expect("move");
    let output = child.wait_with_output().expect("ended");
    refused(&output, &["run/checkpoints", "nothing is lost", "safe/run"]);
    assert!(!stderr(&output).contains("stay in"), "nothing is left there: {}", stderr(&output));
    assert!(!run.exists());
    let record = metrics(&workspace.path("safe/run"));
    assert!(
        record.iter().any(|line| line["step"] == 1 || line["step"] == 4),
        "the record begins with the run: {record:?}"
    );
    let step = record.last().expect("lines")["step"].as_u64().expect("step") + 1;
    workspace.succeed(format!("resume safe/run --set training.max_updates={step}"));
}

#[test]
fn files_that_are_removed_from_a_run_are_written_again() {
    let workspace = Workspace::new();
    let child = workspace.spawn(format!("train tiny.toml --run run {LONG}"));
    workspace.wait_for_checkpoint("run");
    let files = ["config.toml", "tokenizer.json", "data.json", "metrics.jsonl", "text/train.json"];
    let path = |name: &str| workspace.path("run").join(name);
    let before = files.map(|name| fs::read(path(name)).expect(name));
    for name in &files[..4] {
        fs::remove_file(path(name)).expect(name);
    }
    fs::remove_dir_all(path("text")).expect("text");
    wait_for("the files", || files.iter().all(|name| path(name).is_file()));
    signal("-INT", &child);
    let output = child.wait_with_output().expect("ended");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(130), "{said}");
    for (name, before) in files.iter().zip(before) {
        let now = fs::read(path(name)).expect(name);
        // The record of metrics has grown meanwhile.
        assert!(now.starts_with(&before), "{name}");
        assert!(*name == "metrics.jsonl" || now.len() == before.len(), "{name}");
        let warns = |line: &str| line.contains("written again") && line.contains(name);
        assert!(said.lines().any(warns), "{name}: {said}");
    }
    let step = metrics(&workspace.path("run")).last().expect("lines")["step"].clone();
    workspace.succeed(format!("resume run --set training.max_updates={step}"));
    workspace.checkpoints_are_whole("run");
}

#[test]
fn a_run_that_cannot_be_loaded_any_more_is_not_called_complete() {
    let workspace = Workspace::new();
    let child = workspace.spawn("train tiny.toml --run run --set training.max_updates=600");
    workspace.wait_for_checkpoint("run");
    // Another file is put in the place of the tokenizer. The run must not overwrite this file.
    let tokenizer = workspace.path("run/tokenizer.json");
    let kept = fs::read(&tokenizer).expect("a tokenizer");
    workspace.write("run/tokenizer.json", "{}");
    refused(
        &child.wait_with_output().expect("ended"),
        &["training is complete and saved", "run cannot be loaded", "tokenizer.json"],
    );
    fs::write(&tokenizer, kept).expect("write");
    workspace.succeed("resume run");
}

#[test]
fn a_test_set_that_is_taken_away_costs_no_training() {
    let workspace = Workspace::new();
    let settings = "--set training.max_updates=400 --set training.validate_every=20";
    let child = workspace.spawn(format!("train tiny.toml --run run {settings}"));
    workspace.wait_for_checkpoint("run");
    fs::rename(workspace.path("data/test.aa"), workspace.path("kept")).expect("rename");
    refused(
        &child.wait_with_output().expect("ended"),
        &["training is complete and saved", "test.aa", "taper resume run"],
    );
    fs::rename(workspace.path("kept"), workspace.path("data/test.aa")).expect("rename");
    workspace.succeed("resume run");
    assert!(workspace.path("run/scores.json").is_file());
}

/// The folder of a run may be a link to another disk, and its name need not be UTF-8.
#[test]
fn a_run_may_lie_behind_a_link_and_have_any_name() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let workspace = Workspace::new();
    fs::create_dir(workspace.path("disk")).expect("folder");
    std::os::unix::fs::symlink("disk", workspace.path("link")).expect("link");
    // If no run is made, the link stays as it is.
    workspace.fail(
        "train tiny.toml --run link --set data.tokenizer.vocabulary_size=250",
        &["vocabulary_size"],
    );
    assert!(workspace.path("link").is_symlink());
    assert_eq!(fs::read_dir(workspace.path("disk")).expect("folder").count(), 0);

    let name = OsStr::from_bytes(b"r\xffn");
    for name in [OsStr::new("link"), name] {
        for arguments in ["train tiny.toml --run", "resume --set training.max_updates=14"] {
            let output = workspace.command(arguments).arg(name).output().expect("the binary runs");
            assert!(output.status.success(), "{arguments} {}", stderr(&output));
        }
    }
    assert_eq!(metrics(&workspace.path("disk")), metrics(&workspace.path("").join(name)));
}
