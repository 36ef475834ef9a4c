//! A run survives what happens around the process: a full disk, a folder that
//! is taken away, a second process, impatience, changed text and recipes.

mod common;

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Workspace, metrics, refused, stderr, stdout};

/// Long enough that a test can act while it trains.
const LONG: [&str; 4] = ["--set", "training.max_updates=100000", "--set", "training.validate_every=20"];

/// Starts the binary with its output kept from the terminal.
fn spawn(workspace: &Workspace, arguments: &[&str]) -> Child {
    workspace.command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts")
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn signal(name: &str, child: &Child) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill").success());
}

/// Demands that every checkpoint of the run that has its name is whole.
fn all_checkpoints_are_whole(workspace: &Workspace, run: &str) -> usize {
    let checkpoints = workspace.path(run).join("checkpoints");
    let names: Vec<String> = fs::read_dir(checkpoints)
        .expect("checkpoints")
        .map(|entry| entry.expect("entry").file_name().into_string().expect("a name"))
        .filter(|name| name.starts_with("step-"))
        .collect();
    for name in &names {
        let output = workspace.run_with_input(&["translate", run, "--checkpoint", name], b"red cat\n");
        assert!(output.status.success(), "{name}: {}", stderr(&output));
    }
    names.len()
}

#[cfg(unix)]
#[test]
fn two_processes_do_not_train_in_one_folder() {
    let workspace = Workspace::new();
    let mut first = spawn(&workspace, &[&["train", "tiny.toml", "--run", "run"], &LONG[..]].concat());
    let last = workspace.path("run/checkpoints/last");
    wait_for("a checkpoint", || last.is_file());
    workspace.fail(&["resume", "run"], &["run is in use", &format!("process {}", first.id())]);
    // Reading is free to all.
    assert!(workspace.run_with_input(&["translate", "run"], b"red cat\n").status.success());

    // A killed process leaves its id, but no lock.
    signal("-KILL", &first);
    let pid = first.id();
    first.wait().expect("ended");
    let stopped = workspace.run(&["resume", "run", "--set", "training.max_updates=1"]);
    assert!(stopped.status.success(), "{}", stderr(&stopped));
    assert!(stderr(&stopped).contains(&format!("process {pid}")), "{}", stderr(&stopped));
    assert!(!stderr(&workspace.run(&["resume", "run", "--set", "training.max_updates=1"])).contains("process"));
}

#[cfg(unix)]
#[test]
fn two_signals_leave_whole_checkpoints() {
    let workspace = Workspace::new();
    let often = ["--set", "training.checkpoint_every=10", "--set", "data.batching.max_tokens=20000"];
    let mut child = spawn(&workspace, &[&["train", "tiny.toml", "--run", "run"], &LONG[..], &often].concat());
    let last = workspace.path("run/checkpoints/last");
    wait_for("a checkpoint", || last.is_file());
    signal("-INT", &child);
    // Sooner, it would be taken for the same.
    std::thread::sleep(Duration::from_millis(600));
    signal("-TERM", &child);
    assert_eq!(child.wait().expect("ended").code(), Some(130));
    assert!(all_checkpoints_are_whole(&workspace, "run") > 0);
    workspace.succeed(&["resume", "run", "--set", "training.max_updates=1"]);
}

/// As `timeout` and closed terminals send them.
#[cfg(unix)]
#[test]
fn signals_at_once_are_one_and_lose_no_update() {
    let workspace = Workspace::new();
    let child = spawn(&workspace, &[&["train", "tiny.toml", "--run", "run"], &LONG[..]].concat());
    let last = workspace.path("run/checkpoints/last");
    wait_for("a checkpoint", || last.is_file());
    signal("-HUP", &child);
    signal("-TERM", &child);
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted at step"), "{}", stderr(&output));
}

/// As `nohup` starts it.
#[cfg(unix)]
#[test]
fn a_run_started_to_outlive_its_terminal_does() {
    let workspace = Workspace::new();
    let text = format!("trap '' HUP; exec \"$0\" train tiny.toml --run run {}", LONG.join(" "));
    let mut command = Command::new("sh");
    command.args(["-c", &text, env!("CARGO_BIN_EXE_taper")]).current_dir(workspace.path(""));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a shell");
    let last = workspace.path("run/checkpoints/last");
    wait_for("a checkpoint", || last.is_file());
    signal("-HUP", &child);
    // Asked to stop, it would save one more checkpoint.
    for _ in 0..3 {
        let before = fs::read_to_string(&last).expect("a pointer");
        wait_for("another checkpoint", || {
            assert!(child.try_wait().expect("a process").is_none(), "it ended");
            fs::read_to_string(&last).is_ok_and(|now| now != before)
        });
    }
    signal("-TERM", &child);
    assert_eq!(child.wait().expect("ended").code(), Some(130));
}

