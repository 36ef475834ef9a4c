//! `taper theory`: machines and programs on models set by hand, and the runs that are saved of them.

use std::path::Path;

use crate::common::Workspace;
use serde_json::Value;

/// Path of a file in `configs/theory`.
fn bundled(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/theory");
    root.join(name).display().to_string()
}

#[test]
fn a_machine_runs_and_its_run_goes_on_with_a_tape() {
    let workspace = Workspace::new();
    let machine = bundled("busy-beaver-3.txt");
    let command = ["theory", "turing", &machine, "--steps", "30", "--save", "beaver"];
    let text = workspace.succeed(&[command.as_slice(), &["--svg", "figures"]].concat());
    assert!(text.contains("   14  H  111[1]11"), "{text}");
    assert!(text.contains("halted after 14 steps in the state H"), "{text}");
    assert!(workspace.path("figures/precision.svg").is_file());
    let generate = ["generate", "beaver", "--prompt", "A//", "--max-tokens", "30"];
    let went_on = workspace.succeed(&generate);
    assert!(went_on.contains("B/1/R C/0/R C/1/L"), "{went_on}");
    assert!(went_on.trim_end().ends_with("H/1/R"), "{went_on}");
    assert!(workspace.succeed(&["inspect", "beaver"]).contains("layers       3"));
    workspace.fail(&command, &["beaver exists already"]);
    let json = workspace.succeed(&["theory", "turing", &machine, "--json"]);
    let told: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((told["halted"].as_bool(), told["state"].as_str()), (Some(true), Some("H")));
    assert_eq!(told["steps"].as_array().map(Vec::len), Some(14));
    workspace.write("bad.txt", "blank _\nstart a\na _ -> a _ X\n");
    workspace.fail(&["theory", "turing", "bad.txt"], &["bad.txt", "line 3, column 12", "no move"]);
    workspace.fail(&["theory", "turing", &machine, "012"], &["INPUT", "\"2\""]);
    workspace.fail(&["theory", "turing", &machine, "--steps", "4000000000"], &["positions"]);
}

#[test]
fn a_program_is_compiled_run_and_saved() {
    let workspace = Workspace::new();
    let sort = bundled("sort.rasp");
    let command = ["theory", "rasp", &sort, "dacabb", "--save", "sort", "--svg", "figures"];
    let text = workspace.succeed(&command);
    assert!(text.contains("a a b b c d"), "{text}");
    assert!(std::fs::read_dir(workspace.path("figures")).expect("figures").count() > 2);
    assert!(workspace.succeed(&["inspect", "sort"]).contains("width 256"));
    workspace.succeed(&["attention", "sort", "d a c a b b"]);
    workspace.write("bad.rasp", "alphabet \"ab\"\ntokens + 1\n");
    workspace.fail(&["theory", "rasp", "bad.rasp", "ab"], &["bad.rasp", "line 2, column 8"]);
    workspace.fail(&["theory", "rasp", &sort, "xyz"], &["INPUT", "'x'"]);
    workspace.fail(&["theory", "rasp", "absent.rasp"], &["absent.rasp"]);
}

#[test]
fn claims_are_listed_and_measured() {
    let workspace = Workspace::new();
    let listed = workspace.succeed(&["theory", "show"]);
    assert!(listed.contains("sparse-connections"), "{listed}");
    assert!(listed.contains("trained-on-concepts"), "{listed}");
    let shown = workspace.succeed(&["theory", "show", "power-laws", "--json"]);
    let told: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(told["rows"].as_array().map(Vec::len), Some(3));
    workspace.fail(&["theory", "show", "nothing"], &["nothing", "sparse-connections"]);
}
