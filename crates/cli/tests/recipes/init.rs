//! Tests of `taper init` and `taper train --dry-run`.

use std::fs;
use std::path::Path;

use crate::common::{Workspace, mentions, refused, stderr, stdout};
use serde_json::Value;

/// Returns the sorted paths of all files and folders inside a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("folder") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            found.extend(names(&path));
        }
        found.push(path.display().to_string());
    }
    found.sort();
    found
}

#[test]
fn a_dry_run_says_what_training_takes_and_keeps_nothing() {
    let workspace = Workspace::new();
    fs::create_dir(workspace.path("tmp")).expect("folder");
    let before = names(&workspace.path(""));
    let dry_run = |extra: &str| {
        let mut command = workspace.command(format!("train tiny.toml --dry-run {extra}"));
        let output = command.env("TMPDIR", workspace.path("tmp")).output().expect("the binary");
        assert_eq!(names(&workspace.path("")), before);
        output
    };
    let shown = stdout(&dry_run(""));
    mentions(
        &shown,
        &["200 pairs read", "parameters", "measured: 20 updates", "at most 12 updates"],
    );
    let output = dry_run("--json --set data.batching.max_tokens=auto");
    let text = stdout(&output);
    let record: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&record["event"], &record["last_update"]), (&"dry_run".into(), &12.into()));
    let seconds = |key: &str| record[key].as_f64().expect("a number");
    let estimated = 12.0 * seconds("seconds_per_update");
    assert!((seconds("estimated_seconds") - estimated).abs() < 1e-6, "{record}");
    assert!(record["max_tokens"].as_u64().expect("found") > 200, "{record}");
    // The shares of operations, and of the time between them, add up to 1.
    let arithmetic = &record["arithmetic"];
    let operations = arithmetic["operations"].as_array().expect("operations");
    let share = |one: &Value| one["share"].as_f64().expect("a share");
    let all: f64 = operations.iter().map(share).sum();
    assert!((all - 1.0).abs() < 1e-6, "{arithmetic}");
    let reached = |one: &Value| share(one) * one["of_peak"].as_f64().unwrap_or(0.0);
    let of_all = arithmetic["share_of_peak"].as_f64().unwrap_or(0.0);
    let of_each: f64 = operations.iter().map(reached).sum();
    assert!((of_each - of_all).abs() < 1e-6, "{arithmetic}");
    // Errors that would prevent a training also end a dry run.
    let output = dry_run("--set data.train=nothing");
    refused(&output, &["nothing.aa"]);
    let output = dry_run("--memory 1MiB");
    refused(&output, &["1.0 MiB"]);
}

#[test]
fn two_files_become_a_recipe_that_trains() {
    let workspace = Workspace::new();
    let join = |language: &str| {
        ["train", "val", "test"].map(|split| workspace.read(&format!("data/{split}.{language}")))
    };
    // The names of the files show no languages, and there is no validation set.
    workspace.write("here.txt", join("aa").concat());
    workspace.write("there.txt", join("bb").concat());
    let arguments = "init here.txt there.txt";
    refused(&workspace.run_with_input(arguments, b""), &["--source-language", "--target-language"]);
    let named = format!("{arguments} --source-language aa --target-language bb");
    let shown = workspace.succeed(&named);
    for fragment in ["224 pairs", "data/here-aa-bb", "here-aa-bb.toml: 4 + 4 layers", "estimate: "]
    {
        assert!(shown.contains(fragment), "`{fragment}` is not in: {shown}");
    }
    let lines = |split: &str| {
        let path = workspace.path(&format!("data/here-aa-bb/{split}.aa"));
        fs::read_to_string(path).expect("a split").lines().count()
    };
    assert_eq!(lines("train") + lines("val") + lines("test"), 224);
    assert!(lines("val") >= 5 && lines("test") >= 5);
    assert!(!workspace.path("runs").exists(), "the estimate leaves no run");
    workspace.succeed("config check here-aa-bb.toml");
    // Editors find the schema that the first line names.
    let recipe = workspace.read("here-aa-bb.toml");
    let named_schema = recipe.lines().next().and_then(|line| line.strip_prefix("#:schema ./"));
    let schema = fs::read(workspace.path(named_schema.expect("a schema"))).expect("a file");
    let schema: Value = serde_json::from_slice(&schema).expect("JSON");
    assert!(schema["properties"]["training"].is_object());
    let few = "--set training.max_updates=2 --set decoding.max_length=4";
    mentions(workspace.succeed(format!("train here-aa-bb.toml {few}")), &["test scores"]);

    // Nothing is overwritten.
    let output = workspace.run(&named);
    refused(&output, &["here-aa-bb.toml exists already"]);
    let other = format!("{named} -o other.toml --data data/here-aa-bb");
    workspace.fail(&other, &["data/here-aa-bb exists already"]);
    assert!(!workspace.path("other.toml").exists());
    workspace.write("short.txt", "one\n");
    workspace.fail(
        "init here.txt short.txt --source-language a --target-language b",
        &["here.txt has 224 lines", "short.txt has 1"],
    );
}

#[test]
fn text_with_a_validation_set_is_taken_as_it_lies() {
    let workspace = Workspace::new();
    let said = workspace.succeed("init data/train.aa data/train.bb --no-measure -o my.toml");
    mentions(&said, &["validated on `val`, tested on `test`"]);
    let recipe = workspace.json("config show my.toml --json");
    assert_eq!(recipe["name"], "my");
    assert_eq!(recipe["data"]["dir"].as_str(), workspace.path("data").to_str());
    assert_eq!(recipe["data"]["test"], "test");
    assert_eq!(names(&workspace.path("data")).len(), 6);

    // A recipe in another folder has the path of the text relative to this folder.
    fs::create_dir(workspace.path("recipes")).expect("folder");
    workspace.succeed("init data/train.aa data/train.bb --no-measure -o recipes/my.toml");
    mentions(workspace.read("recipes/my.toml"), &["dir = \"../data\"\n"]);

    // A table with named columns.
    let rows: String = (0..200).map(|at| format!("{at}\tword {at}\tWort {at}\n")).collect();
    workspace.write("words.tsv", format!("id\tenglish\tgerman\n{rows}"));
    let table = "init words.tsv --no-measure --columns english,german";
    let languages = "--source-language en --target-language de";
    mentions(workspace.succeed(format!("{table} {languages}")), &["200 pairs", "data/words-en-de"]);
    workspace.succeed("config check words-en-de.toml");
}

#[test]
fn what_is_not_given_is_asked() {
    let workspace = Workspace::new();
    workspace.write("here.txt", "a\nb\n".repeat(60));
    fs::copy(workspace.path("here.txt"), workspace.path("there.txt")).expect("copy");
    let ask = |answers: &str| workspace.run_with_input("init --no-measure", answers.as_bytes());
    let output = ask("data/train.aa\ndata/train.bb\n");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("File of sentences"), "{}", stderr(&output));
    assert!(workspace.path("data-aa-bb.toml").is_file());
    refused(&ask(""), &["no answer"]);
    refused(&ask("here.txt\nthere.txt\nen\nde\n"), &["too few"]);
    refused(&ask("here.txt\nthere.txt\nen\nen\n"), &["both languages are `en`"]);
}
