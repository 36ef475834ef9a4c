//! Tests of `evaluate --hostile`: it scores variants of a test set, and compares them with the
//! unchanged set.

use std::fs;

use serde_json::Value;

use crate::common::{Workspace, mentions};

/// Returns the variants in the record of a test set, with their numbers of lines.
fn variants(set: &Value) -> Vec<(&str, u64)> {
    let variants = set["variants"].as_array().expect("variants").iter();
    let one = |one: &'_ Value| one["lines"].as_u64().expect("a number");
    variants.map(|variant| (variant["variant"].as_str().expect("a name"), one(variant))).collect()
}

#[test]
fn variants_are_scored_beside_the_clean_set() {
    let workspace = Workspace::new();
    let path = workspace.path("data/test.aa");
    let sources = fs::read_to_string(&path).expect("sources");
    workspace.train("run");
    let clean = workspace.json("evaluate run --json");
    let json = workspace.succeed("evaluate run --hostile --json");
    let record: Value = serde_json::from_str(&json).expect("JSON");
    for key in ["run", "checkpoint", "step", "decoding"] {
        assert_eq!(record[key], clean[key], "{key}");
    }
    let set = &record["results"][0];
    assert_eq!(set["split"], "test");
    // The made-up sentences have no full stops, so there is no variant without full stops. In the
    // second variant, the twelve lines are joined to six lines of two sentences. In the variant of
    // one word for each line, a line is missing, because no word of "two two big" is long enough.
    let names = ["all capitals", "two sentences", "a doubled word", "one word", "typing errors"];
    let lines = [12, 6, 12, 11, 12];
    assert_eq!(variants(set), names.into_iter().zip(lines).collect::<Vec<_>>());
    let kept = fs::read(workspace.path("run/scores.hostile.json")).expect("kept");
    assert_eq!(serde_json::from_slice::<Value>(&kept).expect("JSON"), record);

    for variant in set["variants"].as_array().expect("variants") {
        for score in
            ["bleu", "chrf"].map(|name| &variant[name]).into_iter().filter(|s| !s.is_null())
        {
            let number = |key: &str| score[key].as_f64().expect("a number");
            let share = 100.0 * number("score") / number("clean");
            match score["share"].as_f64() {
                Some(shown) => assert!((shown - share).abs() < 1e-9, "{variant}"),
                None => assert_eq!(number("clean"), 0.0, "{variant}"),
            }
        }
        assert_eq!(variant["chrf"].is_null(), variant["variant"] == "one word");
    }
    // A variant of all lines is compared with the score of the unchanged set.
    for number in [2, 4] {
        let variant = &set["variants"][number];
        assert_eq!(variant["bleu"]["clean"], clean["results"][0]["bleu"]["score"]);
        assert_eq!(variant["chrf"]["clean"], clean["results"][0]["chrf"]["score"]);
    }
    // The variant in capitals has the same score as a split whose sources are in capitals, if its
    // translations are scored without regard to case.
    fs::write(workspace.path("data/loud.aa"), sources.to_uppercase()).expect("sources");
    fs::copy(workspace.path("data/test.bb"), workspace.path("data/loud.bb")).expect("targets");
    let loud = workspace.json("evaluate run --json --split loud --set evaluation.lowercase=true");
    assert_eq!(set["variants"][0]["chrf"]["score"], loud["results"][0]["chrf"]["score"]);

    let table = workspace.succeed("evaluate run --hostile --split val");
    mentions(&table, &["val, made hostile"]);
    for name in names {
        assert!(table.lines().any(|line| line.trim_start().starts_with(name)), "{table}");
    }
    let text = Workspace::of_text();
    text.train("run");
    text.fail("evaluate run --hostile", &["hostile text", "language-model"]);
}
