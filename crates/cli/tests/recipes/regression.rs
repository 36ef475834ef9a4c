//! Tests of in-context regression on random functions: trained without a file, resumed, trained by
//! two processes, compared with ridge regression, and drawn as figures. Settings and commands that
//! make no sense for functions are refused.

use std::fs;

use serde_json::Value;

use super::common::{Workspace, mentions, metrics, refused};

const RECIPE: &str = r#"
task = "in-context-regression"
device = "cpu"
dtype = "f32"

[data.regression]
dimensions = 2
points = 6
noise = 0.5
functions = 512
measured = 300

[data.batching]
max_tokens = 352

[model]
d_model = 16
d_ff = 32
heads = 2
decoder_layers = 1
positions = "learned"
max_positions = 11
embedding_dropout = 0.0
attention_dropout = 0.0
feed_forward_dropout = 0.1
residual_dropout = 0.0

[training]
accumulation = 2
max_updates = 12
log_every = 4
validate_every = 6
average_last = 2

[training.schedule]
kind = "constant"
learning_rate = 3e-3
warmup = 2
"#;

fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("tiny.toml", RECIPE);
    workspace
}

fn numbers(record: &Value, path: &str) -> Vec<f64> {
    let after = record["results"][0]["after"].as_array().expect("a list");
    after.iter().map(|at| at.pointer(path).and_then(Value::as_f64).expect("a number")).collect()
}

#[test]
fn functions_are_learnt_measured_and_drawn() {
    let workspace = workspace();
    let said = workspace.succeed("train tiny.toml --run run");
    mentions(
        &said,
        &["train: 512 linear functions an epoch, drawn anew in each", "after 4 examples"],
    );
    assert!(!said.contains("accuracy") && !said.contains("ppl"), "{said}");
    for log in metrics(&workspace.path("run")).iter().filter(|one| one["event"] == "log") {
        assert!(log.get("accuracy").is_none(), "{log}");
    }
    let json = workspace.succeed("evaluate run --json");
    let record: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(record["regression"]["points"], 6);
    let ridge = numbers(&record, "/of_answers/ridge");
    // Before any example, the expected squared error is 2 + 1/4: the number of dimensions plus the
    // variance of the noise.
    assert!((ridge[0] - 2.25).abs() < 0.6, "{ridge:?}");
    assert_eq!(numbers(&record, "/of_answers/least_squares")[0], ridge[0]);
    assert!(ridge.windows(2).all(|pair| pair[1] < pair[0]), "{ridge:?}");
    let distances = numbers(&record, "/model_from_ridge");
    let excess = numbers(&record, "/of_answers/model");
    assert!(distances.iter().zip(&excess).all(|(apart, error)| *apart > 0.0 && error.is_finite()));
    // If the data have no noise, two points determine a linear function of two dimensions, and the
    // regularisation of the ridge regression is 0.
    let clean = "evaluate run --json --split 'any name' --set";
    let record = workspace.json(format!("{clean} data.regression.noise=0"));
    let ridge = numbers(&record, "/of_answers/ridge");
    assert!(ridge[..2].iter().all(|error| *error > 0.1), "{ridge:?}");
    assert!(ridge[2..].iter().all(|error| *error < 1e-6), "{ridge:?}");
    assert_eq!(record["results"][0]["split"], "any name");

    workspace.succeed("report run --svg figures");
    for (figure, line) in [("test-examples", "ridge regression"), ("squared-error", "training")] {
        let file = workspace.path("figures").join(figure).with_extension("svg");
        assert!(fs::read_to_string(file).expect("a figure").contains(line), "{figure}");
    }
    assert!(!workspace.path("figures/loss.svg").exists());
    mentions(workspace.succeed("inspect run"), &["functions    of 2 dimensions, by 6 points"]);
}

#[test]
fn interruptions_and_processes_change_no_bit() {
    let workspace = workspace();
    workspace.succeed("train tiny.toml --run whole");
    workspace.succeed("train tiny.toml --run parts --set training.max_updates=7");
    workspace.succeed("resume parts --set training.max_updates=12");
    workspace.succeed("train tiny.toml --run two --processes 2");
    workspace.same_end("whole", "two", 12);
    let weights = |run: &str| {
        let file = workspace.path(run).join("checkpoints/step-00000012/model.safetensors");
        fs::read(file).expect("weights")
    };
    assert!(weights("whole") == weights("parts"), "the weights differ");
}

#[test]
fn what_has_no_meaning_for_functions_is_refused() {
    let workspace = workspace();
    let recipe = |set: &str, fragments: &[&str]| {
        let output = workspace.run(format!("train tiny.toml --run none --set {set}"));
        refused(&output, fragments);
        assert!(!workspace.path("none").exists(), "{set}");
    };
    recipe("data.regression.dimensions=0", &["data.regression.dimensions", "from 1 to 4096"]);
    recipe("data.regression.noise=-1", &["data.regression.noise"]);
    recipe("data.train={file=\"pairs.tsv\"}", &["data.train", "functions are drawn"]);
    recipe("training.early_stopping.metric=accuracy", &["predicts numbers", "loss"]);
    workspace.fail(
        "train tiny.toml --run long --set data.regression.points=7",
        &["13 tokens", "model.max_positions = 11", "data.regression.points = 6"],
    );
    workspace.fail(
        "train tiny.toml --run twice --set training.r_drop=1",
        &["training.r_drop", "set it to 0"],
    );
    workspace.succeed("train tiny.toml --run run");
    for (command, fragment) in [
        ("predict run", "taper evaluate"),
        ("translate run", "taper evaluate"),
        ("generate run --prompt x", "taper evaluate"),
        ("attention run x", "points of functions"),
        ("prune-heads run --dry-run", "heads are weighed"),
        ("export run folder", "in-context-regression"),
        ("tokenizer train tiny.toml --output folder", "no text to make a tokenizer of"),
    ] {
        workspace.fail(command, &[fragment]);
    }
    if cfg!(feature = "serve") {
        workspace.fail("serve run --address 127.0.0.1:0", &["is not served"]);
    }
}
