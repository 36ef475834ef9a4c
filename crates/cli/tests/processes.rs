//! Tests of a training process: a second process in the run's folder, signals, a closed terminal,
//! output that nobody reads any more, and an end before the first update.

mod common;

use std::fs;
use std::process::{Child, Output, Stdio};
#[cfg(unix)]
use std::{process::Command, time::Duration};

#[cfg(unix)]
use common::{LONG, mentions, signal, wait_for};
use common::{Workspace, metrics, stderr};

#[cfg(unix)]
#[test]
fn two_processes_do_not_train_in_one_folder() {
    let workspace = Workspace::new();
    let mut first = workspace.spawn(format!("train tiny.toml --run run {LONG}"));
    workspace.wait_for_checkpoint("run");
    workspace.fail("resume run", &["run is in use", &format!("process {}", first.id())]);
    // Other processes may read the run.
    assert!(workspace.run_with_input("translate run", b"red cat\n").status.success());

    // A killed process leaves its id in the lock file, but the system has released the lock.
    signal("-KILL", &first);
    let pid = first.id();
    first.wait().expect("ended");
    let stopped = workspace.finish("resume run --set training.max_updates=1");
    assert!(stderr(&stopped).contains(&format!("process {pid}")), "{}", stderr(&stopped));
    assert!(!stderr(&workspace.run("resume run --set training.max_updates=1")).contains("process"));
}

#[test]
fn of_processes_that_start_at_once_one_trains() {
    let workspace = Workspace::new();
    workspace.train("whole");
    let start = |_| workspace.spawn("train tiny.toml --run run --resume");
    let outputs: Vec<Output> = (0..6)
        .map(start)
        .collect::<Vec<Child>>()
        .into_iter()
        .map(|child| child.wait_with_output().expect("ended"))
        .collect();
    for output in &outputs {
        let message = stderr(output);
        assert!(
            output.status.success()
                || message.contains("is in use")
                || message.contains("a moment ago"),
            "{message}"
        );
    }
    assert!(outputs.iter().any(|output| output.status.success()));
    assert_eq!(metrics(&workspace.path("run")), metrics(&workspace.path("whole")));
}

#[cfg(unix)]
#[test]
fn two_signals_leave_whole_checkpoints() {
    let workspace = Workspace::new();
    let often = "--set training.checkpoint_every=10 --set data.batching.max_tokens=20000";
    let mut child = workspace.spawn(format!("train tiny.toml --run run {LONG} {often}"));
    workspace.wait_for_checkpoint("run");
    signal("-INT", &child);
    // Signals that follow each other faster count as one.
    std::thread::sleep(Duration::from_millis(600));
    signal("-TERM", &child);
    // The exit code is that of the first signal if training could stop before the second.
    assert!([Some(130), Some(143)].contains(&child.wait().expect("ended").code()));
    workspace.checkpoints_are_whole("run");
    workspace.succeed("resume run --set training.max_updates=1");
}

/// `timeout` and closed terminals send several signals at once.
#[cfg(unix)]
#[test]
fn signals_at_once_are_one_and_lose_no_update() {
    let workspace = Workspace::new();
    let child = workspace.spawn(format!("train tiny.toml --run run {LONG}"));
    workspace.wait_for_checkpoint("run");
    signal("-HUP", &child);
    signal("-TERM", &child);
    let output = child.wait_with_output().expect("ended");
    // The exit code is that of the signal that came first. The system chooses which one this is.
    assert!([Some(129), Some(143)].contains(&output.status.code()), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted at step"), "{}", stderr(&output));
}

/// Batch systems warn some time before they kill a process. Slurm sends the signal that its option
/// `--signal` names. A limit on processor time sends SIGXCPU, and repeats it every second.
#[cfg(unix)]
#[test]
fn a_warning_saves_and_stops() {
    let workspace = Workspace::new();
    for (name, code) in [("USR1", 138), ("USR2", 140), ("XCPU", 152)] {
        let child = workspace.spawn(format!("train tiny.toml --run {name} {LONG}"));
        workspace.wait_for_checkpoint(name);
        signal(&format!("-{name}"), &child);
        let output = child.wait_with_output().expect("ended");
        let said = stderr(&output);
        let expected = if cfg!(target_os = "linux") { Some(code) } else { output.status.code() };
        assert_eq!(output.status.code(), expected, "{said}");
        mentions(&said, &["interrupted at step", "taper resume"]);
        workspace.checkpoints_are_whole(name);
    }
    // The shell makes its process ignore USR1, and a program that it executes inherits this. So the
    // signal does not end the training.
    let text = format!("trap '' USR1; exec \"$0\" train tiny.toml --run run {LONG}");
    let mut command = Command::new("sh");
    command.args(["-c", &text, env!("CARGO_BIN_EXE_taper")]).current_dir(workspace.path(""));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a shell");
    workspace.wait_for_checkpoint("run");
    signal("-USR1", &child);
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().expect("a process").is_none(), "it ended");
    signal("-TERM", &child);
    assert_eq!(child.wait().expect("ended").code(), Some(143));
}

