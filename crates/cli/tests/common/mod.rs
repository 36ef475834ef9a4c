//! Helpers of the command-line tests: a small corpus, a small recipe, and functions that run the
//! real binary on them, wait for its processes and send them signals.

#![allow(dead_code, unused_imports, reason = "each test binary uses its own part")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Splits a command line into words. A word with spaces is written between single quotes.
pub(crate) fn words(line: &str) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), line.trim_start());
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').expect("a closing quote"),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
}

/// Returns the arguments `--set key=value` for `settings`: several `key=value`, separated by
/// spaces.
pub(crate) fn set(settings: &str) -> String {
    settings.split_whitespace().map(|setting| format!(" --set {setting}")).collect()
}

/// Settings for a training that a test interrupts: it soon has a checkpoint, and would last much
/// longer than the test.
pub(crate) const LONG: &str = "--set training.max_updates=100000 --set training.validate_every=20";

/// Settings for runs of several processes: an update has four micro-batches, and every part of the
/// training state is used.
pub(crate) const SEVERAL: &str = "--set training.accumulation=4 --set training.ema_decay=0.9 \
     --set data.batching.max_tokens=100 --set model.embedding_dropout=0.1";

/// Returns the arguments that train the tiny recipe with the settings [`SEVERAL`] into `run`.
pub(crate) fn train_among(run: &str, more: &str) -> String {
    format!("train tiny.toml --run {run} {SEVERAL} {more}")
}

/// Returns the path of a test folder that an earlier version wrote.
pub(crate) fn frozen(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frozen").join(name)
}

/// Returns the path of a golden folder, that is, of a model that `scripts/golden` wrote with the
/// library Transformers.
pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../run/tests/golden").join(name)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("copy");
        }
    }
}

/// A temporary folder with a corpus in `data` and the recipe `tiny.toml`.
pub(crate) struct Workspace {
    folder: tempfile::TempDir,
}

impl Workspace {
    /// Makes a folder with a corpus of made-up sentences. Translations have the words of the source
    /// in reverse order.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let data = folder.path().join("data");
        fs::create_dir(&data).expect("data folder");
        for (stem, count, offset) in [("train", 200, 0), ("val", 12, 1000), ("test", 12, 2000)] {
            let sentences: Vec<Vec<String>> = (0..count).map(|i| sentence(i + offset)).collect();
            let source: String = sentences.iter().map(|words| words.join(" ") + "\n").collect();
            let target: String = sentences
                .iter()
                .map(|words| words.iter().rev().cloned().collect::<Vec<_>>().join(" ") + "\n")
                .collect();
            fs::write(data.join(format!("{stem}.aa")), source).expect("source side");
            fs::write(data.join(format!("{stem}.bb")), target).expect("target side");
        }
        let workspace = Self { folder };
        fs::write(workspace.path("tiny.toml"), RECIPE).expect("recipe");
        workspace
    }

    /// Makes a folder with a text of made-up lines, and a recipe for a language model on
    /// characters.
    pub(crate) fn of_text() -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let workspace = Self { folder };
        fs::create_dir(workspace.path("data")).expect("data folder");
        let text: String = (0..300).map(|i| sentence(i).join(" ") + ".\n").collect();
        workspace.write("data/text.txt", text);
        workspace.write("tiny.toml", TEXT_RECIPE);
        workspace
    }

    /// Makes the folder of [`Self::new`] with a copy of the frozen run as `run`. The frozen run is
    /// a translation run that an earlier version of Taper wrote in the first format of runs.
    pub(crate) fn of_frozen_run() -> Self {
        let workspace = Self::new();
        copy(&frozen("format-1"), &workspace.path("run"));
        workspace
    }

    /// Returns the path of `name` inside the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file inside the folder.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).expect("write");
    }

    /// Reads a text file inside the folder.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Returns a command that runs the binary in the folder with the [`words`] of `arguments`.
    pub(crate) fn command(&self, arguments: impl AsRef<str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_taper"));
        command.current_dir(self.folder.path()).args(words(arguments.as_ref()));
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, arguments: impl AsRef<str>) -> Output {
        self.command(arguments).output().expect("the binary runs")
    }

    /// Starts the binary; discards its standard output and pipes its standard error.
    pub(crate) fn spawn(&self, arguments: impl AsRef<str>) -> Child {
        self.command(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts")
    }

    /// Runs the shell script `text` in the folder, with the binary as `$0`. `shell` is a shell with
    /// options, or a command that starts a shell.
    pub(crate) fn script(&self, shell: &[&str], text: &str) -> Output {
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]).args(["-c", text, env!("CARGO_BIN_EXE_taper")]);
        command
            .current_dir(self.folder.path())
            .env("TMPDIR", self.folder.path())
            .output()
            .expect("a shell")
    }

    /// Runs the binary with text on standard input.
    pub(crate) fn run_with_input(&self, arguments: impl AsRef<str>, input: &[u8]) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        // A command may fail before it reads, which closes the pipe, so an error is ignored.
        let _ = child.stdin.take().expect("stdin").write_all(input);
        child.wait_with_output().expect("the binary ends")
    }

    /// Runs the binary and checks that it succeeds.
    pub(crate) fn finish(&self, arguments: impl AsRef<str>) -> Output {
        let arguments = arguments.as_ref();
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments}: {}", stderr(&output));
        output
    }

    /// Runs the binary, checks that it succeeds, and returns its standard output.
    pub(crate) fn succeed(&self, arguments: impl AsRef<str>) -> String {
        stdout(&self.finish(arguments))
    }

    /// Runs the binary, checks that it succeeds, and parses its standard output as JSON.
    pub(crate) fn json(&self, arguments: impl AsRef<str>) -> serde_json::Value {
        serde_json::from_str(&self.succeed(arguments)).expect("JSON")
    }

    /// Runs the binary, and checks that it ends with exit code 2 and one `error:` line that
    /// contains every fragment. Returns the standard error.
    pub(crate) fn fail(&self, arguments: impl AsRef<str>, fragments: &[&str]) -> String {
        let output = self.run(arguments);
        refused(&output, fragments);
        stderr(&output)
    }

    /// Trains the tiny recipe into `run`.
    pub(crate) fn train(&self, run: &str) {
        self.succeed(format!("train tiny.toml --run {run}"));
    }

    /// Waits until the run has a checkpoint.
    pub(crate) fn wait_for_checkpoint(&self, run: &str) {
        let last = self.path(run).join("checkpoints/last");
        wait_for("a checkpoint", || last.is_file());
    }

    /// Checks that the run has checkpoints, and that each checkpoint with a final name can be
    /// loaded.
    pub(crate) fn checkpoints_are_whole(&self, run: &str) {
        let names: Vec<String> = fs::read_dir(self.path(run).join("checkpoints"))
            .expect("checkpoints")
            .map(|entry| entry.expect("entry").file_name().into_string().expect("a name"))
            .filter(|name| name.starts_with("step-"))
            .collect();
        assert!(!names.is_empty(), "{run} has no checkpoint");
        for name in &names {
            let translate = format!("translate {run} --checkpoint {name}");
            let output = self.run_with_input(translate, b"red cat\n");
            assert!(output.status.success(), "{name}: {}", stderr(&output));
        }
    }

    /// Checks that two runs have the same metrics, and that their weights and optimizer states at
    /// `step` are identical, byte for byte.
    pub(crate) fn same_end(&self, one: &str, other: &str, step: usize) {
        let (one, other) = (self.path(one), self.path(other));
        assert_eq!(metrics(&one), metrics(&other));
        for file in ["model.safetensors", "optimizer.safetensors"] {
            let place = format!("checkpoints/step-{step:08}/{file}");
            assert!(
                fs::read(one.join(&place)).expect("one")
                    == fs::read(other.join(&place)).expect("other"),
                "{file} differs"
            );
        }
    }
}

