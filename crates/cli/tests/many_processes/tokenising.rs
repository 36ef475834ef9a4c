//! Tests of tokenising by several processes: the bytes must be the same for any number of
//! processes, and finished work must be kept after a process was killed. Each file of the text is
//! tokenised into one shard.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Workspace, mentions, refused, stderr, wait_for};
use crate::{children, ended_soon, train};

/// Divides the training text among `files` files, the last of which may be empty, and writes a
/// pattern for their names to the recipe.
fn divide(workspace: &Workspace, files: usize) {
    for side in ["aa", "bb"] {
        let text = workspace.read(&format!("data/train.{side}"));
        let lines: Vec<&str> = text.lines().collect();
        let of_file = lines.len().div_ceil(files - 1);
        for file in 0..files {
            let own = lines.chunks(of_file).nth(file).unwrap_or_default();
            let own: String = own.iter().map(|line| format!("{line}\n")).collect();
            workspace.write(&format!("data/part.{file:02}.{side}"), own);
        }
    }
    let tiny = workspace.read("tiny.toml");
    let names = "dir = \"data\"\ntrain = \"part.*\"\nvalidation = \"val\"\n";
    workspace.write("tiny.toml", tiny.replace("dir = \"data\"\n", names));
}

/// Checks that two runs have prepared the same data.
fn assert_same_cache(one: &Path, other: &Path) {
    for file in ["cache/part.bin", "cache/val.bin", "data.json", "tokenizer.json"] {
        let read = |run: &Path| fs::read(run.join(file)).expect(file);
        assert!(read(one) == read(other), "{file} of {} differs", other.display());
    }
    assert!(!other.join("cache/part.shards").exists(), "shards are left");
}

#[test]
fn one_two_and_four_processes_tokenise_the_same() {
    let workspace = Workspace::new();
    divide(&workspace, 11);
    mentions(workspace.succeed(train("one", "")), &["part: 11 files, from ", "part.10.aa;"]);
    for processes in ["2", "4"] {
        workspace.succeed(train(processes, &format!("--processes {processes}")));
        assert_same_cache(&workspace.path("one"), &workspace.path(processes));
    }
    // The same text in one file trains the same model.
    let plain = Workspace::new();
    plain.succeed(train("whole", "--processes 3"));
    let one = fs::read(workspace.path("one/checkpoints/last")).expect("last");
    assert_eq!(one, fs::read(plain.path("whole/checkpoints/last")).expect("last"));
    let weights = "checkpoints/step-00000012/model.safetensors";
    let read = |path: PathBuf| fs::read(path.join(weights)).expect("weights");
    assert!(read(workspace.path("one")) == read(plain.path("whole")));
}

#[test]
fn running_text_is_tokenised_by_all() {
    let workspace = Workspace::of_text();
    let text = workspace.read("data/text.txt");
    for (number, line) in text.lines().enumerate().take(20) {
        workspace.write(&format!("data/text-{number:02}.txt"), format!("{line}\n").repeat(20));
    }
    let recipe = workspace.read("tiny.toml");
    workspace.write("tiny.toml", recipe.replace("train = \"text\"", "train = \"text-*\""));
    workspace.succeed("train tiny.toml --run one");
    workspace.succeed("train tiny.toml --run two --processes 2");
    for file in ["cache/text.bin", "cache/text.held-out.bin", "data.json"] {
        let read = |run: &str| fs::read(workspace.path(run).join(file)).expect(file);
        assert!(read("one") == read("two"), "{file}");
    }
}

#[test]
fn what_is_wrong_with_a_file_is_told_once() {
    let workspace = Workspace::new();
    divide(&workspace, 11);
    // Whichever process reads the bad file, the error is the same.
    for (file, shard) in [("part.03.aa", 3), ("part.04.aa", 4)] {
        let path = format!("data/{file}");
        let good = fs::read(workspace.path(&path)).expect("text");
        workspace.write(&path, [&good[..], b"one more\n"].concat());
        // The tokenizer is trained only on pairs before the bad file.
        let few = "--set data.tokenizer.max_pairs=20 --processes 2";
        let output = workspace.run(train("run", few));
        refused(&output, &[file, "lines but", &format!("part.{shard:02}.bb")]);
        assert!(!workspace.path("run").exists(), "nothing has begun");
        workspace.write(&path, good);
    }
}

