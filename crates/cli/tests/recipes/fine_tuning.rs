//! Tests of `taper train --from`: a new run begins with the weights of another run, its parent.

use std::collections::HashMap;
use std::fs;

use crate::common::{Workspace, mentions, metrics, set, stderr, stdout};

const FROM: &str = "train tiny.toml --run child --from parent";

/// Returns the loss in the first line of a run's metrics.
fn first_loss(workspace: &Workspace, run: &str) -> f64 {
    metrics(&workspace.path(run))[0]["loss"].as_f64().expect("a loss")
}

#[test]
fn a_new_run_begins_with_the_weights_and_tokenizer_of_another() {
    let workspace = Workspace::new();
    workspace.succeed("train tiny.toml --run parent --set training.max_updates=60");
    workspace.train("fresh");
    // The vocabulary size of the recipe is ignored, because the tokenizer is that of the parent.
    let output = workspace.finish(format!("{FROM} --set data.tokenizer.vocabulary_size=290"));
    let said = stdout(&output);
    mentions(
        &said,
        &[
            "weights of step 60 from",
            "averaged",
            "taken      decoder.final_norm",
            "encoder.layers.0",
            "decoder.layers.0",
            "vocabulary_size is 300 but was 290",
            "new        optimizer",
            "training in child from step 0",
        ],
    );
    assert!(first_loss(&workspace, "child") < first_loss(&workspace, "fresh") - 0.5);
    let file = |run: &str| fs::read(workspace.path(run).join("tokenizer.json")).expect("a file");
    assert!(file("child") == file("parent"));
    // Steps are counted from 0 again.
    let state: serde_json::Value = serde_json::from_slice(
        &fs::read(workspace.path("child/checkpoints/step-00000012/state.json")).expect("state"),
    )
    .expect("JSON");
    assert_eq!(state["step"], 12);
    assert_eq!(state["parent"]["step"], 60);
    assert_eq!(state["parent"]["sha256"].as_str().map(str::len), Some(64));
    assert!(!workspace.path("child/checkpoints/step-00000000").exists(), "it has served");
    mentions(workspace.succeed("inspect child"), &["first weights from", "step 60"]);
    let shown = workspace.json("inspect child --json");
    assert!(shown["parent"]["path"].as_str().expect("a path").contains("parent/checkpoints"));
    // The parent is not needed any more.
    fs::remove_dir_all(workspace.path("parent")).expect("remove");
    workspace.succeed("resume child --set training.max_updates=14");
}

#[test]
fn what_fits_another_model_is_taken_where_that_is_meant() {
    let workspace = Workspace::new();
    workspace.train("parent");
    let deeper = format!("{FROM} --set model.encoder_layers=2");
    workspace.fail(&deeper, &["weights from parent", "model.encoder_layers is 2 but was 1"]);
    workspace.fail(
        format!("{FROM} --set model.heads=4"),
        &["model.heads is 4 but was 2", "--accept-changes"],
    );
    assert!(!workspace.path("child").exists());
    let output = workspace.finish(format!("{deeper} --accept-changes --json"));
    let first = stdout(&output).lines().next().expect("a line").to_owned();
    let event: serde_json::Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(event["event"], "warm_start");
    let drawn = event["weights"]["drawn"].as_array().expect("a list");
    assert!(!drawn.is_empty());
    for one in drawn {
        assert!(one["name"].as_str().expect("a name").starts_with("encoder.layers.1."), "{one}");
    }
    // Dropout does not affect the shape of weights, so it may differ.
    workspace.succeed("train tiny.toml --from parent --run other --set model.residual_dropout=0.3");
}

