//! Tests of the memory of training: it is estimated beforehand, kept within limits, and does not
//! grow. The limits are those of Linux.
#![cfg(target_os = "linux")]

mod common;

use std::fs;

use common::{Workspace, set, stderr};

/// Settings for a model whose largest batch takes much more memory than the program itself.
const WIDE: &str = "--set model.d_model=64 --set model.d_ff=512";

/// Makes a workspace with more text than the small corpus, so that there are large batches.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    for side in ["aa", "bb"] {
        let name = format!("data/train.{side}");
        let text = workspace.read(&name);
        workspace.write(&name, text.repeat(100));
    }
    workspace
}

#[test]
fn a_batch_that_does_not_fit_is_refused_with_one_that_does() {
    let workspace = workspace();
    let train = format!("train tiny.toml --run run {WIDE} --memory 160MiB");
    let message = workspace.fail(
        format!("{train} --set data.batching.max_tokens=100000"),
        &[
            "batches of 100000 tokens",
            "but the limit is 160.0 MiB (the given budget)",
            "set data.batching.max_tokens =",
        ],
    );
    assert!(!workspace.path("run").exists(), "nothing was trained");
    // With the advised batch size, training succeeds.
    let tokens: String = message
        .split("max_tokens = ")
        .nth(1)
        .expect("advice")
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    assert!((64..100_000).contains(&tokens.parse::<usize>().expect("a number")), "{tokens}");
    workspace.succeed(format!("{train} --set data.batching.max_tokens={tokens}"));
    // There is advice too if batches are only a few times too large, which is found by trying them.
    let larger =
        format!("data.batching.max_tokens={}", 4 * tokens.parse::<usize>().expect("a number"));
    let other = format!("train tiny.toml --run larger {WIDE} --memory 160MiB --set {larger}");
    workspace.fail(&other, &["set data.batching.max_tokens ="]);
    workspace.fail(
        "train tiny.toml --run other --memory 1MiB",
        &["the limit is 1.0 MiB", "no batch fits"],
    );
    workspace.fail(
        "train tiny.toml --run other --memory 1MiB --set data.batching.max_tokens=auto",
        &["\"auto\"", "not even"],
    );
}

#[test]
fn auto_finds_a_batch_that_fits_and_the_run_keeps_it() {
    let workspace = workspace();
    let auto = "--set data.batching.max_tokens=auto";
    assert!(
        workspace
            .succeed(format!("config show tiny.toml {auto}"))
            .contains("max_tokens = \"auto\"")
    );
    let train = format!("train tiny.toml --run run {WIDE} {auto}");
    workspace.succeed(format!("{train} --memory 200MiB"));
    let config = workspace.read("run/config.toml");
    let line = config
        .lines()
        .find(|line| line.starts_with("max_tokens = ") && !line.contains("250"))
        .expect("a budget")
        .to_owned();
    let tokens: usize = line["max_tokens = ".len()..].parse().expect("a number");
    assert!((64..=25_000).contains(&tokens), "{line}");
    // The batch size that was found holds for the whole run, even if there is more memory later.
    workspace.succeed(format!("{train} --resume --set training.max_updates=14"));
    assert!(workspace.read("run/config.toml").contains(&line));
    // No other word is accepted for the batch size.
    workspace.fail(
        "config check tiny.toml --set data.batching.max_tokens=lots",
        &["data.batching.max_tokens", "\"auto\""],
    );
}

