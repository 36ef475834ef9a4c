//! Bad input: one clear error that names file, line or key, exit code 2, and
//! nothing written.

mod common;

use std::fs;

use common::{Workspace, refused, stderr};

const TRAIN: [&str; 4] = ["train", "tiny.toml", "--run", "run"];

/// Training is refused, and leaves no run folder behind.
fn train_fails(workspace: &Workspace, fragments: &[&str]) {
    workspace.fail(&TRAIN, fragments);
    assert!(!workspace.path("run").exists(), "a run folder was left behind");
}

/// Training with one override is refused.
fn set_fails(set: &str, fragments: &[&str]) {
    let workspace = Workspace::new();
    let arguments = [&TRAIN[..], &["--set", set]].concat();
    workspace.fail(&arguments, fragments);
    assert!(!workspace.path("run").exists(), "a run folder was left behind");
}

#[test]
fn a_missing_recipe() {
    let workspace = Workspace::new();
    workspace.fail(&["train", "absent.toml"], &["absent.toml"]);
}

#[test]
fn a_missing_corpus() {
    let workspace = Workspace::new();
    fs::remove_file(workspace.path("data/val.bb")).expect("remove");
    train_fails(&workspace, &["val.bb"]);
}

#[test]
fn unequal_line_counts() {
    let workspace = Workspace::new();
    workspace.write("data/train.bb", "one\n");
    train_fails(&workspace, &["train.aa has 200 lines", "train.bb has 1;"]);
}

#[test]
fn an_empty_corpus() {
    let workspace = Workspace::new();
    workspace.write("data/train.aa", "");
    workspace.write("data/train.bb", "");
    train_fails(&workspace, &["train", "empty"]);
}

#[test]
fn all_pairs_dropped() {
    let workspace = Workspace::new();
    workspace.write("data/train.aa", "x\n\n");
    workspace.write("data/train.bb", "\ny\n");
    train_fails(&workspace, &["train", "all 2 pairs were dropped"]);
}

#[test]
fn invalid_utf8_names_the_line() {
    let workspace = Workspace::new();
    workspace.write("data/train.aa", b"good\n\xff\xfe\n");
    workspace.write("data/train.bb", "gut\nschlecht\n");
    train_fails(&workspace, &["train.aa", "2", "UTF-8"]);
}

#[test]
fn an_unknown_key_names_file_line_and_nearest() {
    let workspace = Workspace::new();
    workspace.write("bad.toml", "[model]\nd_model = 16\nhaeds = 2\n");
    workspace
        .fail(&["config", "check", "bad.toml"], &["bad.toml:3", "`model.haeds`", "`model.heads`"]);
    set_fails("training.max_update=3", &["--set training.max_update=3", "`training.max_updates`"]);
}

#[test]
fn names_of_other_toolkits_lead_to_keys() {
    let workspace = Workspace::new();
    workspace.write("bad.toml", "[training]\nlr = 5e-4\n");
    workspace.fail(
        &["config", "check", "bad.toml"],
        &["bad.toml:2: unknown key `training.lr`, did you mean `training.schedule.learning_rate`?"],
    );
    workspace.write("bad.toml", "[optim]\nwarmup = 400\n");
    workspace.fail(
        &["config", "check", "bad.toml"],
        &["bad.toml:1: unknown section `optim`, did you mean `training.schedule.warmup`?"],
    );
    for (set, meant) in [
        ("patience=3", "`training.early_stopping.patience`"),
        ("training.batch_size=64", "`data.batching.max_tokens`"),
        ("decoding.beam=4", "`decoding.beam_size`"),
        ("model.dropout=0.3", "`model.residual_dropout`"),
        ("model.layers=2", "`model.encoder_layers` and `model.decoder_layers`"),
    ] {
        workspace.fail(&["config", "check", "tiny.toml", "--set", set], &["unknown key", meant]);
    }
}

