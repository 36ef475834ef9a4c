//! Tests of training by processes of MPI: the files must be identical, byte for byte, to those of
//! one process and of processes that communicate over sockets. If one process fails or is killed,
//! the others must end.
//!
//! Needs `mpirun`; `cargo test --release -p taper --features mpi --test mpi`.

mod common;

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Workspace, mentions, metrics, stderr, train_among as train, words};

/// Returns a command that runs `mpirun` with this number of processes of the binary in the folder.
fn mpirun(workspace: &Workspace, processes: &str, arguments: &str) -> Command {
    let mut command = Command::new("mpirun");
    command
        .args(["--oversubscribe", "--allow-run-as-root", "-n", processes])
        .arg(env!("CARGO_BIN_EXE_taper"))
        .args(words(arguments))
        .current_dir(workspace.path(""))
        // A display must not affect the test.
        .env_remove("DISPLAY")
        .stdin(Stdio::null());
    command
}

fn succeed(mut command: Command) -> Output {
    let output = command.output().expect("mpirun is installed");
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

fn assert_same(workspace: &Workspace, one: &str, other: &str, step: u32) {
    let path = |run: &str, file: &str| workspace.path(run).join(file);
    assert_eq!(metrics(&workspace.path(one)), metrics(&workspace.path(other)), "{other}");
    let checkpoint = format!("checkpoints/step-{step:08}");
    for file in [
        &format!("{checkpoint}/model.safetensors"),
        &format!("{checkpoint}/optimizer.safetensors"),
        "checkpoints/averaged/model.safetensors",
        "scores.json",
    ] {
        let [one, other] = [one, other].map(|run| fs::read(path(run, file)).expect(file));
        assert!(one == other, "{file} differs");
    }
}

#[test]
fn processes_of_mpi_come_to_the_same_as_one_and_as_those_of_sockets() {
    let workspace = Workspace::new();
    workspace.succeed(train("one", ""));
    workspace.succeed(train("sockets", "--processes 2"));
    assert_same(&workspace, "one", "sockets", 12);
    for processes in ["2", "3"] {
        let run = format!("mpi-{processes}");
        let output = succeed(mpirun(&workspace, processes, &train(&run, "")));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said.matches("training in").count(), 1, "one process tells: {said}");
        assert_same(&workspace, "one", &run, 12);
    }
    // Processes that `mpirun` has started may also exchange by sockets, and can continue a run that
    // was begun without MPI.
    workspace.succeed(train("whole", "--set training.max_updates=18"));
    workspace.succeed(train("parts", "--set training.max_updates=6"));
    for (updates, way) in
        [("training.max_updates=12", "sockets"), ("training.max_updates=18", "mpi")]
    {
        let more = format!("resume parts --set {updates} --exchange {way}");
        succeed(mpirun(&workspace, "2", &more));
    }
    assert_same(&workspace, "whole", "parts", 18);
}

#[test]
fn what_is_wrong_is_told_once_and_ends_all_of_them() {
    let workspace = Workspace::new();
    // Two processes of one call of `mpirun` have different recipes.
    let one = train("run", "--set training.clip_norm=0.5");
    let mut command = mpirun(&workspace, "1", &train("run", ""));
    command.args([":", "-n", "1", env!("CARGO_BIN_EXE_taper")]).args(words(&one));
    let output = command.output().expect("mpirun");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.matches("error:").count(), 1, "{said}");
    mentions(&said, &["process 1", "another recipe", "training.clip_norm is 0.5"]);
    assert!(!workspace.path("run").exists(), "nothing has begun");
    // `--exchange mpi` is refused if `mpirun` has not started the process.
    workspace.fail(train("run", "--exchange mpi"), &["--exchange mpi", "mpirun"]);
}

/// Returns the ids of processes of the binary that train `run`, without shells and launchers.
fn processes_of(run: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = command.split(|&byte| byte == 0);
        words.next() == Some(env!("CARGO_BIN_EXE_taper").as_bytes())
            && words.any(|word| word == run.as_bytes())
    };
    pids.filter(is_one).collect()
}

#[test]
fn a_killed_process_ends_the_others_and_the_run_goes_on() {
    let workspace = Workspace::new();
    let long = "--set training.max_updates=300 --set training.checkpoint_every=5";
    workspace.succeed(train("whole", long));
    // The name is unique among tests that run at the same time.
    let run = format!("killed-{}", std::process::id());
    let mut command = mpirun(&workspace, "2", &train(&run, long));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("mpirun");
    workspace.wait_for_checkpoint(&run);
    let victim = *processes_of(&run).last().expect("two processes");
    let killed = Command::new("kill").args(["-KILL", &victim.to_string()]).status();
    assert!(killed.expect("kill").success());
    let began = Instant::now();
    let output = child.wait_with_output().expect("mpirun ends");
    while !processes_of(&run).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "a process goes on alone");
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("ended after {:?}", began.elapsed());
    assert!(!output.status.success(), "{}", stderr(&output));
    workspace.checkpoints_are_whole(&run);
    succeed(mpirun(&workspace, "2", &format!("resume {run}")));
    assert_same(&workspace, "whole", &run, 300);
}
