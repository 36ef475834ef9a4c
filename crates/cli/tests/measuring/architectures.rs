//! Tests of recurrent and convolutional translation models with the real binary.

use serde_json::Value;

use crate::common::{Workspace, refused, set, stdout};

const INPUT: &[u8] = b"red cat sees\ntwo big dogs run here\n";

/// Trains the small recipe with other settings of the model.
fn train(workspace: &Workspace, run: &str, settings: &str) {
    workspace.succeed(format!("train tiny.toml --run {run} {}", set(settings)));
}

#[test]
fn each_architecture_translates() {
    let workspace = Workspace::new();
    let recurrent = "model.architecture=recurrent model.recurrent.width=16";
    train(&workspace, "additive", recurrent);
    train(&workspace, "none", &format!("{recurrent} model.recurrent.attention=none"));
    train(&workspace, "convolutional", "model.architecture=convolutional");
    for run in ["additive", "none", "convolutional"] {
        let found = workspace.run_with_input(format!("translate {run}"), INPUT);
        assert!(found.status.success(), "{run}");
        assert_eq!(stdout(&found).lines().count(), 2, "{run}");
        workspace.succeed(format!("quantize {run}"));
        let rounded = workspace.run_with_input(format!("translate {run}-int8"), INPUT);
        assert!(rounded.status.success(), "{run}");
        let aligned = workspace.run_with_input(format!("translate {run} --alignments"), INPUT);
        assert_eq!(aligned.status.success(), run != "none", "{run}");
    }
    let told = workspace.run_with_input("translate none --alignments", INPUT);
    refused(&told, &["no attention to the source"]);
    let counted: Value = workspace_json(&workspace, "inspect additive --json");
    assert_eq!(counted["layers"][0]["attention"], Value::Null);
    let scalars = counted["parameters"].as_array().expect("a list").iter();
    let sum: u64 = scalars.map(|one| one["scalars"].as_u64().expect("a count")).sum();
    assert_eq!(counted["cost"]["parameters"], sum);
    states(&workspace);
    refusals(&workspace);
}

fn workspace_json(workspace: &Workspace, arguments: &str) -> Value {
    serde_json::from_str(&workspace.succeed(arguments)).expect("JSON")
}

fn states(workspace: &Workspace) {
    let asked = "inspect none --state-gradients val --figure states.svg --json";
    let found = workspace_json(workspace, asked);
    let layers = found["layers"].as_array().expect("a list");
    assert_eq!(layers[0]["layer"], "encoder.layers.0.forward");
    for layer in layers {
        let counts = layer["sentences"].as_array().expect("a list");
        assert_eq!(counts[0], 12, "every sentence has a last state");
        assert!(layer["norms"][0].as_f64().expect("a norm") > 0.0, "{layer}");
    }
    let svg = workspace.read("states.svg");
    assert!(svg.starts_with("<svg") && svg.contains("encoder.layers.0.forward"));
    workspace.fail("inspect convolutional --state-gradients val", &["no recurrent states"]);
}

fn refusals(workspace: &Workspace) {
    for (settings, fragment) in [
        (
            "model.architecture=convolutional model.convolutional.kernel=2",
            "model.convolutional.kernel = 2",
        ),
        ("model.architecture=recurrent model.recurrent.width=0", "model.recurrent.width"),
        ("model.architecture=recurent", "recurrent"),
        ("model.architecture=recurrent task=language-model", "model.architecture"),
    ] {
        workspace.fail(format!("config check tiny.toml {}", set(settings)), &[fragment]);
    }
}
