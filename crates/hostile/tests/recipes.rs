//! Damaged recipes and overrides are read, or refused with an error that names their file, and
//! never end the program.

use std::fs;

use taper_hostile::recipes::recipe;
use taper_hostile::{assault, assault_with_text};
use taper_run::RunConfig;

const FEW: u32 = 3_000;
const MANY: u32 = 1_000_000;

fn recipes(cases: u32) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("recipe.toml");
    let written = RunConfig::default().to_toml().expect("TOML");
    let short = "name = \"a\"\n[model]\nheads = 4 # four\nd_model = 64\n[training]\nmax_updates = 1_000\n[training.schedule]\nkind = 'noam'\n";
    assault(cases, &[written.as_bytes(), short.as_bytes()], |bytes| recipe(&path, bytes));
    fs::write(&path, short).expect("write");
    assault_with_text(cases, 3, |lines| {
        let sets: Vec<String> = lines
            .iter()
            .map(|line| format!("training.{line}"))
            .chain([format!("model.heads={}", lines.concat())])
            .collect();
        for set in sets {
            drop(RunConfig::load(&path, &[set]));
        }
    });
}

#[test]
fn damaged_recipes_are_read_or_refused() {
    recipes(FEW);
}

/// This test is run with `cargo test --release -p taper-hostile --test recipes -- --ignored`.
#[test]
#[ignore = "hours; a million cases"]
fn a_million_damaged_recipes() {
    recipes(MANY);
}
