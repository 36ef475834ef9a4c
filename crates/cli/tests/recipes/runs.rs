//! Tests of `taper runs`: states, progress and scores of runs.

use std::fs;

use crate::common::{LONG, Workspace, signal, stderr};
use serde_json::Value;

/// Returns the names of the runs in `folder`, each with its JSON record.
fn listed(workspace: &Workspace, folder: &str) -> Vec<(String, Value)> {
    let runs: Vec<Value> =
        serde_json::from_str(&workspace.succeed(format!("runs {folder} --json"))).expect("JSON");
    let name = |run: &Value| {
        run["folder"].as_str().expect("folder").rsplit('/').next().unwrap_or_default().to_owned()
    };
    runs.into_iter().map(|run| (name(&run), run)).collect()
}

#[test]
fn runs_are_listed_with_state_progress_and_scores() {
    let workspace = Workspace::new();
    workspace.fail("runs", &["runs: no such folder"]);
    fs::create_dir(workspace.path("runs")).expect("folder");
    assert_eq!(workspace.succeed("runs"), "runs: no runs\n");

    workspace.train("runs/done");
    fs::create_dir(workspace.path("runs/other")).expect("a folder that is no run");
    workspace.train("runs/edited");
    workspace.write("runs/edited/config.toml", "nonsense = 1\n");
    let mut child = workspace.spawn(format!("train tiny.toml --run runs/now {LONG}"));
    workspace.wait_for_checkpoint("runs/now");

    let runs = listed(&workspace, "runs");
    let names: Vec<&str> = runs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["done", "edited", "now"]);
    let (done, edited, now) = (&runs[0].1, &runs[1].1, &runs[2].1);
    assert_eq!((&done["state"], &done["reason"]), (&"finished".into(), &"max_updates".into()));
    assert_eq!((&done["step"], &done["max_updates"]), (&12.into(), &12.into()));
    assert_eq!(done["best"]["metric"], "loss");
    assert_eq!(done["tests"][0]["split"], "test");
    let scores: Value =
        serde_json::from_slice(&fs::read(workspace.path("runs/done/scores.json")).expect("scores"))
            .expect("JSON");
    assert_eq!(done["tests"][0]["bleu"], scores[0]["bleu"]["score"]);
    assert_eq!(edited["state"], "damaged");
    assert!(edited["cause"].as_str().expect("cause").contains("nonsense"), "{edited}");
    assert_eq!(
        (&now["state"], &now["process"]),
        (&"training".into(), &child.id().to_string().into())
    );
    assert!(now["step"].as_u64().expect("step") >= 20, "{now}");
    assert_eq!(now["max_updates"], 100_000);

    signal("-KILL", &child);
    child.wait().expect("the end");
    assert_eq!(listed(&workspace, "runs/now")[0].1["state"], "interrupted");
    let table = workspace.succeed("runs");
    let row = |name: &str| table.lines().find(|line| line.starts_with(name)).expect("a row");
    assert!(row("done").contains("finished") && row("done").contains("12 of 12"), "{table}");
    assert!(row("now").contains("interrupted"), "{table}");
    // Listing a killed run does not hide that it was killed.
    let resumed = workspace.run("resume runs/now --set training.max_updates=1");
    assert!(stderr(&resumed).contains("ended without saying so"), "{}", stderr(&resumed));
    assert_eq!(listed(&workspace, "runs/now")[0].1["state"], "finished");
}