/// Checks a soft and a hard limit on processor time, as `ulimit -t` and batch systems set them.
#[cfg(target_os = "linux")]
#[test]
fn a_limit_on_processor_time_costs_no_update() {
    let workspace = Workspace::new();
    let text = format!(
        "ulimit -St 2; ulimit -Ht 60; exec \"$0\" train tiny.toml --run run --set threads=1 {LONG}",
    );
    let output = workspace.script(&["bash"], &text);
    assert_eq!(output.status.code(), Some(152), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted at step"), "{}", stderr(&output));
    workspace.checkpoints_are_whole("run");
}

/// An update with many micro-batches may take hours, so a signal must end it midway.
#[cfg(unix)]
#[test]
fn an_update_of_many_micro_batches_stops_midway() {
    let workspace = Workspace::new();
    let short = "--set data.batching.max_tokens=30";
    let many = format!("{short} --set training.accumulation=60000");
    let child = workspace.spawn(format!("train tiny.toml --run run {many}"));
    let record = workspace.path("run/metrics.jsonl");
    wait_for("training to begin", || record.is_file());
    // Gives the process time to begin its first update, whose micro-batches would take minutes.
    std::thread::sleep(Duration::from_millis(1500));
    signal("-TERM", &child);
    let asked = std::time::Instant::now();
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(143), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted at step 0"), "{}", stderr(&output));
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    // No part of the update was applied.
    let small = "--set training.accumulation=1";
    workspace.succeed(format!("resume run {small}"));
    workspace.succeed(format!("train tiny.toml --run whole {short} {small}"));
    assert_eq!(metrics(&workspace.path("run")), metrics(&workspace.path("whole")));
}

#[cfg(unix)]
#[test]
fn a_signal_before_the_first_update_says_how_to_go_on() {
    let workspace = Workspace::new();
    let text = ["aa", "bb"]
        .map(|side| (format!("data/train.{side}"), workspace.read(&format!("data/train.{side}"))));
    for (name, text) in &text {
        workspace.write(name, text.repeat(2000));
    }
    let child = workspace.spawn("train tiny.toml --run run");
    let config = workspace.path("run/config.toml");
    wait_for("the configuration", || config.is_file());
    signal("-TERM", &child);
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(143), "{}", stderr(&output));
    assert!(stderr(&output).contains("continue with: taper resume run"), "{}", stderr(&output));
    assert!(!workspace.path("run/checkpoints").exists());
    for (name, text) in &text {
        workspace.write(name, text);
    }
    workspace.succeed("resume run --accept-changes");
    workspace.train("whole");
    assert_eq!(metrics(&workspace.path("run")), metrics(&workspace.path("whole")));
}

/// The process is started with SIGHUP ignored, as by `nohup`.
#[cfg(unix)]
#[test]
fn a_run_started_to_outlive_its_terminal_does() {
    let workspace = Workspace::new();
    let text = format!("trap '' HUP; exec \"$0\" train tiny.toml --run run {LONG}");
    let mut command = Command::new("sh");
    command.args(["-c", &text, env!("CARGO_BIN_EXE_taper")]).current_dir(workspace.path(""));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a shell");
    workspace.wait_for_checkpoint("run");
    let last = workspace.path("run/checkpoints/last");
    signal("-HUP", &child);
    // If the process had obeyed the signal, it would save only one more checkpoint.
    for _ in 0..3 {
        let before = fs::read_to_string(&last).expect("a pointer");
        wait_for("another checkpoint", || {
            assert!(child.try_wait().expect("a process").is_none(), "it ended");
            fs::read_to_string(&last).is_ok_and(|now| now != before)
        });
    }
    signal("-TERM", &child);
    assert_eq!(child.wait().expect("ended").code(), Some(143));
}

