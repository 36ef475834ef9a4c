//! Kills real training processes at random moments, mostly while they write checkpoints, and
//! resumes them. The finished run folder must equal that of an undisturbed run, byte for byte.
//!
//! A few kills run with the other tests; the full harness is
//! `cargo test --release -p taper --test kill -- --ignored --nocapture`.
#![cfg(unix)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::{Random, Workspace, metrics, set};
use sha2::{Digest, Sha256};

/// Checkpoints are frequent, so that many kills happen while one is written. Every part of the
/// training state is used.
const SETTINGS: &str = "--set training.max_updates=60 --set training.checkpoint_every=2 \
     --set training.validate_every=9 --set training.ema_decay=0.9 --set training.accumulation=2";

/// Setting with which the first epochs train both directions.
const BIDIRECTIONAL: &str = "--set data.bidirectional_epochs=3";

#[test]
fn a_run_that_is_killed_a_few_times_ends_like_any_other() {
    harness(&Workspace::new(), &format!("{SETTINGS} {BIDIRECTIONAL}"), 8);
}

#[test]
fn so_does_a_language_model() {
    harness(&Workspace::of_text(), SETTINGS, 4);
}

/// Two directions are mixed by a temperature, and pairs are changed at random.
#[test]
fn so_does_a_run_of_two_directions() {
    let settings = "data.train=[{stem='train',from='aa',to='bb'},{stem='val',from='bb',to='aa'}] \
         data.test=[{stem='test',from='aa',to='bb'}] data.languages.temperature=5 \
         data.modifiers.typos=0.3 data.modifiers.merged_sentences=0.2";
    harness(&Workspace::new(), &format!("{SETTINGS} {}", set(settings)), 4);
}

#[test]
#[ignore = "minutes; the full harness, see the head of this file"]
fn runs_that_are_killed_hundreds_of_times_end_like_any_other() {
    harness(&Workspace::new(), &format!("{SETTINGS} {BIDIRECTIONAL}"), 300);
}

/// Kills `wanted` processes, in as many runs as necessary, and compares each finished run with an
/// undisturbed run.
fn harness(workspace: &Workspace, settings: &str, wanted: usize) {
    workspace.succeed(format!("train tiny.toml --run whole {settings}"));
    let expected = files(&workspace.path("whole"));
    assert!(expected.len() > 12, "{:?}", expected.keys());
    let mut random = Random(20_260_101);
    let (mut kills, mut runs) = (BTreeMap::<Moment, usize>::new(), 0);
    while kills.values().sum::<usize>() < wanted {
        let run = format!("run-{runs}");
        let mut life = 0;
        loop {
            life += 1;
            assert!(life < 1000, "the run makes no progress");
            let left = wanted - kills.values().sum::<usize>();
            let Some(moment) = live(workspace, settings, &run, &mut random, left > 0) else {
                break;
            };
            *kills.entry(moment).or_default() += 1;
            last_checkpoint_is_whole(&workspace.path(&run));
        }
        let found = files(&workspace.path(&run));
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>(),
            "files of {run}"
        );
        for (name, bytes) in &expected {
            assert!(found[name] == *bytes, "{name} of {run} differs");
        }
        assert_eq!(metrics(&workspace.path(&run)), metrics(&workspace.path("whole")));
        fs::remove_dir_all(workspace.path(&run)).expect("remove");
        runs += 1;
    }
    println!("{} kills over {runs} runs: {kills:?}", kills.values().sum::<usize>());
}

/// Work of a process when it was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    /// The process had not trained yet.
    Preparing,
    /// The process was training between two checkpoints.
    Training,
    /// The process was writing a checkpoint or a pointer to one.
    Saving,
}

