//! Differences between two configurations: in all keys, or in those that cannot freely change once
//! a run (the folder of a training) exists.

use std::fmt;

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::keys::{Change, Weights, key_around};
use super::{RunConfig, recipe};

/// Key with different values in two configurations. The values are written as TOML; `None` if the
/// key is not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Name of the key, such as `model.d_ff`.
    pub key: String,
    /// Value in the first configuration.
    pub left: Option<String>,
    /// Value in the second configuration.
    pub right: Option<String>,
}

impl Difference {
    /// Rule of the key: whether a run that has begun with the first value can continue with the
    /// second.
    pub(crate) fn change(&self) -> Change {
        key_around(&self.key).map_or(Change::Free, |key| key.change)
    }

    /// Whether trained weights depend on the key in the way that `relation` describes.
    pub(crate) fn has(&self, relation: Weights) -> bool {
        key_around(&self.key).is_some_and(|key| key.has(relation))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".to_owned());
        let (left, right) = (show(&self.left), show(&self.right));
        write!(formatter, "{} is {right} but was {left}", self.key)
    }
}

/// Lists `differences` in one line of text.
pub(crate) fn described(differences: &[Difference]) -> String {
    differences.iter().map(Difference::to_string).collect::<Vec<_>>().join("; ")
}

/// Lists every key whose values in two configurations differ.
///
/// # Errors
/// When a value cannot be written as TOML.
pub fn every_difference(left: &RunConfig, right: &RunConfig) -> Result<Vec<Difference>> {
    let table = |config: &RunConfig| {
        Table::try_from(config).context("the configuration cannot be written as TOML")
    };
    let mut differences = Vec::new();
    compare("", &table(left)?, &table(right)?, &mut differences);
    Ok(differences)
}

/// Lists the keys whose values differ between `run`, the configuration of a run, and `given`, a new
/// configuration. Keys that can freely change after the run has begun are left out, so the result
/// has only `task`, `dtype`, `training.seed`, and keys of `[data]` and `[model]`.
///
/// # Errors
/// When a value cannot be written as TOML.
pub fn differences(run: &RunConfig, given: &RunConfig) -> Result<Vec<Difference>> {
    let (run, given) = (table(run)?, table(given)?);
    let mut differences = Vec::new();
    compare("", &run, &given, &mut differences);
    differences.retain(|one| one.change() != Change::Free);
    Ok(differences)
}

/// Lists the keys in which processes that train together must agree, but whose values differ in the
/// two configurations. The processes must agree in the keys that [`differences`] compares, and in
/// all keys of `[training]`.
///
/// # Errors
/// See [`differences`].
pub(crate) fn training_differences(run: &RunConfig, given: &RunConfig) -> Result<Vec<Difference>> {
    let whole = |config: &RunConfig| -> Result<Table> {
        let mut all = table(config)?;
        let training = Table::try_from(&config.training);
        let training = training.context("the configuration cannot be written as TOML")?;
        all.insert("training".to_owned(), Value::Table(training));
        Ok(all)
    };
    let mut differences = Vec::new();
    compare("", &whole(run)?, &whole(given)?, &mut differences);
    differences.retain(|one| one.change() != Change::Free || one.key.starts_with("training."));
    Ok(differences)
}

/// Part of a configuration that identifies a run, as a TOML table without paths of training and
/// validation files.
fn table(config: &RunConfig) -> Result<Table> {
    let mut config = config.clone();
    let data = &mut config.data;
    // Paths do not count as differences. Whether the text in the files has changed is checked
    // separately, when training resumes.
    for split in [&mut data.train, &mut data.validation] {
        *split = split.without_paths();
    }
    Table::try_from(recipe(&config)?).context("the configuration cannot be written as TOML")
}

fn compare(prefix: &str, run: &Table, given: &Table, differences: &mut Vec<Difference>) {
    let mut keys: Vec<&String> = run.keys().chain(given.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match (run.get(key), given.get(key)) {
            (Some(Value::Table(run)), Some(Value::Table(given))) => {
                compare(&name, run, given, differences)
            }
            (left, right) if left != right => {
                let show = |value: Option<&Value>| value.map(Value::to_string);
                differences.push(Difference { key: name, left: show(left), right: show(right) });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_makes_a_run_another_is_listed() {
        let run = RunConfig::default();
        let mut given = run.clone();
        given.training.max_updates += 1;
        given.decoding.beam_size += 1;
        given.data.dir = "elsewhere".into();
        given.data.test = "".into();
        assert_eq!(differences(&run, &given).expect("TOML"), Vec::new());
        given.training.seed = 7;
        given.model.d_ff = 96;
        given.data.tokenizer.path = Some("mine.json".into());
        given.data.tokenizer.dropout = 0.1;
        let listed = differences(&run, &given).expect("TOML");
        assert_eq!(
            listed.iter().map(Difference::to_string).collect::<Vec<_>>(),
            [
                "data.tokenizer.dropout is 0.1 but was 0.0",
                "data.tokenizer.path is \"mine.json\" but was not set",
                "model.d_ff is 96 but was 2048",
                "training.seed is 7 but was 1"
            ]
        );
        assert_eq!(
            listed.iter().filter(|one| one.change() == Change::Never).collect::<Vec<_>>(),
            [&listed[1], &listed[3]]
        );
    }
}