/// Runs a shell script in the workspace, with the binary as `$0`.
#[cfg(unix)]
fn script(workspace: &Workspace, shell: &[&str], text: &str) -> Output {
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]).args(["-c", text, env!("CARGO_BIN_EXE_taper")]);
    command.current_dir(workspace.path("")).env("TMPDIR", workspace.path("")).output().expect("a shell")
}

/// Resumes `rescued`, and demands that its end is that of `whole`, which nothing happened to.
fn equals_an_undisturbed_run(workspace: &Workspace, rescued: &str, whole: &str) {
    workspace.succeed(&["resume", rescued]);
    let (whole, rescued) = (workspace.path(whole), workspace.path(rescued));
    assert_eq!(metrics(&whole), metrics(&rescued));
    for file in ["model.safetensors", "optimizer.safetensors"] {
        let place = format!("checkpoints/step-00000600/{file}");
        assert_eq!(fs::read(whole.join(&place)).expect("whole"), fs::read(rescued.join(&place)).expect("rescued"), "{file} differs");
    }
}

/// No file may grow beyond a limit that the optimizer's state exceeds: as with a disk quota.
#[cfg(unix)]
#[test]
fn a_checkpoint_that_does_not_fit_fails_and_leaves_nothing_behind() {
    let workspace = Workspace::new();
    let size = ["--set", "model.d_model=64", "--set", "model.d_ff=256"].join(" ");
    let output = script(&workspace, &["sh"], &format!("trap '' XFSZ; ulimit -f 1600; \"$0\" train tiny.toml --run run {size}"));
    refused(&output, &["optimizer.safetensors", "File too large", "could not be saved elsewhere either", "--rescue"]);
    let left: Vec<_> = fs::read_dir(workspace.path("run/checkpoints")).expect("checkpoints").collect();
    assert!(left.is_empty(), "{left:?}");
    // Nothing but the limit was wrong.
    workspace.succeed(&["resume", "run"]);
    assert!(all_checkpoints_are_whole(&workspace, "run") > 0);
}

/// A real file system of a few MiB, filled by somebody else while training goes on. Skipped where the system lets this
/// user mount nothing, not even in a name space of their own.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_loses_nothing() {
    let workspace = Workspace::new();
    if !Command::new("unshare").args(["-rm", "true"]).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: this system allows no mount");
        return;
    }
    fs::create_dir(workspace.path("disk")).expect("a mount point");
    let settings = ["--set", "training.max_updates=600", "--set", "training.validate_every=20"];
    workspace.succeed(&[&["train", "tiny.toml", "--run", "whole"], &settings[..]].concat());
    // At least one checkpoint is there when the disk fills.
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
    let output = script(&workspace, &["unshare", "-rm", "sh"], &text.replace("SETTINGS", &settings.join(" ")));
    refused(&output, &["No space left on device", "nothing is lost: the state after step", "taper-rescue/run", "taper resume"]);
    assert!(all_checkpoints_are_whole(&workspace, "kept") > 0);
    // It is still known what text it was trained on.
    assert!(workspace.path("taper-rescue/run/text/train.json").is_file());
    equals_an_undisturbed_run(&workspace, "taper-rescue/run", "whole");
    // What was on the disk is a whole run too, as of its last checkpoint.
    equals_an_undisturbed_run(&workspace, "kept", "whole");
}

/// Too small a disk is refused before the first update.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_too_small_is_refused_before_training() {
    let workspace = Workspace::new();
    if !Command::new("unshare").args(["-rm", "true"]).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: this system allows no mount");
        return;
    }
    fs::create_dir(workspace.path("disk")).expect("a mount point");
    let text = "mount -t tmpfs -o size=1m tmpfs disk && \"$0\" train tiny.toml --run disk/run";
    let output = script(&workspace, &["unshare", "-rm", "sh"], text);
    refused(&output, &["free", "training.keep_last", "--run"]);
    // A disk that may be read only.
    let text = "mount -t tmpfs -o ro tmpfs disk && \"$0\" train tiny.toml --run disk/run";
    refused(&script(&workspace, &["unshare", "-rm", "sh"], text), &["cannot make disk/run", "Read-only file system"]);
}

