//! Tests of `taper finetune`: it makes a recipe and a run from a finished model and a text.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Workspace, mentions, refused, set};

/// Writes made-up sentences and their translations to files whose names do not show the languages.
fn own_text(workspace: &Workspace) {
    for (from, to) in [("aa", "here.txt"), ("bb", "there.txt")] {
        let file = workspace.path(&format!("data/train.{from}"));
        fs::copy(file, workspace.path(to)).expect("copy");
    }
}

/// Runs the program with `arguments`, for a training of `updates` updates with short translations.
fn briefly(workspace: &Workspace, arguments: &str, updates: usize) -> String {
    let few = set("training.schedule.kind=constant training.schedule.warmup=1 \
         training.validate_every=2 decoding.max_length=4");
    workspace.succeed(format!("{arguments} {few} --set training.max_updates={updates}"))
}

fn shown(workspace: &Workspace, run: &str) -> Value {
    let json = workspace.succeed(format!("config show {run}/config.toml --json"));
    serde_json::from_str(&json).expect("JSON")
}

#[test]
fn one_command_trains_a_run_on_and_it_is_a_run_like_any_other() {
    let workspace = Workspace::new();
    workspace.succeed("train tiny.toml --run parent");
    own_text(&workspace);
    let files = "finetune parent --pairs here.txt there.txt";
    let home = "--home data/train.aa data/train.bb";
    let said = briefly(&workspace, &format!("{files} {home}"), 4);
    mentions(
        &said,
        &[
            "200 examples and as many as 200 of home",
            "data/tiny-here",
            "tiny-here.toml: all weights",
            "weights of step 12 from",
            "test scores",
        ],
    );
    let config = shown(&workspace, "runs/tiny-here");
    assert_eq!(config["data"]["train"][1]["name"], "home");
    assert_eq!(config["model"]["d_model"], 16);
    // The division and the recipe are the same each time.
    workspace.succeed(format!("{files} {home} -o other.toml --data other --recipe-only"));
    for split in ["train.aa", "val.bb", "test.aa"] {
        let read = |folder: &str| fs::read(workspace.path(folder).join(split)).expect("a split");
        assert!(read("data/tiny-here") == read("other"), "{split}");
    }
    let read = |name: &str| workspace.read(name);
    let own = read("tiny-here.toml").replace("data/tiny-here", "tiny-here");
    // The first line differs, because it has the free memory.
    let rest = |text: &str| text.split_once('\n').expect("lines").1.to_owned();
    assert_eq!(rest(&own), rest(&read("other.toml").replace("other", "tiny-here")));

    // A resumed training gives the same weights as an uninterrupted training.
    briefly(&workspace, "train other.toml --from parent --run whole", 4);
    briefly(&workspace, "train other.toml --from parent --run halves", 2);
    briefly(&workspace, "resume halves", 4);
    workspace.same_end("whole", "halves", 4);

    // `--with-parent 0` gives the weights of the parent, and `--with-parent 1` those of the new
    // run. Scores are computed in f32, because the new run may have another data type: the one that
    // is fastest on this machine.
    let score = |run: &str, checkpoint: &str| {
        let files = "--source data/test.aa --target data/test.bb";
        workspace.succeed(format!("score {run} --weights f32 {files} {checkpoint}"))
    };
    let (parent, last) = (score("parent", ""), score("whole", "--checkpoint last"));
    for (share, expected) in [("0", Some(&parent)), ("1", Some(&last)), ("0.5", None)] {
        let average = format!("average whole --last 1 --with-parent {share}");
        mentions(workspace.succeed(&average), &["of ", "parent"]);
        let found = score("whole", "--checkpoint average");
        match expected {
            Some(expected) => assert_eq!(&found, expected, "{share}"),
            None => assert!(found != parent && found != last, "{share}"),
        }
    }
    workspace
        .fail("average parent --with-parent 0.5", &["did not begin with the weights of another"]);
    workspace.fail("average whole --with-parent 2", &["from 0 to 1"]);

    refused(&workspace.run(files), &["tiny-here.toml exists already", "taper train"]);
    for (arguments, says) in [
        ("nowhere --pairs here.txt there.txt", &["nowhere"][..]),
        ("data --pairs here.txt there.txt", &["data", "config.json"]),
        ("parent --pairs here.txt", &["here.txt", "one file has to have both sides"]),
        ("parent --pairs gone.aa gone.bb", &["gone.aa"]),
        ("parent --pairs here.txt there.txt --columns 1", &["--columns 1"]),
        ("parent --labels here.txt --task classification", &["translation", "does not begin"]),
        ("parent --pairs here.txt --task tagging", &["tagging", "recipe"]),
        ("parent --pairs here.txt there.txt --home gone.aa gone.bb", &["--home", "gone.aa"]),
    ] {
        workspace.fail(format!("finetune {arguments} -o new.toml"), says);
        assert!(!workspace.path("new.toml").exists(), "{arguments:?}");
        // The divided text is removed, so that the command can be repeated.
        assert!(!workspace.path("data/new").exists(), "{arguments:?}");
    }
    let nowhere = "finetune parent --pairs here.txt there.txt -o gone/new.toml --data divided";
    workspace.fail(nowhere, &["gone/new.toml"]);
    assert!(!workspace.path("divided").exists());
}

