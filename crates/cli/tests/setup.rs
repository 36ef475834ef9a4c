//! Tests of the commands that help with a first training, an installation or a package of the
//! program.

mod common;

use std::fs;

use common::{Workspace, mentions, set, words};
use serde_json::Value;

#[test]
fn the_quickstart_needs_nothing_but_the_program() {
    let workspace = Workspace::new();
    let quick = set("training.max_updates=6 training.schedule.warmup=2 training.log_every=2 \
         evaluation.test_after_training=false evaluation.validation_sentences=0 \
         model.d_model=32 model.d_ff=64");
    let said = workspace.succeed(format!("quickstart first {quick}"));
    mentions(&said, &["the recipe and its corpus are in first"]);
    for name in ["configs/quickstart.toml", "data/everyday-en-zh/test.zh"] {
        let bundled = fs::read(format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR")));
        let written = fs::read(workspace.path(&format!("first/{name}")));
        assert!(bundled.expect("bundled") == written.expect("unpacked"), "{name}");
    }
    // A second call keeps files that the user has changed, and does not train again.
    workspace.write("first/data/everyday-en-zh/test.zh", "mine\n");
    workspace.succeed(format!("quickstart first {quick}"));
    assert_eq!(fs::read(workspace.path("first/data/everyday-en-zh/test.zh")).unwrap(), b"mine\n");
    workspace.succeed("translate first/runs/quickstart --input data/test.aa");
    // The options that an error names are there.
    let wider = format!("quickstart first {quick} --set model.d_model=16");
    workspace.fail(&wider, &["model.d_model", "--run"]);
    let said = workspace.succeed(format!("{wider} --run second --json"));
    assert!(said.lines().all(|line| line.starts_with('{')), "{said}");
    assert!(workspace.path("second/config.toml").is_file());
}

#[test]
fn what_a_build_leaves_out_names_its_feature() {
    let workspace = Workspace::new();
    let version = workspace.succeed("--version");
    for (is_built, command, feature) in [
        (cfg!(feature = "png"), "scaling run --png pictures", "png"),
        (cfg!(feature = "serve"), "serve run --address 127.0.0.1:0", "serve"),
        (cfg!(feature = "top"), "top run", "top"),
    ] {
        assert_eq!(version.contains(feature), is_built, "{version}");
        if !is_built {
            workspace.fail(command, &["cargo feature", &format!("--features {feature}")]);
        }
    }
}

#[test]
fn the_doctor_knows_what_is_computed_here() {
    let workspace = Workspace::new();
    let said = workspace.succeed("doctor");
    for topic in ["program", "processor", "memory", "folders"] {
        assert!(said.lines().any(|line| line[6..].starts_with(topic)), "{topic}: {said}");
    }
    mentions(&said, &["ok    products   exact by", "ok    decoding", "20 updates in bf16"]);
    // The checks also pass with another kernel.
    let output = workspace.command("doctor --json").env("TAPER_KERNEL", "gemm").output();
    let output = output.expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{}", common::stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["passed"], true);
}

#[test]
fn the_doctor_says_what_is_amiss() {
    let workspace = Workspace::new();
    let mut command = workspace.command("doctor --json");
    command.env("TAPER_KERNEL", "abacus").env("TMPDIR", workspace.path("tiny.toml"));
    let output = command.output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["passed"], false);
    let findings = report["findings"].as_array().expect("findings");
    let failures: Vec<_> = findings.iter().filter(|one| one["verdict"] == "fail").collect();
    let topics: Vec<_> = failures.iter().filter_map(|one| one["topic"].as_str()).collect();
    assert_eq!(topics, ["kernels", "folders", "training", "training"]);
    assert!(failures.iter().all(|one| one["advice"].is_string()), "{failures:?}");
}

#[test]
fn the_manual_lies_beside_the_program() {
    let workspace = Workspace::new();
    workspace.fail("docs", &["no manual is installed", "docs/README.md"]);
    // Installs the program and a manual as in an archive or a wheel.
    let program = workspace.path("bin/taper");
    fs::create_dir(workspace.path("bin")).expect("a folder");
    fs::copy(env!("CARGO_BIN_EXE_taper"), &program).expect("a copy");
    let book = workspace.path("share/taper/book");
    fs::create_dir_all(book.join("docs/models")).expect("a folder");
    for page in ["index", "docs/scores", "docs/models/images"] {
        fs::write(book.join(format!("{page}.html")), "a page").expect("a page");
    }
    let run = |page: &str| {
        let mut command = std::process::Command::new(&program);
        command.arg("docs").args(words(page)).output().expect("the binary runs")
    };
    for (page, file) in [("", "index"), ("scores", "docs/scores"), ("images", "images")] {
        let said = common::stdout(&run(page));
        assert!(said.starts_with("file://") && said.ends_with(&format!("{file}.html\n")), "{said}");
    }
    for wrong in ["score", "../index", "../../../bin/taper"] {
        let output = run(wrong);
        assert_eq!(output.status.code(), Some(2));
        assert!(common::stderr(&output).contains("has no page"), "{}", common::stderr(&output));
    }
}

#[test]
fn every_command_has_a_page_of_the_manual() {
    let workspace = Workspace::new();
    workspace.succeed("manual man");
    for name in ["taper.1", "taper-train.1", "taper-bench-train.1"] {
        let page = fs::read_to_string(workspace.path("man").join(name)).expect("a page");
        assert!(page.contains(".SH OPTIONS") || page.contains(".SH SUBCOMMANDS"), "{name}");
    }
}