#[cfg(unix)]
#[test]
fn a_run_folder_that_is_removed_is_saved_elsewhere() {
    let workspace = Workspace::new();
    let mut command = workspace.command(&[&["train", "tiny.toml", "--run", "run", "--rescue", "safe"], &LONG[..]].concat());
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let run = workspace.path("run");
    wait_for("a checkpoint", || run.join("checkpoints/last").is_file());
    fs::rename(&run, workspace.path("moved")).expect("move");
    let output = child.wait_with_output().expect("ended");
    refused(&output, &["run/checkpoints", "nothing is lost", "safe/run"]);
    assert!(!run.exists());
    let record = metrics(&workspace.path("safe/run"));
    assert!(record.iter().any(|line| line["step"] == 1 || line["step"] == 4), "the record begins with the run: {record:?}");
    let step = record.last().expect("lines")["step"].as_u64().expect("step") + 1;
    workspace.succeed(&["resume", "safe/run", "--set", &format!("training.max_updates={step}")]);
}

/// Nobody reads what is printed: no reason to stop, least of all in silence.
#[test]
fn a_reader_that_goes_away_ends_no_training() {
    let workspace = Workspace::new();
    workspace.train("whole");
    for json in [&[][..], &["--json"]] {
        let mut command = workspace.command(&[&["train", "tiny.toml", "--run", "run"], json].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("ended");
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stderr(&output).matches("training goes on").count(), 1, "{}", stderr(&output));
        assert_eq!(metrics(&workspace.path("run")), metrics(&workspace.path("whole")));
        assert!(workspace.path("run/scores.json").is_file());
        fs::remove_dir_all(workspace.path("run")).expect("remove");
    }
}

#[cfg(unix)]
#[test]
fn a_signal_before_the_first_update_says_how_to_go_on() {
    let workspace = Workspace::new();
    let text = ["aa", "bb"]
        .map(|side| (format!("data/train.{side}"), fs::read_to_string(workspace.path(&format!("data/train.{side}"))).expect("text")));
    for (name, text) in &text {
        workspace.write(name, text.repeat(2000));
    }
    let child = spawn(&workspace, &["train", "tiny.toml", "--run", "run"]);
    let config = workspace.path("run/config.toml");
    wait_for("the configuration", || config.is_file());
    signal("-TERM", &child);
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("continue with: taper resume run"), "{}", stderr(&output));
    assert!(!workspace.path("run/checkpoints").exists());
    for (name, text) in &text {
        workspace.write(name, text);
    }
    workspace.succeed(&["resume", "run", "--accept-changes"]);
    workspace.train("whole");
    assert_eq!(metrics(&workspace.path("run")), metrics(&workspace.path("whole")));
}

#[test]
fn of_processes_that_start_at_once_one_trains() {
    let workspace = Workspace::new();
    workspace.train("whole");
    let start = |_| spawn(&workspace, &["train", "tiny.toml", "--run", "run", "--resume"]);
    let outputs: Vec<Output> =
        (0..6).map(start).collect::<Vec<Child>>().into_iter().map(|child| child.wait_with_output().expect("ended")).collect();
    for output in &outputs {
        let message = stderr(output);
        assert!(output.status.success() || message.contains("is in use") || message.contains("a moment ago"), "{message}");
    }
    assert!(outputs.iter().any(|output| output.status.success()));
    assert_eq!(metrics(&workspace.path("run")), metrics(&workspace.path("whole")));
}

/// The folder of a run may be a link to another disk, and its name need not be text.
#[cfg(unix)]
#[test]
fn a_run_may_lie_behind_a_link_and_have_any_name() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let workspace = Workspace::new();
    fs::create_dir(workspace.path("disk")).expect("folder");
    std::os::unix::fs::symlink("disk", workspace.path("link")).expect("link");
    // What is there is left there where nothing comes of a run.
    workspace.fail(&["train", "tiny.toml", "--run", "link", "--set", "data.tokenizer.vocabulary_size=250"], &["vocabulary_size"]);
    assert!(workspace.path("link").is_symlink());
    assert_eq!(fs::read_dir(workspace.path("disk")).expect("folder").count(), 0);

    let name = OsStr::from_bytes(b"r\xffn");
    let more = ["--set", "training.max_updates=14"];
    for name in [OsStr::new("link"), name] {
        for arguments in [&["train", "tiny.toml", "--run"][..], &["resume"]] {
            let mut command = workspace.command(arguments);
            let output = if arguments.len() == 1 { command.arg(name).args(more).output() } else { command.arg(name).output() };
            let output = output.expect("the binary runs");
            assert!(output.status.success(), "{arguments:?} {}", stderr(&output));
        }
    }
    assert_eq!(metrics(&workspace.path("disk")), metrics(&workspace.path("").join(name)));
}

