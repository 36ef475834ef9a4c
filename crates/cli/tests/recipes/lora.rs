//! Tests of runs with LoRA adapters: training, resuming, merging and other commands.

use std::collections::HashMap;
use std::fs;

use crate::common::{Workspace, mentions, refused};

const PARENT: &str = "train tiny.toml --run parent --set";

/// Returns the arguments that train adapters on `parent` as the run `name`, for `updates` updates.
fn adapted(name: &str, updates: usize) -> String {
    format!(
        "train tiny.toml --run {name} --from parent --set model.lora.rank=3 \
         --set model.lora.alpha=24 --set model.lora.dropout=0.2 \
         --set training.schedule.learning_rate=0.02 --set training.max_updates={updates}"
    )
}

/// Returns the names and shapes of the tensors in a file.
fn shapes(workspace: &Workspace, file: &str) -> HashMap<String, Vec<u64>> {
    let bytes = fs::read(workspace.path(file)).expect("weights");
    let size = u64::from_le_bytes(bytes[..8].try_into().expect("a size")) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + size]).expect("JSON");
    let entries = header.as_object().expect("a table").iter();
    let entries = entries.filter(|(name, _)| *name != "__metadata__");
    let shape = |entry: &serde_json::Value| {
        let shape = entry["shape"].as_array().expect("a shape").iter();
        shape.map(|size| size.as_u64().expect("a size")).collect()
    };
    entries.map(|(name, entry)| (name.clone(), shape(entry))).collect()
}

#[test]
fn adapters_are_trained_resumed_and_merged() {
    let workspace = Workspace::new();
    workspace.succeed(format!("{PARENT} training.max_updates=60"));
    workspace.succeed(adapted("child", 12));

    // A checkpoint has only the adapters and their optimizer state; the base weights are stored
    // once.
    let base = shapes(&workspace, "child/checkpoints/base.safetensors");
    assert_eq!(base, shapes(&workspace, "parent/checkpoints/step-00000060/model.safetensors"));
    let own = shapes(&workspace, "child/checkpoints/step-00000012/model.safetensors");
    assert!(own.keys().all(|name| name.contains(".lora_")), "{own:?}");
    let qkv = |factor: &str| &own[&format!("encoder.layers.0.self_attention.qkv.{factor}")];
    assert_eq!(*qkv("lora_a.2"), [3, 16]);
    assert_eq!(*qkv("lora_b.0"), [16, 3]);
    let moments = shapes(&workspace, "child/checkpoints/step-00000012/optimizer.safetensors");
    assert_eq!(moments.len(), 2 * own.len());

    // The run can be used without its parent.
    fs::rename(workspace.path("parent"), workspace.path("gone")).expect("rename");
    let translate = |run: &str, set: &str| {
        workspace.succeed(format!("translate {run} --input data/test.aa {set}"))
    };
    let translated = translate("child", "");
    workspace.succeed("merge child merged");
    let whole = shapes(&workspace, "merged/checkpoints/step-00000012/model.safetensors");
    assert_eq!(whole, base);
    assert_eq!(translate("merged", ""), translated);
    assert_eq!(translate("child", "--weights int8"), translate("merged", "--weights int8"));
    let probabilities = |run: &str| {
        workspace.succeed(format!("score {run} --source data/test.aa --target data/test.bb"))
    };
    assert_eq!(probabilities("child"), probabilities("merged"));
    mentions(workspace.succeed("inspect child"), &["are trained,", "qkv.lora_b.1"]);
    workspace.fail("merge merged again", &["merged", "no adapters"]);
    workspace.fail("merge child merged", &["merged exists"]);
    workspace.fail("quantize child", &["has adapters", "taper merge"]);

    // Both the merged run and the run with adapters can be parents, and give the same weights.
    fs::rename(workspace.path("gone"), workspace.path("parent")).expect("rename");
    for (name, from) in [("first", "child"), ("second", "merged")] {
        let all = format!("train tiny.toml --run {name} --from {from}");
        workspace.succeed(format!("{all} --set training.max_updates=2"));
    }
    workspace.same_end("first", "second", 2);
}

