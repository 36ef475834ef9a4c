//! Tests of training by several processes: the files must be identical, byte for byte, to those of
//! one process, for any number of processes and after any process was killed. Processes with
//! different inputs must be refused.
//!
//! A few kills run with the other tests; fifty kills run with `cargo test --release -p taper --test
//! many_processes -- --ignored --nocapture`.
#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
mod common;
mod tokenising;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{
    Random, SEVERAL, Workspace, metrics, refused, signal, stderr, train_among as train, wait_for,
    words,
};

/// Time within which the other processes must end after a process was killed. A process that waits
/// for data from the killed process ends after at most 2 s. In a busy process, a separate thread
/// ends the process 5 s after the connection was lost. The rest of the time allows for a slow
/// machine. After 20 s, process 0 kills the processes that it has started, so a longer time means
/// that a process did not end by itself.
const SOON: Duration = Duration::from_secs(20);

/// Checks that two runs have the same metrics and the same files.
fn assert_same(one: &Path, other: &Path, step: u32) {
    assert_eq!(metrics(one), metrics(other));
    let checkpoint = format!("checkpoints/step-{step:08}");
    for file in [
        &format!("{checkpoint}/model.safetensors"),
        &format!("{checkpoint}/optimizer.safetensors"),
        "checkpoints/averaged/model.safetensors",
        "checkpoints/last",
        "checkpoints/best",
        "tokenizer.json",
        "cache/train.bin",
        "data.json",
        "scores.json",
        "translations/test.txt",
    ] {
        assert!(
            fs::read(one.join(file)).expect(file) == fs::read(other.join(file)).expect(file),
            "{file} of {} differs",
            other.display()
        );
    }
}

#[test]
fn one_two_and_four_processes_come_to_the_same() {
    let workspace = Workspace::new();
    workspace.succeed(train("one", ""));
    for processes in ["2", "4"] {
        let said = workspace.succeed(train(processes, &format!("--processes {processes}")));
        assert_eq!(said.matches("training in").count(), 1, "one process tells: {said}");
        assert_same(&workspace.path("one"), &workspace.path(processes), 12);
    }
    // With more processes than micro-batches, some processes have nothing to do.
    let output = workspace.finish(train("6", "--processes 6 --threads 6"));
    assert!(stderr(&output).contains("training.accumulation"), "{}", stderr(&output));
    assert_same(&workspace.path("one"), &workspace.path("6"), 12);
}

#[test]
fn a_run_goes_on_with_another_number_of_processes() {
    let workspace = Workspace::new();
    workspace.succeed(train("whole", "--set training.max_updates=18"));
    workspace.succeed(train("parts", "--set training.max_updates=6 --processes 4"));
    workspace.succeed("resume parts --set training.max_updates=12");
    workspace.succeed("resume parts --set training.max_updates=18 --processes 2");
    assert_same(&workspace.path("whole"), &workspace.path("parts"), 18);
}

/// Returns the ids of the processes that `parent` has started.
fn children(parent: &Child) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default().to_owned();
        let mut fields = fields.split_whitespace();
        let state = fields.next().unwrap_or("Z").to_owned();
        state != "Z" && fields.next() == Some(parent.id().to_string().as_str())
    };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<u32> = pids.filter(is_child).collect();
    pids.sort_unstable();
    pids
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !matches!(stat.rsplit(") ").next().and_then(|rest| rest.chars().next()), None | Some('Z'))
}

/// Waits for the end of `child` and of the processes `others`, which it has started; returns the
/// output of `child`. The time is not checked, because training and saving depend on the machine.
fn ended(child: Child, others: &[u32]) -> Output {
    let output = child.wait_with_output().expect("the binary ends");
    wait_for("the end of all processes", || !others.iter().any(|&pid| is_alive(pid)));
    output
}

/// Waits as [`ended`] does. It is called after one of the processes was killed, and checks that the
/// remaining processes end within [`SOON`].
fn ended_soon(child: Child, others: &[u32]) -> Output {
    let began = Instant::now();
    let output = ended(child, others);
    let took = began.elapsed();
    assert!(took < SOON, "{took:?}: {}", stderr(&output));
    println!("the others ended after {took:?}");
    output
}

/// Returns true if the last checkpoint of `run` is that of its last update, `step`.
fn is_trained(run: &Path, step: u32) -> bool {
    let last = fs::read_to_string(run.join("checkpoints/last")).unwrap_or_default();
    last.trim() == format!("step-{step:08}")
}

