//! Recurrent and convolutional translation models, in the real binary: trained, resumed, used.

use serde_json::Value;

use crate::common::{Workspace, refused, stdout};

const INPUT: &[u8] = b"red cat sees\ntwo big dogs run here\n";

/// A run of the small recipe with another model.
fn train(workspace: &Workspace, run: &str, keys: &[&str]) {
    let mut arguments = vec!["train", "tiny.toml", "--run", run];
    keys.iter().for_each(|key| arguments.extend(["--set", key]));
    workspace.succeed(&arguments);
}

#[test]
fn each_architecture_translates() {
    let workspace = Workspace::new();
    let recurrent = ["model.architecture=recurrent", "model.recurrent.width=16"];
    train(&workspace, "additive", &recurrent);
    train(&workspace, "none", &[&recurrent[..], &["model.recurrent.attention=none"]].concat());
    train(&workspace, "convolutional", &["model.architecture=convolutional"]);
    for run in ["additive", "none", "convolutional"] {
        let found = workspace.run_with_input(&["translate", run], INPUT);
        assert!(found.status.success(), "{run}");
        assert_eq!(stdout(&found).lines().count(), 2, "{run}");
        workspace.succeed(&["quantize", run]);
        let rounded = workspace.run_with_input(&["translate", &format!("{run}-int8")], INPUT);
        assert!(rounded.status.success(), "{run}");
        let aligned = workspace.run_with_input(&["translate", run, "--alignments"], INPUT);
        assert_eq!(aligned.status.success(), run != "none", "{run}");
    }
    let told = workspace.run_with_input(&["translate", "none", "--alignments"], INPUT);
    refused(&told, &["no attention to the source"]);
    let counted: Value = workspace_json(&workspace, &["inspect", "additive", "--json"]);
    assert_eq!(counted["layers"][0]["attention"], Value::Null);
    let scalars = counted["parameters"].as_array().expect("a list").iter();
    let sum: u64 = scalars.map(|one| one["scalars"].as_u64().expect("a count")).sum();
    assert_eq!(counted["cost"]["parameters"], sum);
    states(&workspace);
    refusals(&workspace);
}

fn workspace_json(workspace: &Workspace, arguments: &[&str]) -> Value {
    serde_json::from_str(&workspace.succeed(arguments)).expect("JSON")
}

fn states(workspace: &Workspace) {
    let figure = ["--figure", "states.svg", "--json"];
    let asked = ["inspect", "none", "--state-gradients", "val"];
    let found = workspace_json(workspace, &[&asked[..], &figure].concat());
    let layers = found["layers"].as_array().expect("a list");
    assert_eq!(layers[0]["layer"], "encoder.layers.0.forward");
    for layer in layers {
        let counts = layer["sentences"].as_array().expect("a list");
        assert_eq!(counts[0], 12, "every sentence has a last state");
        assert!(layer["norms"][0].as_f64().expect("a norm") > 0.0, "{layer}");
    }
    let svg = std::fs::read_to_string(workspace.path("states.svg")).expect("a figure");
    assert!(svg.starts_with("<svg") && svg.contains("encoder.layers.0.forward"));
    workspace
        .fail(&["inspect", "convolutional", "--state-gradients", "val"], &["no recurrent states"]);
}

fn refusals(workspace: &Workspace) {
    let with = |keys: &[&str], fragment: &str| {
        let mut arguments = vec!["config", "check", "tiny.toml"];
        keys.iter().for_each(|key| arguments.extend(["--set", key]));
        workspace.fail(&arguments, &[fragment]);
    };
    let (recurrent, convolutional) =
        ("model.architecture=recurrent", "model.architecture=convolutional");
    with(&[convolutional, "model.convolutional.kernel=2"], "model.convolutional.kernel = 2");
    with(&[recurrent, "model.recurrent.width=0"], "model.recurrent.width");
    with(&["model.architecture=recurent"], "recurrent");
    with(&[recurrent, "task=language-model"], "model.architecture");
}