/// Keys of `[model]` that a recipe does not set have the values of the parent.
#[test]
fn the_model_of_the_parent_holds_where_the_recipe_sets_no_key() {
    let workspace = Workspace::new();
    let shape = "model.activation=gelu model.norm=post model.norm_epsilon=1e-6";
    workspace.succeed(format!("train tiny.toml --run parent {}", set(shape)));
    let recipe = workspace.read("tiny.toml");
    let (before, rest) = recipe.split_once("[model]").expect("a section");
    let (_, after) = rest.split_once("[training]").expect("a section");
    workspace.write("bare.toml", format!("{before}[training]{after}"));
    let train = |run: &str, settings: &str| {
        workspace.run(format!("train bare.toml --run {run} --from parent {}", set(settings)))
    };
    // The recipe's own setting of dropout applies. A key that has no effect on this model is
    // accepted.
    let output =
        train("child", "model.residual_dropout=0.3 model.max_positions=77 model.recurrent.width=9");
    assert!(output.status.success(), "{}", stderr(&output));
    let model = |run: &str| -> HashMap<String, String> {
        let text = fs::read_to_string(workspace.path(run).join("config.toml")).expect("a recipe");
        let (_, section) = text.split_once("\n[model]\n").expect("a section");
        let keys = section.lines().map_while(|line| line.split_once(" = "));
        keys.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    let [parent, child] = ["parent", "child"].map(model);
    assert!(parent.len() > 20, "{parent:?}");
    for (key, value) in &parent {
        let is_set = ["residual_dropout", "max_positions"].contains(&key.as_str());
        assert_eq!(child[key] == *value, !is_set, "{key}");
    }
    // The run can be resumed without its parent.
    let settings = set("model.residual_dropout=0.3 training.max_updates=14");
    fs::rename(workspace.path("parent"), workspace.path("moved")).expect("rename");
    workspace.succeed(format!("train bare.toml --run child --from parent --resume {settings}"));
    // A run in the default folder, which has the name in the recipe, can also be resumed without
    // its parent.
    let named = format!("train bare.toml --from parent --resume --set name=child {settings}");
    fs::create_dir(workspace.path("runs")).expect("folder");
    fs::rename(workspace.path("child"), workspace.path("runs/child")).expect("rename");
    workspace.succeed(format!("{named} --set training.max_updates=16"));
    fs::rename(workspace.path("runs/child"), workspace.path("child")).expect("rename");
    fs::rename(workspace.path("moved"), workspace.path("parent")).expect("rename");
    // A key that the recipe sets and that changes the model is refused, with both values.
    for (set, says) in [
        ("model.d_model=32", "model.d_model is 32 but was 16"),
        ("model.activation=relu", "model.activation is \"relu\" but was \"gelu\""),
        ("model.decoder_layers=2", "model.decoder_layers is 2 but was 1"),
    ] {
        crate::common::refused(&train("other", set), &["weights from parent", says]);
        assert!(!workspace.path("other").exists());
    }
}

#[test]
fn a_parent_that_cannot_be_one_is_refused_before_anything_is_written() {
    let workspace = Workspace::new();
    workspace.fail(FROM, &["weights from parent", "no such run"]);
    workspace.train("parent");
    workspace
        .succeed("tokenizer train tiny.toml -o tokenizer --set data.tokenizer.vocabulary_size=280");
    // With another tokenizer, the embeddings of tokens that both vocabularies have are taken.
    let other = "--run other --set data.tokenizer.path=tokenizer/tokenizer.json";
    let said = workspace.succeed(format!("train tiny.toml --from parent {other}"));
    mentions(&said, &["embedding.weight: the rows of ", "its own"]);
    let weights = workspace.path("parent/checkpoints/averaged/model.safetensors");
    let bytes = fs::read(&weights).expect("weights");
    fs::write(&weights, &bytes[..bytes.len() / 2]).expect("damage");
    workspace.fail(FROM, &["model.safetensors", "truncated"]);
    assert!(!workspace.path("child").exists());
    // `--from` may also name a checkpoint.
    workspace.succeed(format!("{FROM}/checkpoints/step-00000012"));
}

/// Returns the tensors of a checkpoint by name, as bytes.
fn tensors(workspace: &Workspace, run: &str, step: u64) -> HashMap<String, Vec<u8>> {
    let file = format!("{run}/checkpoints/step-{step:08}/model.safetensors");
    let bytes = fs::read(workspace.path(&file)).expect("weights");
    let size = u64::from_le_bytes(bytes[..8].try_into().expect("a size")) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + size]).expect("JSON");
    let of = |value: &serde_json::Value| value.as_u64().expect("an offset") as usize + 8 + size;
    let tensor = |(name, entry): (&String, &serde_json::Value)| {
        let offsets = &entry["data_offsets"];
        (name.clone(), bytes[of(&offsets[0])..of(&offsets[1])].to_vec())
    };
    let entries = header.as_object().expect("a table").iter();
    entries.filter(|(name, _)| *name != "__metadata__").map(tensor).collect()
}