/// Kills one process of three, `kills` times. Checks that the other processes end, that one of them
/// reports the reason, and that the resumed run equals an undisturbed run.
fn kill_again_and_again(kills: usize) {
    let workspace = Workspace::new();
    let long = "--set training.max_updates=80 --set training.checkpoint_every=5";
    workspace.succeed(train("whole", long));
    let (mut random, mut done, mut runs) = (Random(20_260_101), 0, 0);
    let mut of_each = [0; 3];
    while done < kills {
        let run = format!("run-{runs}");
        loop {
            let arguments = format!("{} --resume --processes 3", train(&run, long));
            let mut child = workspace.spawn(&arguments);
            wait_for("the other processes", || {
                children(&child).len() == 2 || child.try_wait().expect("status").is_some()
            });
            let others = children(&child);
            let moment = Instant::now() + Duration::from_millis(random.below(1_000));
            while Instant::now() < moment && child.try_wait().expect("status").is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let victim = random.below(3) as usize;
            if done >= kills || child.try_wait().expect("status").is_some() {
                let output = ended(child, &others);
                assert!(output.status.success(), "{}", stderr(&output));
                break;
            }
            let is_killed = match victim {
                0 => child.kill().is_ok(),
                other => others.get(other - 1).is_some_and(|pid| {
                    let kill = Command::new("kill").args(["-KILL", &pid.to_string()]).output();
                    kill.is_ok_and(|output| output.status.success())
                }),
            };
            let output = ended_soon(child, &others);
            if output.status.success() {
                break;
            }
            assert!(is_killed, "{}", stderr(&output));
            let said = stderr(&output);
            let errors = said.lines().filter(|line| line.starts_with("error:")).count();
            // Process 0 translates the test set alone, after the other processes have ended. If it
            // is killed then, no process is left to report it.
            if errors > 0 || victim > 0 || !is_trained(&workspace.path(&run), 80) {
                assert_eq!(errors, 1, "killed {victim}: {said}");
                assert!(said.contains(&format!("process {victim} ")), "killed {victim}: {said}");
            }
            if victim > 0 {
                assert_eq!(output.status.code(), Some(2), "{said}");
            }
            (done, of_each[victim]) = (done + 1, of_each[victim] + 1);
        }
        assert_same(&workspace.path("whole"), &workspace.path(&run), 80);
        runs += 1;
    }
    println!("{done} kills over {runs} runs; of each process {of_each:?}");
}

#[test]
fn whichever_process_is_killed_the_others_end_and_the_run_goes_on() {
    kill_again_and_again(4);
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn fifty_kills_change_nothing() {
    kill_again_and_again(50);
}

#[test]
fn a_signal_to_any_process_stops_all_of_them() {
    let workspace = Workspace::new();
    let updates = "--set training.max_updates=150";
    workspace.succeed(train("whole", updates));
    for (run, to_first) in [("first", true), ("other", false)] {
        let child = workspace.spawn(train(run, &format!("{updates} --processes 2")));
        workspace.wait_for_checkpoint(run);
        let others = children(&child);
        if to_first {
            signal("-INT", &child);
        } else {
            let other = others[0].to_string();
            assert!(Command::new("kill").args(["-TERM", &other]).status().expect("kill").success());
        }
        let output = ended(child, &others);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(130), "{said}");
        assert_eq!(said.matches("interrupted at step").count(), 1, "{said}");
        assert!(!said.contains("error:"), "{said}");
        workspace.succeed(format!("resume {run}"));
        assert_same(&workspace.path("whole"), &workspace.path(run), 150);
    }
}

#[test]
fn a_full_disk_of_the_first_process_is_told_once_and_loses_nothing() {
    let workspace = Workspace::new();
    let settings = SEVERAL;
    let size = "--set model.d_model=64 --set model.d_ff=256";
    let output = workspace.script(
        &["sh"],
        &format!(
            "ulimit -f 1600; \"$0\" train tiny.toml --run run --processes 2 {settings} {size}"
        ),
    );
    refused(&output, &["File too large", "could not be saved elsewhere either"]);
    workspace.succeed("resume run --processes 2");
    workspace.checkpoints_are_whole("run");
    // If another folder has room, the optimizer's moments of both processes are saved there.
    workspace.succeed(train("whole", "--set training.max_updates=40"));
    let text = format!(
        "\"$0\" train tiny.toml --run lost --processes 2 --rescue kept {settings} \
         --set training.max_updates=40 --set training.validate_every=20 & \
         taper=$!; while [ ! -f lost/metrics.jsonl ]; do sleep 0.001; done; \
         rm -rf lost/checkpoints; : > lost/checkpoints; wait $taper"
    );
    let output = workspace.script(&["sh"], &text);
    if output.status.success() {
        return; // The training was faster than the shell.
    }
    refused(&output, &["nothing is lost", "taper resume"]);
    workspace.succeed("resume kept/lost --processes 3");
}