/// Runs one process. If `kill` is true, kills it at a random moment. Returns the moment; `None` if
/// the process has ended by itself.
///
/// If the run has a checkpoint, a quarter of the processes are killed at any moment, and the rest
/// while they save. If it has none, most processes are killed while they prepare tokenizer and
/// text.
fn live(
    workspace: &Workspace,
    settings: &str,
    run: &str,
    random: &mut Random,
    kill: bool,
) -> Option<Moment> {
    let mut child = workspace
        .command(format!("train tiny.toml --run {run} --resume {settings}"))
        .stdout(Stdio::null())
        .stderr(fs::File::create(workspace.path("errors")).expect("a file"))
        .spawn()
        .expect("the binary starts");
    let folder = workspace.path(run);
    let ended = if !kill {
        Some(child.wait().expect("the binary ends"))
    } else if !folder.join("checkpoints/last").exists() && random.below(4) > 0 {
        // Kills the process while it prepares tokenizer and text, or just after.
        let prepared = folder.join("data.json");
        let begun =
            wait(&mut child, Duration::from_micros(random.below(200_000)), || prepared.exists());
        begun.or_else(|| wait(&mut child, Duration::from_micros(random.below(5_000)), || false))
    } else if random.below(4) == 0 {
        // Kills the process at any moment, including its first milliseconds.
        wait(&mut child, Duration::from_micros(random.below(150_000)), || false)
    } else {
        // Kills the process while it writes its first, second, third or fourth checkpoint.
        let checkpoints = folder.join("checkpoints");
        for _ in 0..random.below(4) {
            wait(&mut child, Duration::from_secs(60), || writes(&checkpoints));
            wait(&mut child, Duration::from_secs(60), || !writes(&checkpoints));
        }
        wait(&mut child, Duration::from_secs(60), || writes(&checkpoints));
        wait(&mut child, Duration::from_micros(random.below(1_500)), || false)
    };
    let status = ended.unwrap_or_else(|| {
        child.kill().expect("kill");
        child.wait().expect("the binary ends")
    });
    if status.success() {
        return None;
    }
    let errors = fs::read_to_string(workspace.path("errors")).unwrap_or_default();
    assert_eq!(status.signal(), Some(9), "it failed by itself: {status}, {errors}");
    Some(match folder.join("checkpoints") {
        checkpoints if writes(&checkpoints) => Moment::Saving,
        checkpoints if checkpoints.join("last").exists() => Moment::Training,
        _ => Moment::Preparing,
    })
}

/// Waits until `condition` is true, the process ends or the time `limit` is over. Returns the exit
/// status if the process has ended.
fn wait(child: &mut Child, limit: Duration, condition: impl Fn() -> bool) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline && !condition() {
        if let Some(status) = child.try_wait().expect("status") {
            return Some(status);
        }
    }
    None
}

/// Returns true if a checkpoint or a pointer to a checkpoint is being written.
fn writes(checkpoints: &Path) -> bool {
    fs::read_dir(checkpoints).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().as_encoded_bytes().first() == Some(&b'.'))
    })
}

/// Checks that the pointer `last` names an existing checkpoint, and that the checkpoint's files
/// have the hashes in its state. While a checkpoint is being replaced, it has the name
/// `.NAME.replaced`.
fn last_checkpoint_is_whole(run: &Path) {
    let checkpoints = run.join("checkpoints");
    let Ok(name) = fs::read_to_string(checkpoints.join("last")) else { return };
    let name = name.trim();
    let path = [name.to_owned(), format!(".{name}.replaced")]
        .map(|name| checkpoints.join(name))
        .into_iter()
        .find(|path| path.is_dir());
    let path = path.unwrap_or_else(|| panic!("{name} is gone"));
    let state: serde_json::Value =
        serde_json::from_slice(&fs::read(path.join("state.json")).expect("state")).expect("JSON");
    let entries = state["files"].as_object().expect("files");
    assert_eq!(entries.len(), 2);
    for (file, entry) in entries {
        let hash: String = Sha256::digest(fs::read(path.join(file)).expect("a file"))
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(entry["sha256"], hash, "{file} of {}", path.display());
    }
}

/// Returns every file of a run by its path, without times.
fn files(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    collect(run, run, &mut found);
    // `metrics.jsonl` is compared separately, `run.lock` is empty, `commands.jsonl` has the
    // commands that were called, and the folder `text` has times of files.
    for timed in ["metrics.jsonl", "run.lock", "commands.jsonl"] {
        assert!(found.remove(timed).is_some(), "{timed}");
    }
    found.retain(|name, _| !name.starts_with("text/"));
    for (_, bytes) in found.iter_mut().filter(|(name, _)| name.ends_with("state.json")) {
        let mut state: serde_json::Value = serde_json::from_slice(bytes).expect("JSON");
        state["training_seconds"].take();
        state["window"]["seconds"].take();
        state["checksum"].take();
        *bytes = state.to_string().into_bytes();
    }
    found
}

fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            collect(root, &path, found);
        } else {
            let name = path.strip_prefix(root).expect("below").display().to_string();
            found.insert(name, fs::read(&path).expect("a file"));
        }
    }
}