/// Checks that training continues, with a warning, if nobody reads its output.
#[test]
fn a_reader_that_goes_away_ends_no_training() {
    let workspace = Workspace::new();
    workspace.train("whole");
    for json in ["", "--json"] {
        let mut command = workspace.command(format!("train tiny.toml --run run {json}"));
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("ended");
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stderr(&output).matches("training goes on").count(), 1, "{}", stderr(&output));
        assert_eq!(metrics(&workspace.path("run")), metrics(&workspace.path("whole")));
        assert!(workspace.path("run/scores.json").is_file());
        fs::remove_dir_all(workspace.path("run")).expect("remove");
    }
}

#[test]
fn a_run_that_was_killed_before_it_began_can_be_begun() {
    let workspace = Workspace::new();
    let run = workspace.path("run");
    fs::create_dir(&run).expect("folder");
    fs::write(run.join("run.lock"), "12345\n").expect("lock");
    fs::write(run.join("config.toml.partial"), "[mod").expect("partial");
    fs::write(run.join("config.toml.77.partial"), "[mod").expect("partial");
    workspace.train("run");
    // A run that was killed while its text was tokenised has a configuration, and a partly written
    // cache.
    let other = workspace.path("other");
    fs::create_dir_all(other.join("cache")).expect("folder");
    fs::copy(run.join("config.toml"), other.join("config.toml")).expect("copy");
    fs::write(other.join("cache/train.bin.77.partial"), "half").expect("partial");
    workspace.succeed("resume other");
    assert!(!other.join("cache/train.bin.77.partial").exists());
    assert_eq!(metrics(&run), metrics(&other));
}

/// SIGTERM saves a checkpoint at the current update.
#[cfg(unix)]
#[test]
fn a_run_stopped_by_sigterm_and_resumed_equals_an_uninterrupted_one() {
    interrupted_equals_uninterrupted("-TERM", "metrics.jsonl", Some(143));
}

/// SIGKILL leaves the last checkpoint, and metrics that are newer than this checkpoint.
#[cfg(unix)]
#[test]
fn a_killed_run_resumed_equals_an_uninterrupted_one() {
    interrupted_equals_uninterrupted("-KILL", "checkpoints/last", None);
}

/// Trains once without interruption, and once with a signal as soon as the file `awaited` exists.
/// Checks that weights, optimizer state, metrics and translations are the same.
#[cfg(unix)]
fn interrupted_equals_uninterrupted(name: &str, awaited: &str, exit_code: Option<i32>) {
    let workspace = Workspace::new();
    let long = "--set training.max_updates=120 --set training.log_every=7 \
         --set training.validate_every=40";
    workspace.succeed(format!("train tiny.toml --run whole {long}"));

    let mut child = workspace.spawn(format!("train tiny.toml --run parts {long}"));
    let metrics_file = workspace.path("parts/metrics.jsonl");
    let awaited = workspace.path("parts").join(awaited);
    wait_for("training to begin", || fs::metadata(&awaited).is_ok_and(|file| file.len() > 0));
    signal(name, &child);
    let status = child.wait().expect("the binary ends");
    assert_eq!(status.code(), exit_code, "it finished before the signal: make the run longer");

    // Adds newer lines and an incomplete line, which a crash during writing may leave.
    let mut text = fs::read_to_string(&metrics_file).expect("metrics");
    text.push_str("{\"event\":\"log\",\"step\":119,\"loss\":1.0}\n{\"event\":\"log\",\"st");
    fs::write(&metrics_file, text).expect("write");
    workspace.succeed("resume parts");

    workspace.same_end("whole", "parts", 120);
    let translations = |run: &str| {
        fs::read(workspace.path(run).join("translations/test.txt")).expect("translations")
    };
    assert_eq!(translations("whole"), translations("parts"));
}
