//! Tests of model folders of the library Transformers: they are imported, asked for predictions,
//! and exported again.

use std::fs;
use std::path::Path;

use crate::common::{Workspace, golden, json_lines, mentions, stderr, stdout};

fn import(workspace: &Workspace, name: &str) {
    workspace.succeed(format!("import {} run", golden(name).to_str().expect("a path")));
}

#[test]
fn a_tab_makes_a_pair_of_a_line_for_an_imported_classifier() {
    let workspace = Workspace::of_text();
    import(&workspace, "bert-classifier");
    let ask = |settings: &str, input: &str| {
        workspace.run_with_input(format!("predict run --json {settings}"), input.as_bytes())
    };
    let line = "Nothing is lost!\tThe seagulls sail on.\n";
    let auto = ask("", &format!("{line}Nothing is lost!\n"));
    assert!(auto.status.success() && !stderr(&auto).contains("tab"), "{}", stderr(&auto));
    let auto = json_lines(&stdout(&auto));
    assert_eq!(auto[..1], json_lines(&stdout(&ask("--set data.labelled.pairs=true", line))));
    // A classifier of single texts reads the tab as a character, and reports it.
    let one = ask("--set data.labelled.pairs=false", &format!("Nothing is lost!\n{line}"));
    assert!(stderr(&one).contains("line 2: has a tab"), "{}", stderr(&one));
    assert_eq!(auto[1], json_lines(&stdout(&one))[0]);
    assert_ne!(auto[0], json_lines(&stdout(&one))[1]);
    let three = ask("", &format!("Nothing is lost!\n{line}a\tb\tc\n"));
    assert_eq!(three.status.code(), Some(2));
    assert!(stderr(&three).contains("line 3: has 3 texts"), "{}", stderr(&three));
    let other = ask("--set data.labelled.pairs=perhaps", line);
    assert!(stderr(&other).contains("expected true, false or \"auto\""), "{}", stderr(&other));

    workspace.write("data/two.tsv", "calm\tNothing is lost!\ncalm\tNothing\tlost\n");
    let data = format!("data.dir={}", workspace.path("data").display());
    let evaluate = format!("evaluate run --split two --set {data}");
    workspace.succeed(&evaluate);
    let single = format!("{evaluate} --set data.labelled.pairs=false");
    workspace.fail(&single, &["two.tsv, line 2", "two texts"]);
}

#[test]
fn an_imported_tagger_tags_and_goes_out_again() {
    let workspace = Workspace::of_text();
    import(&workspace, "bert-tags");
    let tagged = workspace.run_with_input("predict run", b"The seagulls sail on\n");
    let words: Vec<String> = stdout(&tagged).lines().map(str::to_owned).collect();
    assert!(words[0].starts_with("The\t") && words[3].starts_with("on\t"), "{words:?}");
    workspace.succeed("export run out");
    let weights = |folder: &Path| fs::read(folder.join("model.safetensors")).expect("weights");
    assert!(weights(&golden("bert-tags")) == weights(&workspace.path("out")), "they differ");
}

#[test]
fn what_cannot_be_exchanged_is_told_with_what_can() {
    let workspace = Workspace::of_frozen_run();
    let said = workspace.fail("export run out", &["cannot be exported as a MarianMT"]);
    mentions(&said, &["model.norm", "\"post\""]);
    assert!(!said.contains("this is for"), "{said}");

    fs::create_dir(workspace.path("broken")).expect("a folder");
    workspace
        .write("broken/config.json", fs::read(golden("gpt2").join("config.json")).expect("a file"));
    workspace.write("broken/model.safetensors", "no weights at all");
    let output = workspace.run("import broken new");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("not a safetensors file"), "{}", stderr(&output));
}
