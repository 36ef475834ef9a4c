//! Tests of a user's own text: files named by path, tables, a held-out validation set, and several
//! corpora. Commands must work from any current folder.

use std::fs;
use std::process::Command;

use crate::common::{Workspace, mentions, stderr, stdout, words};

/// Writes `recipes/mine.toml`: the tiny recipe with `data` as its section `[data]`.
fn recipe(workspace: &Workspace, data: &str) {
    let tiny = workspace.read("tiny.toml");
    let (head, rest) = tiny.split_once("[data]\n").expect("[data]");
    let (_, tail) = rest.split_once("\n[data.tokenizer]").expect("[data.tokenizer]");
    fs::create_dir_all(workspace.path("recipes")).expect("folder");
    let languages = "source_language = \"aa\"\ntarget_language = \"bb\"\n";
    workspace.write(
        "recipes/mine.toml",
        format!("{head}[data]\n{languages}{data}\n[data.tokenizer]{tail}"),
    );
}

/// Returns the pairs of source and target lines of the training text.
fn pairs(workspace: &Workspace) -> Vec<(String, String)> {
    let read = |name: &str| workspace.read(name);
    let (source, target) = (read("data/train.aa"), read("data/train.bb"));
    source.lines().map(str::to_owned).zip(target.lines().map(str::to_owned)).collect()
}

#[test]
fn two_files_and_a_held_out_set_are_a_corpus_from_any_folder() {
    let workspace = Workspace::new();
    recipe(
        &workspace,
        "train = { source = \"../data/train.aa\", target = \"../data/train.bb\" }\nhold_out = 20",
    );
    let said = workspace.succeed("train recipes/mine.toml --run run");
    mentions(
        &said,
        &["held-out: 20 pairs read", "held out for validation", "validation: smoothed loss"],
    );
    // The recipe names no test set, so none is scored.
    assert!(!said.contains("test scores"), "{said}");
    let config = workspace.read("run/config.toml");
    let absolute = workspace.path("data/train.aa").canonicalize().expect("a path");
    mentions(&config, &[absolute.to_str().expect("UTF-8")]);
    // The run is moved, and used from another folder.
    fs::create_dir(workspace.path("elsewhere")).expect("folder");
    fs::rename(workspace.path("run"), workspace.path("elsewhere/moved")).expect("move");
    let from_elsewhere = |arguments: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_taper"))
            .current_dir(workspace.path("elsewhere"))
            .args(words(arguments))
            .output()
            .expect("the binary runs");
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    mentions(from_elsewhere("evaluate moved --split held-out"), &["held-out (20 sentences)"]);
    from_elsewhere("resume moved --set training.max_updates=14");
    let held = workspace.read("elsewhere/moved/text/held-out.aa");
    assert_eq!(held.lines().count(), 20);
}

#[test]
fn the_same_recipe_resumes_what_it_held_out() {
    let workspace = Workspace::new();
    recipe(
        &workspace,
        "train = { source = \"../data/train.aa\", target = \"../data/train.bb\" }\nhold_out = 20",
    );
    workspace.succeed("train recipes/mine.toml --run run");
    let again = "train recipes/mine.toml --run run --resume";
    workspace.succeed(format!("{again} --set training.max_updates=14"));
    workspace.fail(format!("{again} --set data.hold_out=10"), &["data.hold_out is 10"]);
    recipe(&workspace, "train = \"train\"\nvalidation = \"val\"\nhold_out = 20");
    workspace.fail(
        "train recipes/mine.toml --run both",
        &["data.hold_out", "data.validation names another"],
    );
}

#[test]
fn tables_with_weights_and_tags_are_trained_on() {
    let workspace = Workspace::new();
    let pairs = pairs(&workspace);
    let table: String =
        pairs[..100].iter().map(|(source, target)| format!("{source}\t{target}\n")).collect();
    let quoted: String = pairs[100..]
        .iter()
        .map(|(source, target)| format!("\"{target}\",\"{source}\"\n"))
        .collect();
    recipe(
        &workspace,
        "dir = \"../data\"\ntest = \"test\"\nvalidation = \"val\"\ntrain = [{ file = \"first.tsv\", weight = 2 }, { file = \"second.csv\", tag = \"<x>\" }]",
    );
    workspace.write("recipes/first.tsv", table);
    workspace.write("recipes/second.csv", format!("bb,aa\n{quoted}"));
    let said = workspace.succeed("train recipes/mine.toml --run run");
    mentions(
        &said,
        &[
            "first+second: 200 pairs read, 200 kept",
            "  first: 100 read, 100 kept, weight 2\n",
            "  second: 100 read, 100 kept, <x> before each source\n",
            "test (12 sentences)",
        ],
    );
    let pieces = workspace.run_with_input("tokenizer encode run --pieces", b"<x> cat\n");
    assert!(stdout(&pieces).starts_with("<x> "), "{}", stdout(&pieces));
    workspace.succeed("resume run --set training.max_updates=14");
}

