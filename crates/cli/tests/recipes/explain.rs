//! Tests of explanations of keys: by name, as comments of a recipe, and as a page of the manual.

use std::fs;
use std::path::Path;

use crate::common::{Workspace, mentions};

#[test]
fn a_key_and_a_section_are_explained() {
    let workspace = Workspace::new();
    let said = workspace.succeed("config explain training.schedule.warmup");
    assert!(said.starts_with("training.schedule.warmup\n    The number of warm-up"), "{said}");
    mentions(&said, &["Values: an integer from 0.", "Default: 4000."]);
    mentions(workspace.succeed("config explain model"), &["model.heads", "\"rotary\": "]);
    workspace.fail("config explain lr", &["did you mean `training.schedule.learning_rate`"]);
    let schema = workspace.json("config explain --json");
    assert!(schema["properties"]["training"]["properties"]["seed"].is_object());
}

#[test]
fn a_recipe_is_shown_with_the_meaning_of_its_keys_and_is_a_recipe_still() {
    let workspace = Workspace::new();
    let shown = workspace.succeed("config show tiny.toml");
    mentions(&shown, &["# Number of attention heads", "\nheads = 2\n"]);
    workspace.write("again.toml", &shown);
    let again = workspace.succeed("config show again.toml");
    // The first output contains the name, which came from the file name, so both are the same.
    assert_eq!(again, shown);
}

#[test]
fn values_of_the_wrong_kind_are_spoken_of_as_toml_has_them() {
    let workspace = Workspace::new();
    workspace.write("bad.toml", "[model]\nheads = \"two\"\n");
    workspace.fail(
        "config check bad.toml",
        &["bad.toml:2: key `model.heads`: expected an integer from 1, found the text \"two\""],
    );
    for (set, said) in [
        ("training.optimizer=adam", "expected a section of keys, found the text \"adam\""),
        ("model.residual_dropout=1e308", "1e308 is not a rate"),
        ("training.clip_norm=-1e308", "training.clip_norm is -1e308:"),
        ("decoding.beam_size=-1", "expected an integer from 1 to 65536, found the number -1"),
    ] {
        let message = workspace.fail(format!("config check tiny.toml --set {set}"), &[said]);
        assert!(!message.contains("struct") && !message.contains("usize"), "{message}");
    }
    workspace.succeed("config check tiny.toml --set 'data.fields={source=1, target=2}'");
}

#[test]
fn what_a_range_leaves_out_is_refused() {
    let workspace = Workspace::new();
    let schema = workspace.json("config explain --json");
    let mut outside = Vec::new();
    collect("", &schema, &mut outside);
    assert!(outside.len() > 60, "{}", outside.len());
    for set in outside {
        let leaf = set.split('=').next().and_then(|key| key.rsplit('.').next()).expect("a key");
        workspace.fail(format!("config check tiny.toml --set {set}"), &[leaf]);
    }
}

/// Adds to `outside`, for each bound of each key, a setting just outside the bound.
fn collect(prefix: &str, section: &serde_json::Value, outside: &mut Vec<String>) {
    for (leaf, schema) in section["properties"].as_object().into_iter().flatten() {
        let name = if prefix.is_empty() { leaf.clone() } else { format!("{prefix}.{leaf}") };
        collect(&name, schema, outside);
        let is_whole = schema["type"] == "integer";
        let bounds = [
            ("minimum", if is_whole { -1.0 } else { -1e-9 }),
            ("exclusiveMinimum", 0.0),
            ("maximum", if is_whole { 1.0 } else { 1e-9 }),
            ("exclusiveMaximum", 0.0),
        ];
        for (bound, beyond) in bounds {
            let Some(bound) = schema[bound].as_f64() else { continue };
            let value = bound + beyond;
            outside.push(match is_whole {
                true => format!("{name}={}", value as i64),
                false => format!("{name}={value:?}"),
            });
        }
    }
}

#[test]
fn the_manual_has_the_reference_as_it_is() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let written = fs::read_to_string(page).expect("docs/configuration.md");
    let now = Workspace::new().succeed("config explain --markdown");
    assert!(
        written == now,
        "write it again: taper config explain --markdown > docs/configuration.md"
    );
}
