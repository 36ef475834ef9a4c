//! Checks that a damaged recipe (the TOML file with the settings of a training) can be read, or is
//! refused with an error that names the file.

use std::fs;
use std::path::Path;

use taper_run::RunConfig;

/// Checks a recipe. If it is accepted, it must be unchanged after it is written and read again. If
/// it is refused, the error must name its file. The path must end in `recipe.toml`.
///
/// # Panics
/// If the check fails.
pub fn recipe(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("write");
    match RunConfig::load(path, &[]) {
        Ok(config) => {
            if let Ok(text) = config.to_toml() {
                fs::write(path, text).expect("write");
                let again = RunConfig::load(path, &[]).expect("a resolved recipe");
                assert_eq!(format!("{again:?}"), format!("{config:?}"));
            }
        }
        Err(error) => assert!(format!("{error:#}").contains("recipe.toml"), "{error:#}"),
    }
}
