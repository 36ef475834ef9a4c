//! Fuzz target for the reader of recipes, the TOML files that configure a training.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use taper_hostile::recipes::recipe;
use taper_run::RunConfig;

static RECIPE: LazyLock<PathBuf> = LazyLock::new(|| taper_fuzz::folder().join("recipe.toml"));

fuzz_target!(
    init: {
        let written = RunConfig::default().to_toml().expect("TOML");
        taper_fuzz::seed("recipe", "defaults", written.as_bytes());
        for name in ["quickstart", "multi30k-en-de"] {
            let path = format!("{}/../../configs/{name}.toml", env!("CARGO_MANIFEST_DIR"));
            taper_fuzz::seed("recipe", name, &std::fs::read(path).expect("a recipe"));
        }
    },
    |bytes: &[u8]| recipe(&RECIPE, bytes)
);