#[test]
fn a_test_set_that_is_taken_away_costs_no_training() {
    let workspace = Workspace::new();
    let settings = ["--set", "training.max_updates=400", "--set", "training.validate_every=20"];
    let child = spawn(&workspace, &[&["train", "tiny.toml", "--run", "run"], &settings[..]].concat());
    let last = workspace.path("run/checkpoints/last");
    wait_for("a checkpoint", || last.is_file());
    fs::rename(workspace.path("data/test.aa"), workspace.path("kept")).expect("rename");
    refused(&child.wait_with_output().expect("ended"), &["training is complete and saved", "test.aa", "taper resume run"]);
    fs::rename(workspace.path("kept"), workspace.path("data/test.aa")).expect("rename");
    workspace.succeed(&["resume", "run"]);
    assert!(workspace.path("run/scores.json").is_file());
}

#[test]
fn changed_text_and_recipes_are_refused_with_the_differences() {
    let workspace = Workspace::new();
    workspace.train("run");
    let more = ["--set", "training.max_updates=14"];
    let resume = [&["resume", "run"], &more[..]].concat();

    let text = fs::read_to_string(workspace.path("data/train.aa")).expect("text");
    workspace.write("data/train.aa", text.replacen("cat", "dog", 1));
    workspace.fail(&resume, &["train.aa", "trained on so far", "other text of the same", "--accept-changes", "--run"]);
    // Nor does the tokenizer fit any more of a run that did not come to a checkpoint.
    let checkpoints = workspace.path("run/checkpoints");
    fs::rename(&checkpoints, workspace.path("kept")).expect("move");
    workspace.fail(&resume, &["train.aa", "made its tokenizer from", "other text of the same", "--accept-changes", "--run"]);
    fs::rename(workspace.path("kept"), &checkpoints).expect("move back");
    workspace.write("data/train.aa", &text);

    let other = ["--set", "data.batching.max_tokens=100", "--set", "model.embedding_dropout=0.3"];
    let fragments = ["data.batching.max_tokens is 100 but was 200", "model.embedding_dropout is 0.3 but was", "--accept-changes"];
    workspace.fail(&[&resume[..], &other].concat(), &fragments);
    workspace.fail(&[&["train", "tiny.toml", "--run", "run", "--resume"], &other[..]].concat(), &fragments);
    // Nor can what made the tokenizer; how text is cut in training can.
    for change in ["data.tokenizer.vocabulary_size=280", "data.lowercase=true"] {
        let key = change.split('=').next().expect("key");
        workspace.fail(&[&resume[..], &["--set", change, "--accept-changes"]].concat(), &["tokenizer and seed cannot be changed", key]);
    }
    // A seed cannot be changed under way: it is the whole random state.
    workspace.fail(
        &[&resume[..], &["--set", "training.seed=9", "--accept-changes"]].concat(),
        &["tokenizer and seed cannot be changed", "training.seed is 9 but was 1"],
    );

    workspace.write("data/train.aa", text.replacen("cat", "dog", 1));
    workspace.succeed(&[&resume[..], &other, &["--accept-changes"]].concat());
    // What was accepted is the run's own from now on.
    workspace.succeed(&["resume", "run", "--set", "training.max_updates=15"]);
    // Batches so large that the epoch in hand has fewer than were trained on already.
    let larger = ["--set", "data.batching.max_tokens=1000", "--set", "data.tokenizer.dropout=0.1", "--accept-changes"];
    workspace.succeed(&[&["resume", "run", "--set", "training.max_updates=30"], &larger[..]].concat());
}

