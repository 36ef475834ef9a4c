//! Checks with damaged recipes.

use std::fs;
use std::path::Path;

use taper_run::RunConfig;

/// Checks that a recipe is accepted, and is unchanged after it is written and read again, or is
/// refused with an error that names its file. The path must end in `recipe.toml`.
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
