//! Runs of earlier versions must load, translate as before, and continue training. Runs of later
//! versions must be refused.

mod common;

use std::fs;

use common::{Workspace, frozen, metrics, stdout};

#[test]
fn a_frozen_run_translates_as_it_did() {
    let workspace = Workspace::of_frozen_run();
    let source = fs::read(frozen("source.txt")).expect("source");
    let output = workspace.run_with_input("translate run --n-best 2", &source);
    let (expected, found) =
        (fs::read_to_string(frozen("n_best.txt")).expect("expected"), stdout(&output));
    assert_eq!(expected.lines().count(), 25);
    assert_eq!(found.lines().count(), 25, "{found}");
    for (expected, found) in expected.lines().zip(found.lines()) {
        let split = |line: &str| -> (String, f64, String) {
            let mut columns = line.split('\t').map(str::to_owned);
            let mut next = || columns.next().expect("three columns");
            (next(), next().parse().expect("a score"), next())
        };
        let (expected, found) = (split(expected), split(found));
        assert_eq!((&expected.0, &expected.2), (&found.0, &found.2));
        // Different processors can compute different last bits of a sum.
        assert!((expected.1 - found.1).abs() < 2e-3, "{expected:?} {found:?}");
    }
}

#[test]
fn a_frozen_run_goes_on_training() {
    let workspace = Workspace::of_frozen_run();
    workspace.succeed("resume run --set training.max_updates=1100");
    let record = metrics(&workspace.path("run"));
    assert_eq!(record.len(), 11, "the record is continued");
    let loss = |line: &serde_json::Value| line["loss"].as_f64().expect("loss");
    // The loss would be different if moments, counters or data were lost.
    assert!((loss(&record[10]) - 0.709).abs() < 0.02, "{}", loss(&record[10]));
    assert_eq!(record[10]["tokens"], 302_500);
}

#[test]
fn a_run_of_a_later_format_is_refused() {
    let workspace = Workspace::of_frozen_run();
    let path = workspace.path("run/checkpoints/step-00001000/state.json");
    let text = fs::read_to_string(&path).expect("state");
    // A later version may add fields; the error must be about the version.
    fs::write(
        &path,
        text.replacen("\"format_version\": 1,", "\"format_version\": 5, \"novelty\": {},", 1),
    )
    .expect("write");
    for command in ["translate run", "resume run", "evaluate run"] {
        workspace.fail(command, &["state.json has format 5", "reads formats up to 4", "upgrade"]);
    }
}