#[test]
fn an_average_from_before_a_run_went_on_is_not_used() {
    let workspace = Workspace::new();
    workspace.train("run");
    let step = || {
        let report: serde_json::Value = serde_json::from_str(&workspace.succeed(&["evaluate", "run", "--json"])).expect("JSON");
        (report["step"].as_u64().expect("step"), report["checkpoint"].as_str().expect("path").ends_with("averaged"))
    };
    assert_eq!(step(), (12, true));
    workspace.succeed(&["resume", "run", "--set", "training.max_updates=24", "--set", "training.average_last=0"]);
    let (newest, averaged) = step();
    assert!(newest > 12 && !averaged, "{newest}");
    workspace.succeed(&["average", "run"]);
    assert_eq!(step(), (24, true));
    // One that is damaged is said to be, and not passed over for other weights.
    let state = workspace.path("run/checkpoints/averaged/state.json");
    let text = fs::read_to_string(&state).expect("state");
    fs::write(&state, &text[..text.len() / 2]).expect("damage");
    workspace.fail(&["evaluate", "run"], &["averaged", "state.json", "taper average run"]);
}

#[test]
fn a_run_goes_on_from_its_own_checkpoints_only() {
    let workspace = Workspace::new();
    workspace.train("run");
    workspace.train("other");
    let before = fs::read(workspace.path("run/checkpoints/step-00000012/model.safetensors")).expect("weights");
    workspace.fail(&["resume", "run", "--from", "other/checkpoints/step-00000006"], &["--from other", "not a checkpoint of run"]);
    workspace.fail(&["resume", "run", "--from", "step-7"], &["--from step-7", "step-00000006"]);
    assert_eq!(fs::read(workspace.path("run/checkpoints/step-00000012/model.safetensors")).expect("weights"), before);
    workspace.succeed(&["resume", "run", "--from", "run/../run/checkpoints/step-00000006"]);
    assert!(workspace.path("run/checkpoints/left-step-00000012").is_dir());
    // Two courses would be mixed.
    workspace.fail(&["resume", "run", "--from", "left-step-00000012"], &["--from left-step-00000012", "in a copy of the run's folder"]);
    workspace.succeed(&["average", "run"]);
    workspace.fail(&["resume", "run", "--from", "average"], &["--from average", "called step-"]);
}

#[test]
fn what_would_fail_after_the_training_fails_before_it() {
    let workspace = Workspace::new();
    let test = fs::read_to_string(workspace.path("data/test.aa")).expect("text");
    let train = ["train", "tiny.toml", "--run", "run"];
    let shorter = test.split_inclusive('\n').skip(2).collect::<String>();
    for (text, fragments) in [(shorter.as_bytes(), ["test.aa", "10 lines"]), (b"\xff\n", ["test.aa", "UTF-8"])] {
        workspace.write("data/test.aa", text);
        workspace.fail(&train, &fragments);
        assert!(!workspace.path("run").exists());
    }
    workspace.write("data/test.aa", "");
    workspace.write("data/test.bb", "");
    workspace.fail(&train, &["split \"test\" is empty"]);
    let learned = ["--set", "data.test=[]", "--set", "model.positions=learned", "--set", "model.max_positions=5"];
    workspace.fail(&[&train[..], &learned].concat(), &["model.max_positions = 5", "data.cleaning.max_tokens = 4"]);
    // Of the validation set as well, and of what subword sampling may make of a sentence.
    let validation = ["data/val.aa", "data/val.bb"].map(|name| (name, fs::read_to_string(workspace.path(name)).expect("text")));
    for (name, text) in &validation {
        workspace.write(name, format!("{}{text}", "red cat sees ".repeat(30)));
    }
    let positions = "model.max_positions=60";
    workspace.fail(&[&train[..], &learned[..4], &["--set", positions]].concat(), &["the longest sentence has", "model.max_positions = 60"]);
    for (name, text) in &validation {
        workspace.write(name, text);
    }
    let sampling = ["--set", positions, "--set", "data.tokenizer.dropout=0.1"];
    workspace.fail(&[&train[..], &learned[..4], &sampling].concat(), &["sampling", "251 tokens", "data.cleaning.max_tokens = 59"]);
    workspace.fail(&[&train[..], &["--set", "data.test=[]", "--set", "threads=5000"]].concat(), &["threads` = 5000", "at most"]);
    // Memory that no machine has is not even asked for.
    for inner in ["100000000000", "9223372036854775807"] {
        let huge = ["--set", "data.test=[]", "--set", &format!("model.d_ff={inner}")];
        workspace.fail(&[&train[..], &huge].concat(), &["parameters takes", "but may take", "[model]"]);
    }
    let beam = ["--set", "data.test=[]", "--set", "decoding.beam_size=2000000000000000000"];
    workspace.fail(&[&train[..], &beam].concat(), &["decoding.beam_size = 2000000000000000000", "at most 65536"]);
    let vocabulary = ["--set", "data.test=[]", "--set", "data.tokenizer.vocabulary_size=1000000000000"];
    workspace.fail(&[&train[..], &vocabulary].concat(), &["data.tokenizer.vocabulary_size", "at most 4194304"]);
    assert!(!workspace.path("run").exists());
}