/// Waits until `condition` is true, at most two minutes. `what` describes it in the error.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal to a process. `name` is an option of `kill`, such as `-TERM`.
pub(crate) fn signal(name: &str, child: &Child) {
    assert!(
        Command::new("kill")
            .args([name, &child.id().to_string()])
            .status()
            .expect("kill")
            .success()
    );
}

/// Checks that a text contains every fragment.
pub(crate) fn mentions(text: impl AsRef<str>, fragments: &[&str]) {
    let text = text.as_ref();
    for fragment in fragments {
        assert!(text.contains(fragment), "`{fragment}` is not in: {text}");
    }
}

/// Checks for exit code 2 and one `error:` line that contains every fragment.
pub(crate) fn refused(output: &Output, fragments: &[&str]) {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    let errors: Vec<&str> = message.lines().filter(|line| line.starts_with("error:")).collect();
    assert_eq!(errors.len(), 1, "{message}");
    for fragment in fragments {
        assert!(errors[0].contains(fragment), "`{fragment}` is not in: {message}");
    }
}

/// Returns the standard output as text.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Parses each line of a text as JSON.
pub(crate) fn json_lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the records of a run's metrics, without timing.
pub(crate) fn metrics(run: &Path) -> Vec<serde_json::Value> {
    fs::read_to_string(run.join("metrics.jsonl"))
        .expect("metrics.jsonl")
        .lines()
        .map(|line| {
            let mut record: serde_json::Value = serde_json::from_str(line).expect("JSON");
            record.as_object_mut().expect("an object").remove("timing");
            record
        })
        .collect()
}

/// The random number generator SplitMix64 (Steele, Lea and Flood, 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)) % limit
    }
}

/// Returns the words of a made-up sentence, which is a function of `number`.
fn sentence(number: usize) -> Vec<String> {
    const WORDS: [&str; 8] = ["red", "cat", "sees", "two", "big", "dogs", "run", "here"];
    let mut state = number as u64 + 1;
    (0..3 + number % 4)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            WORDS[(state >> 33) as usize % WORDS.len()].to_owned()
        })
        .collect()
}

const RECIPE: &str = r#"
device = "cpu"
dtype = "f32"

[data]
dir = "data"
source_language = "aa"
target_language = "bb"
test = ["test"]

[data.tokenizer]
vocabulary_size = 300

[data.batching]
max_tokens = 200

[model]
d_model = 16
d_ff = 32
heads = 2
encoder_layers = 1
decoder_layers = 1

[training]
max_updates = 12
log_every = 4
validate_every = 6
average_last = 2

[training.schedule]
kind = "inverse_sqrt"
learning_rate = 3e-3
warmup = 5

[decoding]
beam_size = 2
max_length = 20
"#;

const TEXT_RECIPE: &str = r#"
task = "language-model"
device = "cpu"
dtype = "f32"

[data]
dir = "data"
train = "text"
validation = ""
test = []

[data.text]
block_length = 24
hold_out = 0.1

[data.tokenizer]
kind = "char"

[data.batching]
max_tokens = 192

[model]
d_model = 32
d_ff = 64
heads = 2
decoder_layers = 2
positions = "rotary"

[training]
label_smoothing = 0.0
max_updates = 12
log_every = 4
validate_every = 6
average_last = 2

[training.schedule]
kind = "inverse_sqrt"
learning_rate = 1e-2
warmup = 5
"#;
