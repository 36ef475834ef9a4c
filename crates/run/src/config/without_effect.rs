//! Keys of a recipe (TOML file with the settings of a training) that have no effect because of the
//! values of other keys.

use anyhow::{Context, Result};
use serde_json::Value;

use super::RunConfig;
use super::conditions::CONDITIONS;
use super::keys::{Key, keys};

/// Lists the keys of `config` that are set but have no effect, each with the reason. A key counts
/// as set if its value is not the default.
///
/// # Errors
/// When a value cannot be written as JSON.
pub fn without_effect(config: &RunConfig) -> Result<Vec<String>> {
    let json =
        |config: &RunConfig| serde_json::to_value(config).context("the configuration is not JSON");
    let (values, defaults) = (json(config)?, json(&RunConfig::default())?);
    let is_set = |key: &&Key| value(&values, &key.name) != value(&defaults, &key.name);
    let set: Vec<&Key> = keys().iter().filter(|key| !key.is_section()).filter(is_set).collect();
    let mut idle = Vec::new();
    for condition in CONDITIONS {
        let concerns = |key: &&&Key| key.idle.iter().any(|one| one.name == condition.name);
        for key in set.iter().filter(concerns) {
            if condition.holds(config, key.section()) {
                let reason = condition.reason(key.section());
                idle.push(format!("{} has no effect: {reason}", key.name));
            }
        }
    }
    Ok(idle)
}

/// Value of the key with the dotted name `key` in `config`; `None` if it is not there.
fn value<'a>(config: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(config, |table, name| table.get(name))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Paths of the recipes in `configs` and its folders, without pipelines.
    fn configs() -> impl Iterator<Item = std::path::PathBuf> {
        fn entries(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> + use<> {
            std::fs::read_dir(folder).expect("configs").map(|entry| entry.expect("entry").path())
        }
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
        let is_of_recipes =
            |path: &std::path::PathBuf| path.is_dir() && !path.ends_with("pipelines");
        let folders = entries(&top).filter(is_of_recipes).chain([top.clone()]);
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
    fn fields_and_conditions_name_each_other() {
        fn named(schema: &Value, found: &mut std::collections::BTreeSet<String>) {
            match schema {
                Value::Object(entries) => {
                    for (name, value) in entries {
                        if name.starts_with("x-idle") {
                            let names = value.as_array().into_iter().flatten();
                            found.extend(names.filter_map(Value::as_str).map(str::to_owned));
                        }
                        named(value, found);
                    }
                }
                Value::Array(values) => values.iter().for_each(|value| named(value, found)),
                _ => {}
            }
        }
        let mut found = std::collections::BTreeSet::new();
        named(super::super::schema().as_value(), &mut found);
        let known = CONDITIONS.iter().map(|condition| condition.name.to_owned()).collect();
        assert_eq!(found, known);
    }

    #[test]
    fn a_key_that_is_set_in_vain_is_named_with_the_reason() {
        let path = configs().find(|path| path.ends_with("quickstart.toml")).expect("quickstart");
        let reasons = |set: &[&str]| {
            let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
            without_effect(&RunConfig::load(&path, &set).expect("valid")).expect("JSON").join("\n")
        };
        assert!(
            reasons(&["training.schedule.scale=2"]).starts_with(
                "training.schedule.scale has no effect: training.schedule.kind is not"
            )
        );
        assert!(
            reasons(&["training.schedule.kind=noam"])
                .starts_with("training.schedule.learning_rate has no effect")
        );
        assert_eq!(
            reasons(&[
                "training.schedule.kind=noam",
                "training.schedule.learning_rate=5e-4",
                "training.schedule.scale=2"
            ]),
            ""
        );
        assert!(reasons(&["decoding.sampling.top_k=5"]).contains("so nothing is sampled"));
        // Training ends with a validation even if `validate_every` is 0, so the metric has an
        // effect.
        assert_eq!(
            reasons(&["training.validate_every=0", "training.early_stopping.metric=bleu"]),
            ""
        );
        assert!(
            reasons(&["training.validate_every=0", "training.keep_best=3"])
                .starts_with("training.keep_best has no effect")
        );
        assert_eq!(
            reasons(&[
                "decoding.sampling.top_k=5",
                "decoding.sampling.temperature=1",
                "decoding.beam_size=5"
            ]),
            ""
        );
    }
}