#[test]
fn a_header_is_not_trained_on_and_duplicates_are_counted() {
    let workspace = Workspace::new();
    let table: String =
        pairs(&workspace).iter().map(|(source, target)| format!("{source}\t{target}\n")).collect();
    recipe(&workspace, "train = { file = \"mine.tsv\" }");
    workspace.write("recipes/mine.tsv", format!("source\ttarget\n{table}{table}"));
    workspace.fail(
        "train recipes/mine.toml --run run",
        &["mine.tsv, line 1: looks like a header (source, target)", "data.fields"],
    );
    assert!(!workspace.path("run").exists());
    let fields = "--set 'data.fields={source=\"source\", target=\"target\"}'";
    let said = workspace.succeed(format!(
        "train recipes/mine.toml --run run {fields} --set data.cleaning.drop_duplicates=true"
    ));
    mentions(&said, &["mine: 400 pairs read"]);
    let data: serde_json::Value =
        serde_json::from_slice(&fs::read(workspace.path("run/data.json")).expect("data.json"))
            .expect("JSON");
    let duplicates = data["train"]["dropped"]["duplicate"].as_u64().expect("a count");
    assert!(duplicates >= 200 && said.contains(&format!("duplicate {duplicates}")), "{said}");
}

#[test]
fn text_that_was_compressed_meanwhile_is_the_same_text() {
    let workspace = Workspace::new();
    workspace.train("run");
    let output = workspace.script(&["sh"], "gzip data/train.aa data/train.bb data/val.bb");
    assert!(output.status.success(), "{}", stderr(&output));
    workspace.succeed("resume run --set training.max_updates=14");
}

#[test]
fn a_path_on_the_command_line_is_relative_to_the_current_folder() {
    let workspace = Workspace::new();
    recipe(&workspace, "train = \"train\"\nvalidation = \"val\"\ntest = []");
    let said = workspace.fail("train recipes/mine.toml --run run", &["train.aa"]);
    mentions(&said, &["recipes/data/train.aa"]);
    workspace.succeed("train recipes/mine.toml --run run --set data.dir=data");
}

#[test]
fn running_text_is_a_file_at_any_place_too() {
    let workspace = Workspace::of_text();
    let line = "the quick brown fox, 7 lazy dogs; and a sea.\n";
    workspace.write("mine.md", line.repeat(60));
    let tiny = workspace.read("tiny.toml");
    let own = tiny
        .replace("dir = \"data\"\ntrain = \"text\"", "train = { file = \"../mine.md\" }")
        .replace("validation = \"\"\ntest = []\n", "");
    fs::create_dir(workspace.path("recipes")).expect("folder");
    workspace.write("recipes/mine.toml", own);
    let said = workspace.succeed("train recipes/mine.toml --run run");
    mentions(&said, &["validation: loss", "taper evaluate run"]);
    mentions(workspace.succeed("evaluate run"), &["mine, held out"]);
    workspace.succeed("resume run --set training.max_updates=14");
}

#[test]
fn patterns_that_do_not_fit_are_told_with_what_they_match() {
    let workspace = Workspace::new();
    for name in ["p.1.aa", "p.2.aa", "p.1.bb", "p.3.bb", "q.1.bb"] {
        workspace.write(&format!("data/{name}"), "red cat\n");
    }
    let refuse = |source: &str, target: &str, said: &[&str]| {
        let data =
            format!("train = {{ source = \"../data/{source}\", target = \"../data/{target}\" }}");
        recipe(&workspace, &data);
        workspace.fail("train recipes/mine.toml --run run", said);
        assert!(!workspace.path("run").exists(), "nothing has begun");
    };
    refuse("none.*.aa", "none.*.bb", &["none.*.aa: no such file", "no file matches this pattern"]);
    refuse("p.*.aa", "q.*.bb", &["q.*.bb: matches 1 files", "p.*.aa matches 2", "p.2.aa"]);
    refuse("p.*.aa", "p.*.bb", &["p.*.bb: matches 2 files", "p.2.aa", "wildcards"]);
    fs::create_dir(workspace.path("data/p.5.aa")).expect("folder");
    refuse("p.*.aa", "p.*.bb", &["p.*.aa: matches", "p.5.aa, which is a folder"]);
    recipe(&workspace, "train = { file = [\"a.tsv\", \"b.csv\"] }");
    workspace.fail("train recipes/mine.toml --run run", &["b.csv: is another kind of file than"]);
    // The files that a pattern matches are shown.
    recipe(&workspace, "train = { source = \"../data/p.[12].aa\", target = \"../data/?.1.bb\" }");
    let shown = workspace.fail("config show recipes/mine.toml", &["p.1.aa"]);
    drop(shown);
    recipe(&workspace, "train = { source = \"../data/p.[1].aa\", target = \"../data/q.?.bb\" }");
    let said = workspace.succeed("config show recipes/mine.toml");
    mentions(&said, &["data/p.1.aa\"", "data/q.1.bb\""]);
}