#[test]
fn an_interrupted_run_goes_on_to_the_bit() {
    let workspace = Workspace::new();
    workspace.succeed(format!("{PARENT} training.max_updates=20"));
    workspace.succeed(adapted("whole", 12));
    workspace.succeed(adapted("halves", 6));
    workspace.succeed("resume halves --set training.max_updates=12");
    workspace.same_end("whole", "halves", 12);
    let file = |run: &str, name: &str| {
        fs::read(workspace.path(run).join("checkpoints").join(name)).expect("a file")
    };
    for name in ["step-00000012/model.safetensors", "base.safetensors"] {
        assert!(file("whole", name) == file("halves", name), "{name}");
    }
    // With `--with-parent 0`, the average is the weights of the parent.
    workspace.succeed("average whole --last 1 --with-parent 0");
    let pair = "--source data/test.aa --target data/test.bb";
    let score = |run: &str| workspace.succeed(format!("score {run} {pair}"));
    assert_eq!(score("whole"), score("parent"));
    // A missing or changed base is an error.
    let base = workspace.path("halves/checkpoints/base.safetensors");
    let bytes = fs::read(&base).expect("a base");
    let mut other = bytes.clone();
    *other.last_mut().expect("a byte") ^= 1;
    fs::write(&base, other).expect("damage");
    let translate = "translate halves --input data/test.aa";
    workspace.fail(translate, &["base.safetensors", "corrupt"]);
    fs::remove_file(&base).expect("remove");
    workspace.fail(translate, &["base.safetensors is missing", "adapters"]);
    workspace.fail("resume halves --set training.max_updates=14", &["base.safetensors is missing"]);
    fs::write(&base, bytes).expect("write");
    workspace.succeed("resume halves --set training.max_updates=14");
}

#[test]
fn a_base_in_bf16_goes_on_to_the_bit_and_is_merged() {
    let workspace = Workspace::new();
    workspace.succeed(format!("{PARENT} training.max_updates=20"));
    for (name, updates) in [("whole", 12), ("halves", 6)] {
        workspace.succeed(format!("{} --set model.lora.base_dtype=bf16", adapted(name, updates)));
    }
    workspace.succeed("resume halves --set training.max_updates=12");
    workspace.same_end("whole", "halves", 12);
    workspace.succeed("merge whole merged");
    let translate = |run| workspace.succeed(format!("translate {run} --input data/test.aa"));
    assert_eq!(translate("merged"), translate("whole"));
    // The type of the base cannot be changed during a run.
    let resume = "resume whole --set training.max_updates=14";
    workspace.fail(format!("{resume} --set model.lora.base_dtype=f32"), &["model.lora.base_dtype"]);
}

#[test]
fn impossible_adapters_are_refused_before_anything_is_written() {
    let workspace = Workspace::new();
    workspace.succeed(format!("{PARENT} training.max_updates=2"));
    workspace.fail(
        "train tiny.toml --run child --set model.lora.rank=4",
        &["model.lora.rank = 4", "--from"],
    );
    let refuse = |set: &str, says: &[&str]| {
        let output = workspace.run(format!("{} --set {set}", adapted("child", 2)));
        refused(&output, says);
        assert!(!workspace.path("child").exists());
    };
    refuse(
        "model.lora.layers=['encoder.layers.0.self_attention.qvk']",
        &["model.lora.layers", "attention.qvk", "near it are", "self_attention.qkv"],
    );
    refuse("model.lora.layers=['embedding']", &["embedding", "model.lora.train"]);
    refuse("model.lora.alpha=-1", &["model.lora.alpha = -1.0"]);
    refuse("model.lora.dropout=1.0", &["model.lora.dropout"]);
    refuse("model.lora.ranks=4", &["ranks", "rank"]);
    // With another tokenizer, only a part of the embedding table can be taken, so the table must
    // not be frozen.
    let tokenizer = "tokenizer train tiny.toml -o tokenizer --set";
    workspace.succeed(format!("{tokenizer} data.tokenizer.vocabulary_size=280"));
    let path = "data.tokenizer.path=tokenizer/tokenizer.json";
    refuse(path, &["embedding.weight is not taken", "model.lora.train"]);
    let train = "model.lora.train=['*embedding.weight']";
    workspace.succeed(format!("{} --set {path} --set {train}", adapted("child", 2)));
    let own = shapes(&workspace, "child/checkpoints/step-00000002/model.safetensors");
    assert!(own.contains_key("embedding.weight"), "{own:?}");
}