#[test]
fn a_process_that_is_killed_while_it_tokenises_loses_no_shard() {
    let workspace = Workspace::new();
    divide(&workspace, 11);
    // Repeats each pair, so that tokenising takes long enough.
    for side in ["aa", "bb"] {
        for file in 0..10 {
            let path = format!("data/part.{file:02}.{side}");
            let text = workspace.read(&path);
            workspace.write(&path, text.repeat(400));
        }
    }
    let settings = "--set training.max_updates=2 --set training.validate_every=0 \
         --set data.batching.max_tokens=200 --threads 3";
    workspace.succeed(train("whole", settings));
    let mut kept = 0;
    for victim in 0..3_usize {
        let run = format!("run-{victim}");
        let three = format!("{} --processes 3", train(&run, settings));
        let mut child = workspace.spawn(&three);
        let folder = workspace.path(&run).join("cache/part.shards");
        let made = || -> Vec<PathBuf> {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let paths = entries.map(|entry| entry.path());
            paths.filter(|path| path.extension().is_some_and(|end| end == "bin")).collect()
        };
        wait_for("some shards", || made().len() >= 2 || child.try_wait().expect("one").is_some());
        let others = children(&child);
        if victim == 0 {
            child.kill().expect("killed");
        } else if let Some(pid) = others.get(victim - 1) {
            Command::new("kill").args(["-KILL", &pid.to_string()]).output().expect("killed");
        }
        let output = ended_soon(child, &others);
        if !output.status.success() && folder.is_dir() {
            let errors = stderr(&output).lines().filter(|line| line.starts_with("error:")).count();
            assert_eq!(errors, 1, "{}", stderr(&output));
            kept += made().len();
            // The run is resumed with another number of processes.
            workspace.finish(format!("resume {run} --processes 2 --threads 2"));
        }
        assert_same_cache(&workspace.path("whole"), &workspace.path(&run));
    }
    assert!(kept >= 2, "no process was killed while it tokenised");
}

#[test]
fn a_resumed_run_sees_the_files_that_it_began_with() {
    let workspace = Workspace::new();
    divide(&workspace, 5);
    workspace.succeed(train("whole", "--set training.max_updates=18"));
    workspace.succeed(train("parts", ""));
    let config = workspace.read("parts/config.toml");
    assert!(config.contains("part.04.bb") && !config.contains('*'), "{config}");
    // Adds a file that the pattern matches too.
    for side in ["aa", "bb"] {
        let path = |name: &str| workspace.path(&format!("data/{name}.{side}"));
        fs::copy(path("part.00"), path("part.99")).expect("copied");
    }
    let more = "--set training.max_updates=18";
    let output = workspace.run(train("parts", &format!("{more} --resume")));
    refused(&output, &["the text is not what the run", "part.99.aa"]);
    workspace.succeed(format!("resume parts --processes 2 {more}"));
    let same = |run: &str| workspace.path(run);
    assert_same_cache(&same("whole"), &same("parts"));
    workspace.same_end("whole", "parts", 18);
}

#[test]
fn a_pattern_and_the_same_files_in_a_list_are_one_corpus() {
    let workspace = Workspace::new();
    divide(&workspace, 4);
    workspace.succeed(train("pattern", ""));
    let side = |side: &str| -> String {
        let names: Vec<String> = (0..4).map(|n| format!("'data/part.{n:02}.{side}'")).collect();
        format!("[{}]", names.join(","))
    };
    let list = format!("data.train={{source={},target={}}}", side("aa"), side("bb"));
    let more = format!("--set {list} --set data.test=['test'] --processes 2");
    workspace.succeed(train("list", &more));
    assert_same_cache(&workspace.path("pattern"), &workspace.path("list"));
}