#[test]
fn parts_are_taken_and_frozen_parameters_keep_their_bits() {
    let workspace = Workspace::new();
    workspace.train("parent");
    let from = "--from parent/checkpoints/step-00000012";
    let train = |run: &str, updates: &str| {
        let first = format!("train tiny.toml --run {run} --set training.max_updates={updates}");
        workspace.succeed(format!("{first} {from} --only encoder,embeddings --freeze encoder.*"))
    };
    let said = train("child", "12");
    for part in
        ["taken      embedding, encoder.final_norm", "not taken  decoder.final_norm", "that run's"]
    {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let [parent, child] = ["parent", "child"].map(|run| tensors(&workspace, run, 12));
    assert_eq!(parent.len(), child.len());
    let mut frozen = 0;
    for (name, tensor) in &child {
        let is_frozen = name.starts_with("encoder.");
        frozen += usize::from(is_frozen);
        // All other parameters have been trained.
        assert_eq!(*tensor == parent[name], is_frozen, "{name}");
    }
    assert!(frozen > 5 && frozen < child.len());
    // A resumed run keeps the same parameters frozen.
    train("halves", "6");
    workspace.succeed("resume halves --set training.max_updates=12");
    assert!(tensors(&workspace, "halves", 12) == child);
    workspace.same_end("child", "halves", 12);

    // The weights are taken before the first update.
    let beginning = "--run begun --set training.max_updates=1";
    let all = "--freeze decoder.*";
    workspace.succeed(format!("train tiny.toml {beginning} {from} --only decoder {all}"));
    let begun = tensors(&workspace, "begun", 1);
    assert!(
        begun
            .iter()
            .all(|(name, tensor)| { (*tensor == parent[name]) == name.starts_with("decoder.") })
    );

    let refused = |more: &str, says: &[&str]| {
        workspace.fail(format!("train tiny.toml --run none {more}"), says);
        assert!(!workspace.path("none").exists());
    };
    let near = ["training.freeze", "encodr.final_norm", "near it are encoder.final_norm"];
    refused("--freeze encodr.final_norm.*", &near);
    refused("--freeze *", &["no parameter to be trained"]);
    refused(&format!("{from} --only encodes"), &["parts to take", "matches no parameter"]);
    refused("--only encoder", &["required arguments were not provided"]);
}

#[test]
fn a_tokenizer_of_its_own_shares_tokens_with_the_parents() {
    let workspace = Workspace::new();
    workspace.succeed("train tiny.toml --run parent --set training.max_updates=60");
    let own = "--own-tokenizer --set data.tokenizer.vocabulary_size=290 --json";
    let said = workspace.succeed(format!("{FROM} {own}"));
    let first: serde_json::Value =
        serde_json::from_str(said.lines().next().expect("a line")).expect("JSON");
    let table = &first["weights"]["partly"][0];
    assert_eq!((&table["name"], &table["of"]), (&"embedding.weight".into(), &290.into()));
    // Merges are learnt in a fixed order, so the smaller vocabulary is a part of the larger one.
    assert!(table["rows"].as_u64().expect("a number") > 280, "{table}");
    workspace.train("fresh");
    assert!(first_loss(&workspace, "child") < first_loss(&workspace, "fresh") - 0.5);
    let file = |run: &str| fs::read(workspace.path(run).join("tokenizer.json")).expect("a file");
    assert!(file("child") != file("parent"));
}

#[test]
fn layers_near_the_input_learn_more_slowly() {
    let workspace = Workspace::new();
    workspace.train("parent");
    let change = |run: &str, decay: &str| -> f64 {
        let set = format!("training.layer_decay={decay}");
        let from = format!("--from parent/checkpoints/step-00000012 --set {set}");
        let first = format!("train tiny.toml --run {run} --set training.max_updates=1");
        workspace.succeed(format!("{first} {from}"));
        let [before, after] =
            [tensors(&workspace, "parent", 12), tensors(&workspace, run, 1)].map(|all| {
                let bytes = all["embedding.weight"].clone();
                let value = |four: &[u8]| f32::from_le_bytes(four.try_into().expect("four"));
                bytes.chunks_exact(4).map(value).collect::<Vec<_>>()
            });
        before.iter().zip(&after).map(|(a, b)| f64::from((a - b).abs())).sum()
    };
    let [whole, half] = [change("whole", "1"), change("half", "0.5")];
    // The learning rate is halved with each step down from the head. With one layer, the embedding
    // is two steps below the head, so its rate is 0.5² times that of the head.
    assert!((half / whole - 0.25).abs() < 2e-2, "{half} of {whole}");
    let first = "train tiny.toml --run none --set training.layer_decay=1.5";
    workspace.fail(first, &["training.layer_decay is 1.5"]);
}

/// Checks that a run that is killed before its first own checkpoint continues from the parent's
/// weights.
#[cfg(unix)]
#[test]
fn a_run_that_is_killed_early_still_begins_with_its_parents_weights() {
    let workspace = Workspace::new();
    workspace.train("parent");
    workspace.succeed(FROM);
    let mut child = workspace
        .spawn(format!("train tiny.toml --run killed --from parent {}", crate::common::LONG));
    let beginning = workspace.path("killed/checkpoints/step-00000000");
    crate::common::wait_for("the beginning", || beginning.is_dir());
    let config = workspace.path("killed/config.toml");
    crate::common::wait_for("the configuration", || config.is_file());
    crate::common::signal("-KILL", &child);
    child.wait().expect("ended");
    let ends = "--set training.max_updates=12 --set training.validate_every=6";
    workspace.succeed(format!("resume killed {ends}"));
    workspace.same_end("child", "killed", 12);
}