/// Starts two processes as a launcher on two machines would; returns their outputs.
fn started(workspace: &Workspace, commands: [Command; 2]) -> [Output; 2] {
    started_at("127.0.0.1", workspace, commands)
}

/// Starts two processes as [`started`] does; they connect at the address `host`.
fn started_at(host: &str, workspace: &Workspace, commands: [Command; 2]) -> [Output; 2] {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it").port();
    let children: Vec<Child> = commands
        .into_iter()
        .enumerate()
        .map(|(rank, mut command)| {
            command
                .current_dir(workspace.path(""))
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", "2")
                .env("MASTER_ADDR", host)
                .env("MASTER_PORT", port.to_string())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the binary starts")
        })
        .collect();
    let mut outputs =
        children.into_iter().map(|child| child.wait_with_output().expect("the binary ends"));
    [outputs.next().expect("the first"), outputs.next().expect("the second")]
}

/// Checks that both processes end with exit code 2, and that only the process `speaker` reports the
/// error, in one line.
fn both_refused(outputs: &[Output; 2], speaker: usize, fragments: &[&str]) {
    refused(&outputs[speaker], fragments);
    let other = &outputs[1 - speaker];
    assert_eq!(other.status.code(), Some(2), "{}", stderr(other));
    assert!(!stderr(other).contains("error:"), "{}", stderr(other));
}

#[test]
fn processes_that_are_not_alike_are_told_so() {
    let workspace = Workspace::new();
    let command = |arguments: &str| workspace.command(train("run", arguments));
    let outputs = started(&workspace, [command(""), command("--set training.clip_norm=0.5")]);
    both_refused(&outputs, 0, &["process 1", "another recipe", "training.clip_norm is 0.5"]);
    // One process runs another build of the program.
    let other = workspace.path("other");
    fs::copy(env!("CARGO_BIN_EXE_taper"), &other).expect("copy");
    let mut bytes = fs::read(&other).expect("read");
    bytes.push(0);
    fs::write(&other, bytes).expect("write");
    let mut changed = Command::new(&other);
    changed.args(words(&train("run", "")));
    let outputs = started(&workspace, [command(""), changed]);
    both_refused(&outputs, 0, &["process 1", "another version of this program"]);
    // One process cannot read the corpus.
    let blind = format!("train tiny.toml {SEVERAL} --set data.dir=absent --run own");
    let outputs = started(&workspace, [command(""), workspace.command(&blind)]);
    assert!(outputs.iter().all(|output| output.status.code() == Some(2)));
    let errors: Vec<String> =
        outputs.iter().map(stderr).filter(|said| said.contains("error:")).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(!workspace.path("run").exists(), "nothing has begun");
}

#[test]
fn processes_that_strangers_could_call_need_a_key() {
    let workspace = Workspace::new();
    let commands = || ["near", "far"].map(|run| workspace.command(train(run, "")));
    for output in started_at("0.0.0.0", &workspace, commands()) {
        refused(&output, &["TAPER_KEY", "0.0.0.0"]);
    }
    assert!(!workspace.path("near").exists(), "nothing has begun");
    let with_key = commands().map(|mut command| {
        command.env("TAPER_KEY", "secret");
        command
    });
    for output in started_at("0.0.0.0", &workspace, with_key) {
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

#[test]
fn machines_need_not_share_a_folder() {
    let workspace = Workspace::new();
    workspace.succeed(train("alone", ""));
    // Each process has its own run folder, as if on its own disk.
    let outputs = started(&workspace, ["near", "far"].map(|run| workspace.command(train(run, ""))));
    for output in &outputs {
        assert!(output.status.success(), "{}", stderr(output));
    }
    assert_same(&workspace.path("alone"), &workspace.path("near"), 12);
    assert!(!workspace.path("far/checkpoints").exists(), "the first process writes");
    // The second machine has another training text.
    let line = "red cat sees two\n";
    fs::create_dir(workspace.path("changed")).expect("a folder");
    for entry in fs::read_dir(workspace.path("data")).expect("data").flatten() {
        let mut text = fs::read_to_string(entry.path()).expect("text");
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("train") {
            text.push_str(line);
        }
        fs::write(workspace.path("changed").join(name), text).expect("write");
    }
    let other = train("far2", "--set data.dir=changed");
    let outputs =
        started(&workspace, [workspace.command(train("near2", "")), workspace.command(other)]);
    both_refused(&outputs, 0, &["process 1", "another training text"]);
}
