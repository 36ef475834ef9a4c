//! Tests of `taper theory`: machines and programs on models whose weights are set by hand, and runs
//! that save these models.

use std::path::Path;

use crate::common::{Workspace, mentions};

/// Returns the path of a file in `configs/theory`.
fn bundled(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/theory");
    root.join(name).display().to_string()
}

#[test]
fn a_machine_runs_and_its_run_goes_on_with_a_tape() {
    let workspace = Workspace::new();
    let machine = bundled("busy-beaver-3.txt");
    let command = format!("theory turing {machine} --steps 30 --save beaver");
    let said = workspace.succeed(format!("{command} --svg figures"));
    mentions(&said, &["   14  H  111[1]11", "halted after 14 steps in the state H"]);
    assert!(workspace.path("figures/precision.svg").is_file());
    let went_on = workspace.succeed("generate beaver --prompt A// --max-tokens 30");
    mentions(&went_on, &["B/1/R C/0/R C/1/L"]);
    assert!(went_on.trim_end().ends_with("H/1/R"), "{went_on}");
    assert!(workspace.succeed("inspect beaver").contains("layers       3"));
    workspace.fail(&command, &["beaver exists already"]);
    let told = workspace.json(format!("theory turing {machine} --json"));
    assert_eq!((told["halted"].as_bool(), told["state"].as_str()), (Some(true), Some("H")));
    assert_eq!(told["steps"].as_array().map(Vec::len), Some(14));
    workspace.write("bad.txt", "blank _\nstart a\na _ -> a _ X\n");
    workspace.fail("theory turing bad.txt", &["bad.txt", "line 3, column 12", "no move"]);
    workspace.fail(format!("theory turing {machine} 012"), &["INPUT", "\"2\""]);
    workspace.fail(format!("theory turing {machine} --steps 4000000000"), &["positions"]);
}

#[test]
fn a_program_is_compiled_run_and_saved() {
    let workspace = Workspace::new();
    let sort = bundled("sort.rasp");
    let command = format!("theory rasp {sort} dacabb --save sort --svg figures");
    mentions(workspace.succeed(&command), &["a a b b c d"]);
    assert!(std::fs::read_dir(workspace.path("figures")).expect("figures").count() > 2);
    assert!(workspace.succeed("inspect sort").contains("width 256"));
    workspace.succeed("attention sort 'd a c a b b'");
    workspace.write("bad.rasp", "alphabet \"ab\"\ntokens + 1\n");
    workspace.fail("theory rasp bad.rasp ab", &["bad.rasp", "line 2, column 8"]);
    workspace.fail(format!("theory rasp {sort} xyz"), &["INPUT", "'x'"]);
    workspace.fail("theory rasp absent.rasp", &["absent.rasp"]);
}

#[test]
fn claims_are_listed_and_measured() {
    let workspace = Workspace::new();
    mentions(workspace.succeed("theory show"), &["sparse-connections", "trained-on-concepts"]);
    let told = workspace.json("theory show power-laws --json");
    assert_eq!(told["rows"].as_array().map(Vec::len), Some(3));
    workspace.fail("theory show nothing", &["nothing", "sparse-connections"]);
}