#[test]
fn a_run_is_named_by_its_recipe() {
    let workspace = Workspace::new();
    workspace.succeed(&["train", "tiny.toml", "--set", "name=first"]);
    assert!(workspace.path("runs/first/scores.json").is_file());
}

#[test]
fn what_is_watched_must_be_measured() {
    let workspace = Workspace::new();
    let refused = |settings: &[&str], fragments: &[&str]| {
        workspace.fail(&[&["config", "check", "tiny.toml"], settings].concat(), fragments);
        workspace.fail(&[&["train", "tiny.toml", "--run", "run"], settings].concat(), fragments);
        assert!(!workspace.path("run").exists());
    };
    let bleu = ["--set", "training.early_stopping.metric=bleu", "--set", "evaluation.validation_sentences=0"];
    refused(&bleu, &["training.early_stopping.metric = \"bleu\"", "evaluation.validation_sentences"]);
    let blind = ["--set", "training.early_stopping.patience=3", "--set", "data.validation="];
    refused(&blind, &["training.early_stopping.patience = 3", "data.validation"]);
}

#[test]
fn a_score_of_lowercased_data_says_so() {
    let workspace = Workspace::new();
    workspace.succeed(&["train", "tiny.toml", "--run", "run", "--set", "data.lowercase=true"]);
    let scores = fs::read_to_string(workspace.path("run/scores.json")).expect("scores");
    assert!(scores.contains("case:lc") && !scores.contains("case:mixed"), "{scores}");
}

#[test]
fn divergence_ends_training_with_advice_that_works() {
    let workspace = Workspace::new();
    workspace.train("run");
    let wild = ["--set", "training.schedule.learning_rate=1e30", "--set", "training.clip_norm=0", "--set", "training.max_updates=60"];
    let output = workspace.run(&[&["resume", "run"], &wild[..]].concat());
    refused(&output, &["diverged", "8 updates in a row", "first in", "step-00000012", "lower learning rate", "--from"]);
    assert!(stdout(&output).contains("update skipped"), "{}", stdout(&output));
    let skipped: Vec<_> = metrics(&workspace.path("run")).into_iter().filter(|line| line["event"] == "skipped").collect();
    assert_eq!(skipped.len(), 8);
    assert!(skipped.iter().all(|line| line["place"].as_str().is_some_and(|place| place.starts_with("first in"))), "{skipped:?}");
    // As advised.
    let tame = ["--set", "training.schedule.learning_rate=1e-3", "--set", "training.clip_norm=1", "--set", "training.max_updates=20"];
    workspace.succeed(&[&["resume", "run", "--from", "step-00000006"], &tame[..]].concat());
    let record = metrics(&workspace.path("run"));
    assert!(record.iter().all(|line| line["event"] != "skipped"), "the record is that of the run as it is now");
    assert_eq!(record.last().expect("lines")["step"], 20);
}

#[test]
fn a_run_that_was_killed_before_it_began_can_be_begun() {
    let workspace = Workspace::new();
    let run = workspace.path("run");
    fs::create_dir(&run).expect("folder");
    fs::write(run.join("run.lock"), "12345\n").expect("lock");
    fs::write(run.join("config.toml.partial"), "[mod").expect("partial");
    workspace.train("run");
    // Killed while the text was tokenised: a configuration, and a cache that is half written.
    let other = workspace.path("other");
    fs::create_dir_all(other.join("cache")).expect("folder");
    fs::copy(run.join("config.toml"), other.join("config.toml")).expect("copy");
    fs::write(other.join("cache/train.bin.77.partial"), "half").expect("partial");
    workspace.succeed(&["resume", "other"]);
    assert!(!other.join("cache/train.bin.77.partial").exists());
    assert_eq!(metrics(&run), metrics(&other));
}
