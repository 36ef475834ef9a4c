//! Keys that have no effect beside the others of a recipe.

mod rules;

use anyhow::{Context, Result};
use serde_json::Value;

use super::RunConfig;
use rules::rules;

/// Explains, for each key of `config` that is set without effect, why it has none. A key is set if
/// its value is not the default.
///
/// # Errors
/// When a value cannot be written as JSON.
pub fn without_effect(config: &RunConfig) -> Result<Vec<String>> {
    let of =
        |config: &RunConfig| serde_json::to_value(config).context("the configuration is not JSON");
    let (values, defaults) = (of(config)?, of(&RunConfig::default())?);
    let is_set = |key: &str| value(&values, key) != value(&defaults, key);
    let idle = rules(config).into_iter().filter(|(applies, ..)| *applies);
    let keys = idle.flat_map(|(_, reason, keys)| keys.iter().map(move |key| (*key, reason)));
    Ok(keys
        .filter(|(key, _)| is_set(key))
        .map(|(key, reason)| format!("{key} has no effect: {reason}"))
        .collect())
}

/// Whether the key has no effect beside the others of `config`.
pub(crate) fn is_idle(config: &RunConfig, key: &str) -> bool {
    rules(config).iter().any(|(applies, _, keys)| *applies && keys.contains(&key))
}

/// Conditions under which the key has no effect, whatever the recipe.
pub(super) fn reasons(key: &str) -> Vec<&'static str> {
    let all = rules(&RunConfig::default()).into_iter();
    all.filter(|(_, _, keys)| keys.contains(&key)).map(|(_, reason, _)| reason).collect()
}

/// Value of a dotted key.
fn value<'a>(config: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(config, |table, name| table.get(name))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Recipes in `configs` and its folders.
    fn configs() -> impl Iterator<Item = std::path::PathBuf> {
        fn entries(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> + use<> {
            std::fs::read_dir(folder).expect("configs").map(|entry| entry.expect("entry").path())
        }
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
        let folders = entries(&top).filter(|path| path.is_dir()).chain([top.clone()]);
        let files = folders.flat_map(|folder| entries(&folder).collect::<Vec<_>>());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
    }

    #[test]
    fn every_key_of_the_recipes_has_an_effect() {
        for path in configs() {
            let config = RunConfig::load(&path, &[]).expect("a recipe");
            assert_eq!(
                without_effect(&config).expect("JSON"),
                Vec::<String>::new(),
                "{}",
                path.display()
            );
        }
    }

    #[test]
    fn each_rule_names_keys_that_exist() {
        let values = serde_json::to_value(RunConfig::default()).expect("JSON");
        // A split given as a table has keys that a split given as a name lacks.
        let quickstart =
            configs().find(|path| path.ends_with("quickstart.toml")).expect("a recipe");
        let table = "data.train={stem=\"train\", links=\"train.links\"}".to_owned();
        // Fields that are empty are left out of a recipe.
        let fields = "data.fields={text=\"a\", text_pair=\"b\", label=\"c\"}".to_owned();
        let config = RunConfig::load(&quickstart, &[table, fields]).expect("a recipe");
        let of_table = serde_json::to_value(config).expect("JSON");
        for (_, reason, keys) in rules(&RunConfig::default()) {
            for key in keys {
                let found = value(&values, key).or_else(|| value(&of_table, key));
                assert!(found.is_some(), "{key}: {reason}");
            }
        }
    }

    #[test]
    fn a_key_that_is_set_in_vain_is_named_with_the_reason() {
        let path = configs().find(|path| path.ends_with("quickstart.toml")).expect("quickstart");
        let said = |set: &[&str]| {
            let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
            without_effect(&RunConfig::load(&path, &set).expect("valid")).expect("JSON").join("\n")
        };
        assert!(
            said(&["training.schedule.scale=2"]).starts_with(
                "training.schedule.scale has no effect: training.schedule.kind is not"
            )
        );
        assert!(
            said(&["training.schedule.kind=noam"])
                .starts_with("training.schedule.learning_rate has no effect")
        );
        assert_eq!(
            said(&[
                "training.schedule.kind=noam",
                "training.schedule.learning_rate=5e-4",
                "training.schedule.scale=2"
            ]),
            ""
        );
        assert!(said(&["decoding.sampling.top_k=5"]).contains("so that nothing is drawn"));
        // The end of training is validated in any case.
        assert_eq!(said(&["training.validate_every=0", "training.early_stopping.metric=bleu"]), "");
        assert!(
            said(&["training.validate_every=0", "training.keep_best=3"])
                .starts_with("training.keep_best has no effect")
        );
        assert_eq!(
            said(&[
                "decoding.sampling.top_k=5",
                "decoding.sampling.temperature=1",
                "decoding.beam_size=5"
            ]),
            ""
        );
    }
}
