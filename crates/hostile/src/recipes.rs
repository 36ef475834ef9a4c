//! Checks with damaged recipes.

use std::fs;
use std::path::Path;

use taper_run::RunConfig;

/// A recipe is refused with the name of its file; one that is accepted can be written out and read
/// again as the same. The path must end in `recipe.toml`.
///
/// # Panics
/// If one does not survive.
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