#[test]
fn memory_decides_between_all_weights_and_adapters() {
    let workspace = Workspace::new();
    workspace.succeed("train tiny.toml --run parent --set model.d_model=128 --set model.d_ff=512");
    own_text(&workspace);
    let propose = |memory: &str, recipe: &str| {
        let files = "finetune parent --pairs here.txt there.txt --recipe-only";
        let folder = recipe.trim_end_matches(".toml");
        workspace.succeed(format!("{files} --memory {memory} -o {recipe} --data {folder}"));
        workspace.read(recipe)
    };
    assert!(!propose("2GiB", "all.toml").contains("\n[model"));
    let adapted = propose("12MiB", "adapters.toml");
    mentions(&adapted, &["\n[model.lora]\n"]);
    assert!(adapted.contains("Adapters (LoRA), about") && adapted.contains("rank = 16"));
    let tight = propose("1MiB", "tight.toml");
    mentions(&tight, &["base_dtype = \"bf16\""]);
    let said = briefly(&workspace, "train tight.toml --from parent --run trained", 4);
    mentions(&said, &["trained,", "frozen"]);
}

#[test]
fn a_folder_of_transformers_is_imported_once_and_trained_on() {
    let workspace = Workspace::new();
    let golden = |name: &str| {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../run/tests/golden").join(name);
        golden.to_str().expect("a path").to_owned()
    };
    let line = |i: usize| match i % 2 {
        0 => format!("fine\tNothing is lost {i}\n"),
        _ => format!("dull\tThe seagulls sail on {i}\n"),
    };
    workspace.write("reviews.tsv", (0..90).map(line).collect::<String>());
    let bert = golden("bert");
    let labels = "--labels reviews.tsv --task classification";
    let said = briefly(&workspace, &format!("finetune {bert} {labels}"), 2);
    mentions(&said, &["90 examples", "tensors"]);
    let config = shown(&workspace, "runs/bert-reviews");
    assert_eq!(config["task"], "classification");
    assert_eq!(config["data"]["labelled"]["labels"], serde_json::json!(["dull", "fine"]));
    workspace.succeed(format!("finetune {bert} {labels} --recipe-only -o again.toml --data again"));
    // A classifier with the same labels can be trained further.
    let on = "finetune runs/bert-reviews --labels reviews.tsv --recipe-only";
    workspace.succeed(format!("{on} -o on.toml --data on"));
    // Another folder with the same name is not taken for the imported one.
    let other = workspace.path("elsewhere/bert");
    fs::create_dir_all(&other).expect("folder");
    fs::copy(Path::new(&bert).join("config.json"), other.join("config.json")).expect("copy");
    let other = other.to_str().expect("a path").to_owned();
    let output = workspace.run(format!("finetune {other} {labels}"));
    refused(&output, &["runs/bert exists already", "taper import"]);

    let text: String = (0..400).map(|i| format!("The seagulls sail on, and on, {i}.\n")).collect();
    workspace.write("book.txt", text);
    let gpt2 = golden("gpt2");
    let said = briefly(&workspace, &format!("finetune {gpt2} --texts book.txt"), 2);
    mentions(&said, &["gpt2-book.toml: all weights"]);
    workspace.write("one.tsv", "a\tone\na\ttwo\n".repeat(30));
    let one = format!("finetune {bert} --labels one.tsv --task classification");
    refused(&workspace.run(&one), &["same label"]);
}
