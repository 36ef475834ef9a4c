//! Recipes: `config.toml`.
#![no_main]
#![allow(dead_code, unused_imports, reason = "the program uses the rest of these modules")]

#[path = "../../crates/cli/src/config/mod.rs"]
mod config;
#[path = "../../crates/cli/src/device.rs"]
mod device;
#[path = "../../crates/cli/src/config/survives.rs"]
mod survives;

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static RECIPE: LazyLock<PathBuf> = LazyLock::new(|| taper_fuzz::folder().join("recipe.toml"));

fuzz_target!(
    init: {
        let written = config::RunConfig::default().to_toml().expect("TOML");
        taper_fuzz::seed("recipe", "defaults", written.as_bytes());
        for name in ["quickstart", "multi30k-en-de"] {
            let path = format!("{}/../configs/{name}.toml", env!("CARGO_MANIFEST_DIR"));
            taper_fuzz::seed("recipe", name, &std::fs::read(path).expect("a recipe"));
        }
    },
    |bytes: &[u8]| survives::recipe(&RECIPE, bytes)
);