/// A limit on the address space of a process, as batch systems set it, is respected too.
#[test]
fn auto_fits_where_addresses_are_limited() {
    let workspace = workspace();
    let text = format!(
        "ulimit -v 600000; \"$0\" train tiny.toml --run run --set threads=2 --set data.batching.max_tokens=auto {WIDE}"
    );
    let output = workspace.script(&["sh"], &text);
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Too little memory for a part of the work is reported in a sentence that names the part.
#[test]
fn too_little_memory_is_an_error_and_no_abort() {
    let workspace = workspace();
    for kibibytes in [90_000, 110_000, 130_000, 150_000, 170_000, 190_000] {
        let text = format!(
            "ulimit -v {kibibytes}; \"$0\" train tiny.toml --run run{kibibytes} --set threads=2 {WIDE}"
        );
        let output = workspace.script(&["sh"], &text);
        if !output.status.success() {
            common::refused(&output, &["memory"]);
        }
    }
}

/// Checks that batches do not become smaller with a higher limit.
#[test]
fn auto_finds_no_less_where_there_is_more() {
    let workspace = workspace();
    let mut before = 0;
    for kibibytes in [250_000, 300_000, 350_000, 400_000, 450_000, 500_000, 700_000] {
        let run = format!("run{kibibytes}");
        let text = format!(
            "ulimit -v {kibibytes}; \"$0\" train tiny.toml --run {run} --set threads=2 --set training.max_updates=1 \
             --set data.batching.max_tokens=auto --set evaluation.test_after_training=false {WIDE}"
        );
        let output = workspace.script(&["sh"], &text);
        let config = fs::read_to_string(workspace.path(&run).join("config.toml"));
        let found = match config {
            Ok(config) => {
                let budget =
                    config.split("[data.batching]\nmax_tokens = ").nth(1).expect("a budget");
                budget.lines().next().expect("a line").parse::<usize>().expect("a number")
            }
            Err(_) => {
                common::refused(&output, &["memory"]);
                0
            }
        };
        // The memory at the start of a process varies a little.
        assert!(found as f64 >= 0.95 * before as f64, "{kibibytes}: {found} after {before}");
        before = before.max(found);
        let said = stderr(&output);
        assert_eq!(
            found > 0 && found < 1024,
            said.contains("warning: batches of"),
            "{found} {said}"
        );
    }
    assert!(before > 1024, "{before}");
}

/// Checks that no batch larger than the whole text is tried, even if the recipe allows it.
#[test]
fn the_largest_batch_that_exists_is_tried_and_no_larger_one() {
    let workspace = Workspace::new();
    let train = "train tiny.toml --memory 400MB --set training.max_updates=1";
    for (run, budget) in [("a", "1000000"), ("b", "100000000"), ("c", "1000000000000000")] {
        let budget = format!("data.batching.max_tokens={budget}");
        workspace.succeed(format!("{train} {WIDE} --run {run} --set {budget}"));
    }
}

#[test]
fn a_run_that_goes_on_with_larger_batches_is_tried_again() {
    let workspace = workspace();
    workspace.succeed(format!("train tiny.toml --run run --set threads=2 {WIDE}"));
    let text = "ulimit -v 600000; \"$0\" resume run --set training.max_updates=14 --accept-changes --set data.batching.max_tokens=100000";
    let output = workspace.script(&["sh"], text);
    assert!(
        !output.status.success()
            && stderr(&output).contains("batches of 100000 tokens, but the limit is"),
        "{}",
        stderr(&output)
    );
    workspace.succeed("resume run --set training.max_updates=14");
}

/// Number of tokens of a vocabulary whose matrix and logits need more memory than everything else.
const MANY_TOKENS: usize = 150_000;

/// Writes the tokenizer of a run to the file `name`, with additional tokens that do not occur in
/// any text.
fn enlarge_tokenizer(workspace: &Workspace, run: &str, name: &str) {
    let text = fs::read_to_string(workspace.path(run).join("tokenizer.json")).expect("a file");
    let mut file: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let tokens = file["model"]["vocab"].as_object_mut().expect("a vocabulary");
    for id in tokens.len()..MANY_TOKENS {
        tokens.insert(format!("unused{id}"), id.into());
    }
    workspace.write(name, file.to_string());
}

/// Runs the binary to its end, and returns the largest resident memory in bytes.
fn peak_of(workspace: &Workspace, arguments: &str) -> u64 {
    let mut child = workspace.spawn(arguments);
    let mut most = 0;
    while child.try_wait().expect("status").is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        // `VmHWM` is the largest resident memory so far.
        most = kibibytes.unwrap_or(0).max(most);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let output = child.wait_with_output().expect("the binary ends");
    assert!(output.status.success(), "{}", stderr(&output));
    1024 * most
}

/// Compares the estimate of memory for a large vocabulary, which `finetune` relies on, with the
/// peak of the process: with all weights trained, and with adapters on weights in f32 and in bf16.
#[test]
fn the_estimate_of_a_large_vocabulary_is_what_a_training_takes() {
    let workspace = workspace();
    workspace.succeed("train tiny.toml --run small --set training.max_updates=1");
    enlarge_tokenizer(&workspace, "small", "large.json");
    let shape = set("data.tokenizer.path=large.json model.d_model=128 model.output_bias=true \
         data.batching.max_tokens=2000 training.max_updates=2 training.schedule.warmup=1 \
         training.average_last=0 evaluation.test_after_training=false threads=2");
    let adapters = "--from all --set model.lora.rank=4";
    let loss_alone = "--set evaluation.validation_sentences=0";
    for (run, settings) in [
        ("all", loss_alone.to_owned()),
        ("adapted", format!("{adapters} {loss_alone}")),
        ("half", format!("{adapters} {loss_alone} --set model.lora.base_dtype=bf16")),
        ("translating", adapters.to_owned()),
    ] {
        let train = format!("train tiny.toml --run {run} {shape} {settings}");
        let peak = peak_of(&workspace, &train);
        let record = workspace.json(format!("inspect {run} --json"));
        let estimate = record["cost"]["peak_bytes"].as_u64().expect("an estimate");
        println!("{run}: {} MiB, estimated {} MiB", peak >> 20, estimate >> 20);
        // Memory of the program itself, and of two tokenizers of this size: that of the run and
        // that of its parent.
        let own = 400 << 20;
        assert!(peak < estimate + estimate / 10 + own, "{run}: {peak}, estimated {estimate}");
        assert!(peak > estimate - estimate / 10, "{run}: {peak}, estimated {estimate}");
    }
}

/// Checks the memory of a process over 10,000 updates of the quickstart's model, with validations
/// and checkpoints between them. Run it with `cargo test --release --workspace --test memory --
/// --ignored --nocapture`.
#[test]
#[ignore = "ten minutes; see above"]
fn memory_does_not_grow_over_ten_thousand_updates() {
    let workspace = Workspace::new();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    // Early stopping is off, because the model stops improving long before the end.
    let settings = set(&format!(
        "data.dir={root}/data/everyday-en-zh training.max_updates=12500 \
         training.validate_every=500 training.log_every=100 training.early_stopping.patience=0"
    ));
    let mut child = workspace
        .command(format!("train {root}/configs/quickstart.toml --run run {settings}"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the binary starts");
    let resident = |pid: u32| -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?
            .trim()
            .strip_suffix("kB")?
            .trim()
            .parse()
            .ok()
    };
    let metrics = workspace.path("run/metrics.jsonl");
    let step = || {
        fs::read_to_string(&metrics).map_or(0, |text| {
            text.lines().filter(|line| line.contains("\"log\"")).count() as u64 * 100
        })
    };
    let (mut early, mut late) = (Vec::new(), Vec::new());
    while child.try_wait().expect("status").is_none() {
        if let Some(kibibytes) = resident(child.id()) {
            match step() {
                1_500..=2_400 => early.push(kibibytes),
                11_500..=12_400 => late.push(kibibytes),
                _ => {}
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let most = |samples: &[u64]| *samples.iter().max().expect("samples");
    println!(
        "resident from update 1,500 to 2,500: {} KiB; from 11,500 to 12,500: {} KiB",
        most(&early),
        most(&late)
    );
    assert!(most(&late) as f64 <= 1.01 * most(&early) as f64);
}