#[test]
fn a_key_without_effect_is_named() {
    let output = Workspace::new().succeed(&[
        "config",
        "check",
        "tiny.toml",
        "--set",
        "decoding.sampling.top_k=5",
    ]);
    assert!(
        output
            .contains("decoding.sampling.top_k has no effect: decoding.sampling.temperature is 0")
            && output.ends_with("valid\n"),
        "{output}"
    );
}

#[test]
fn training_that_ends_before_its_direction_is_trained_alone_says_so() {
    let workspace = Workspace::new();
    let warns = |set: &[&str]| {
        let run = format!("runs/{}", set.join(""));
        let sets = set.iter().flat_map(|change| ["--set", change]);
        let arguments: Vec<&str> =
            ["train", "tiny.toml", "--run", &run].into_iter().chain(sets).collect();
        let output = workspace.run(&arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
            .contains("warning: training ends before the wanted direction is trained alone")
    };
    assert!(warns(&["data.bidirectional_epochs=1000"]));
    assert!(warns(&[
        "data.bidirectional_epochs=2",
        "training.max_epochs=2",
        "training.max_updates=0"
    ]));
    assert!(!warns(&[
        "data.bidirectional_epochs=1",
        "training.max_epochs=2",
        "training.max_updates=0"
    ]));
    assert!(!warns(&["training.max_epochs=1"]));
}

#[test]
fn the_target_language_chooses_the_tokenizer_of_scores() {
    let workspace = Workspace::new();
    let shown = |set: &str| {
        workspace.succeed(&[
            "config",
            "show",
            "tiny.toml",
            "--set",
            "data.target_language=zh",
            "--set",
            set,
        ])
    };
    assert!(shown("name=a").contains("tokenize = \"zh\""));
    assert!(shown("evaluation.tokenize=13a").contains("tokenize = \"13a\""), "what is named holds");
}

#[test]
fn a_mistyped_value_names_file_line_key_and_type() {
    let workspace = Workspace::new();
    workspace.write("bad.toml", "[training]\n\nmax_updates = \"many\"\n");
    workspace.fail(
        &["config", "check", "bad.toml"],
        &["bad.toml:3", "`training.max_updates`", "text \"many\"", "a whole number from 0"],
    );
    set_fails(
        "model.heads=two",
        &["--set model.heads=two", "`model.heads`", "a whole number from 1"],
    );
    set_fails("evaluation.tokenize=zj", &["`evaluation.tokenize`", "`zh`"]);
}

#[test]
fn broken_toml_names_the_line() {
    let workspace = Workspace::new();
    workspace.write("bad.toml", "seed = = 1\n");
    workspace.fail(&["config", "check", "bad.toml"], &["bad.toml:1"]);
}

#[test]
fn impossible_combinations() {
    set_fails("model.heads=3", &["heads = 3", "d_model = 16"]);
    set_fails("data.tokenizer.joint=false", &["tied", "joint"]);
    set_fails("training.label_smoothing=2", &["training.label_smoothing"]);
    set_fails("decoding.beam_size=0", &["beam_size"]);
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_device_that_this_build_lacks() {
    set_fails("device=cuda", &["cuda", "--features cuda"]);
    set_fails("device=gpu", &["gpu", "cuda:N"]);
    set_fails("dtype=f16", &["dtype", "f16"]);
}

#[test]
fn a_run_folder_that_exists_is_left_alone() {
    let workspace = Workspace::new();
    fs::create_dir(workspace.path("run")).expect("run folder");
    workspace.write("run/precious", "mine");
    workspace.fail(&TRAIN, &["run exists already", "taper resume run", "--run"]);
    assert_eq!(fs::read(workspace.path("run/precious")).expect("read"), b"mine");
    assert_eq!(fs::read_dir(workspace.path("run")).expect("list").count(), 1);
}

#[test]
fn a_run_that_is_not_there() {
    let workspace = Workspace::new();
    workspace.fail(&["resume", "nowhere"], &["nowhere", "no such run"]);
    workspace.fail(&["translate", "nowhere"], &["nowhere", "no such run"]);
    workspace.fail(&["average", "nowhere"], &["nowhere"]);
}

#[test]
fn damaged_runs() {
    let workspace = Workspace::new();
    workspace.train("run");

    // Another tokenizer in the place of the run's own.
    let tokenizer = workspace.path("run/tokenizer.json");
    let original = fs::read(&tokenizer).expect("tokenizer");
    workspace.succeed(&[
        "tokenizer",
        "train",
        "tiny.toml",
        "--output",
        "other",
        "--set",
        "data.tokenizer.vocabulary_size=290",
    ]);
    fs::copy(workspace.path("other/tokenizer.json"), &tokenizer).expect("copy");
    workspace.fail(&["translate", "run"], &["tokenizer"]);
    workspace.fail(&["resume", "run"], &["tokenizer"]);
    fs::write(&tokenizer, &original).expect("restore");

    // A truncated checkpoint, then one with a changed byte.
    let model = workspace.path("run/checkpoints/step-00000012/model.safetensors");
    let bytes = fs::read(&model).expect("model");
    fs::write(&model, &bytes[..bytes.len() / 2]).expect("truncate");
    let last = ["translate", "run", "--checkpoint", "last"];
    workspace.fail(&last, &["model.safetensors"]);
    workspace.fail(&["resume", "run", "--set", "training.max_updates=14"], &["model.safetensors"]);
    let mut changed = bytes.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    fs::write(&model, &changed).expect("change");
    workspace.fail(&last, &["model.safetensors"]);
    fs::write(&model, &bytes).expect("restore");
    refused(
        &workspace.run_with_input(&["translate", "run"], b"fine\n\xff\n"),
        &["standard input, line 2", "UTF-8"],
    );
    workspace.write("taken.txt", "mine");
    workspace.fail(&["translate", "run", "--output", "taken.txt"], &["taken.txt"]);
    assert_eq!(fs::read(workspace.path("taken.txt")).expect("read"), b"mine");
    workspace.fail(&["average", "run", "--last", "99"], &["--last 99"]);
    workspace.fail(&["resume", "run", "--set", "model.d_model=32"], &["[model]", "differ"]);
    // A size that no machine has memory for.
    let config = fs::read_to_string(workspace.path("run/config.toml")).expect("config");
    let width = config.lines().find(|line| line.starts_with("d_ff = ")).expect("a width");
    workspace.write("run/config.toml", config.replacen(width, "d_ff = 1000000000000", 1));
    workspace.fail(&["translate", "run"], &["run/config.toml", "model.d_ff is 1000000000000 but"]);
    // To be looked at, no memory is taken for it.
    let shown = workspace.succeed(&["inspect", "run/config.toml"]);
    assert!(shown.contains("feed-forward 1000000000000"), "{shown}");
}

#[test]
fn unequal_files_for_bleu() {
    let workspace = Workspace::new();
    workspace.write("hypothesis", "a\nb\n");
    workspace.write("reference", "a\n");
    workspace
        .fail(&["bleu", "hypothesis", "reference"], &["hypothesis has 2 lines", "reference has 1"]);
    workspace.fail(&["bleu", "hypothesis", "hypothesis", "--tokenize", "zj"], &["zj", "zh"]);
}

#[test]
fn a_matrix_kernel_that_is_not_there() {
    let workspace = Workspace::new();
    let choose = |kernel: &str| {
        workspace.command(&TRAIN).env("TAPER_KERNEL", kernel).output().expect("the binary runs")
    };
    refused(&choose("tile"), &["TAPER_KERNEL=tile", "no such matrix kernel", "gemm"]);
    refused(&choose(""), &["TAPER_KERNEL=", "no such matrix kernel"]);
    assert!(!workspace.path("run").exists(), "a run folder was left behind");
}

#[test]
fn what_would_fail_after_the_training_fails_before_it() {
    let workspace = Workspace::new();
    let test = fs::read_to_string(workspace.path("data/test.aa")).expect("text");
    let train = ["train", "tiny.toml", "--run", "run"];
    let shorter = test.split_inclusive('\n').skip(2).collect::<String>();
    for (text, fragments) in
        [(shorter.as_bytes(), ["test.aa", "10 lines"]), (b"\xff\n", ["test.aa", "UTF-8"])]
    {
        workspace.write("data/test.aa", text);
        workspace.fail(&train, &fragments);
        assert!(!workspace.path("run").exists());
    }
    workspace.write("data/test.aa", "");
    workspace.write("data/test.bb", "");
    workspace.fail(&train, &["split \"test\" is empty"]);
    let learned = [
        "--set",
        "data.test=[]",
        "--set",
        "model.positions=learned",
        "--set",
        "model.max_positions=5",
    ];
    workspace.fail(
        &[&train[..], &learned].concat(),
        &["model.max_positions = 5", "data.cleaning.max_tokens = 4"],
    );
    // Of the validation set as well, and of what subword sampling may make of a sentence.
    let validation = ["data/val.aa", "data/val.bb"]
        .map(|name| (name, fs::read_to_string(workspace.path(name)).expect("text")));
    for (name, text) in &validation {
        workspace.write(name, format!("{}{text}", "red cat sees ".repeat(30)));
    }
    let positions = "model.max_positions=60";
    workspace.fail(
        &[&train[..], &learned[..4], &["--set", positions]].concat(),
        &["the longest row has", "model.max_positions = 60"],
    );
    for (name, text) in &validation {
        workspace.write(name, text);
    }
    let sampling = ["--set", positions, "--set", "data.tokenizer.dropout=0.1"];
    workspace.fail(
        &[&train[..], &learned[..4], &sampling].concat(),
        &["sampling", "251 tokens", "data.cleaning.max_tokens = 59"],
    );
    workspace.fail(
        &[&train[..], &["--set", "data.test=[]", "--set", "threads=5000"]].concat(),
        &["threads` = 5000", "at most"],
    );
    // Memory that no machine has is not even asked for.
    for inner in ["100000000000", "9223372036854775807"] {
        let huge = ["--set", "data.test=[]", "--set", &format!("model.d_ff={inner}")];
        workspace
            .fail(&[&train[..], &huge].concat(), &["parameters takes", "but may take", "[model]"]);
    }
    let beam = ["--set", "data.test=[]", "--set", "decoding.beam_size=2000000000000000000"];
    workspace.fail(
        &[&train[..], &beam].concat(),
        &["decoding.beam_size = 2000000000000000000", "at most 65536"],
    );
    let vocabulary =
        ["--set", "data.test=[]", "--set", "data.tokenizer.vocabulary_size=1000000000000"];
    workspace.fail(
        &[&train[..], &vocabulary].concat(),
        &["data.tokenizer.vocabulary_size", "at most 4194304"],
    );
    assert!(!workspace.path("run").exists());
}

#[test]
fn what_is_watched_must_be_measured() {
    let workspace = Workspace::new();
    let refused = |settings: &[&str], fragments: &[&str]| {
        workspace.fail(&[&["config", "check", "tiny.toml"], settings].concat(), fragments);
        workspace.fail(&[&["train", "tiny.toml", "--run", "run"], settings].concat(), fragments);
        assert!(!workspace.path("run").exists());
    };
    let bleu = [
        "--set",
        "training.early_stopping.metric=bleu",
        "--set",
        "evaluation.validation_sentences=0",
    ];
    refused(
        &bleu,
        &["training.early_stopping.metric = \"bleu\"", "evaluation.validation_sentences"],
    );
    let blind = ["--set", "training.early_stopping.patience=3", "--set", "data.validation="];
    refused(&blind, &["training.early_stopping.patience = 3", "data.validation"]);
}

/// A figure may ask for any amount of memory, and a path may name anything.
#[test]
fn figures_beyond_all_measure_are_refused() {
    set_fails("training.accumulation=1000000000000", &["training.accumulation", "65536"]);
    let workspace = Workspace::new();
    workspace.write("hypothesis", "a\nb\n");
    workspace.write("reference", "a\tb\nb\tc\n");
    workspace.fail(
        &["bleu", "hypothesis", "reference", "--num-refs", "1000000000000"],
        &["reference:1", "2 references", "1000000000000"],
    );
    for option in ["--confidence-n", "--paired-bs-n", "--paired-ar-n", "--chrf-char-order"] {
        let output = workspace.run(&["bleu", "hypothesis", "reference", option, "1000000000000"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(option), "{}", stderr(&output));
    }
}

#[test]
fn a_name_that_leads_elsewhere() {
    let workspace = Workspace::new();
    for name in ["../../etc", "a/b", "/etc", "..", "."] {
        let set = format!("name={name}");
        workspace.fail(&["train", "tiny.toml", "--set", &set], &["`name`", "runs/", "--run"]);
    }
    assert!(!workspace.path("runs").exists());
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_named_as_what_it_is() {
    let workspace = Workspace::new();
    workspace.train("run");
    let pipe = |name: &str| {
        let made = std::process::Command::new("mkfifo").arg(workspace.path(name)).status();
        assert!(made.expect("mkfifo").success());
    };
    pipe("pipe");
    for (path, kind) in [("/dev/zero", "a device"), ("data", "a folder"), ("pipe", "a pipe")] {
        workspace.fail(&["config", "check", path], &[path, kind]);
        workspace.fail(&["tokenizer", "encode", path], &[path]);
        let tokenizer = format!("data.tokenizer.path={path}");
        workspace.fail(
            &["tokenizer", "train", "tiny.toml", "-o", "made", "--set", &tokenizer],
            &[path, kind],
        );
    }
    // As text.
    let train = ["train", "tiny.toml", "--run", "other"];
    let val = workspace.path("data/val.aa");
    let text = fs::read(&val).expect("text");
    let instead: [(&str, &dyn Fn()); 4] = [
        ("a folder", &|| fs::create_dir(&val).expect("folder")),
        ("a pipe", &|| pipe("data/val.aa")),
        ("a device", &|| std::os::unix::fs::symlink("/dev/zero", &val).expect("link")),
        ("may lead back to itself", &|| std::os::unix::fs::symlink("val.aa", &val).expect("link")),
    ];
    fs::remove_file(&val).expect("remove");
    for (kind, make) in instead {
        make();
        workspace.fail(&train, &["data/val.aa", kind]);
        if kind == "a folder" { fs::remove_dir(&val) } else { fs::remove_file(&val) }
            .expect("remove");
    }
    fs::write(&val, text).expect("restore");
    // In a run.
    for name in ["tokenizer.json", "checkpoints/best", "checkpoints/last", "config.toml"] {
        let path = workspace.path("run").join(name);
        let bytes = fs::read(&path).expect("a file");
        fs::remove_file(&path).expect("remove");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("link");
        let checkpoint = if name.ends_with("last") { "last" } else { "best" };
        let evaluate = ["evaluate", "run", "--checkpoint", checkpoint];
        // What is no file is no run's configuration either.
        let named = if name == "config.toml" { "not a run" } else { name };
        workspace.fail(&evaluate, &[named]);
        fs::remove_file(&path).expect("remove");
        let large = fs::File::create(&path).expect("a file");
        large.set_len(3 << 30).expect("a size");
        workspace.fail(&evaluate, &[name, "larger than"]);
        fs::write(&path, bytes).expect("restore");
    }
    workspace.succeed(&["evaluate", "run", "--checkpoint", "best"]);
}
