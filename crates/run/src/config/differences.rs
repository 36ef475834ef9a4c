//! What two configurations differ in, of what must not change while a run goes on.

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::{RunConfig, recipe};

/// Keys that change neither weights nor the order of data: where the text lies (its content is
/// compared by itself), what is scored when training is over, how far batches are read ahead.
const WITHOUT_EFFECT: [&str; 3] = ["data.dir", "data.test", "data.batching.prefetch"];

/// A key of which two configurations have other values, as TOML; none where it is not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The key, such as `model.d_ff`.
    pub key: String,
    /// The value of the first.
    pub left: Option<String>,
    /// The value of the second.
    pub right: Option<String>,
}

/// Every key of which two configurations have other values.
///
/// # Errors
/// When a value cannot be written as TOML.
pub fn every_difference(left: &RunConfig, right: &RunConfig) -> Result<Vec<Difference>> {
    let table = |config: &RunConfig| {
        Table::try_from(config).context("the configuration cannot be written as TOML")
    };
    let mut found = Vec::new();
    compare("", &table(left)?, &table(right)?, &mut found);
    Ok(found)
}

/// One line for each key of task, [data], [model], dtype and training.seed whose value differs.
///
/// # Errors
/// When a value cannot be written as TOML.
pub fn differences(run: &RunConfig, given: &RunConfig) -> Result<Vec<String>> {
    let (run, given) = (table(run)?, table(given)?);
    let mut found = Vec::new();
    compare("", &run, &given, &mut found);
    Ok(lines(found))
}

/// What matters of some differences, a line each.
fn lines(found: Vec<Difference>) -> Vec<String> {
    let show = |value: Option<String>| value.unwrap_or_else(|| "not set".to_owned());
    let line = |Difference { key, left, right }| {
        format!("{key} is {} but was {}", show(right), show(left))
    };
    let matters = |one: &Difference| !WITHOUT_EFFECT.contains(&one.key.as_str());
    found.into_iter().filter(matters).map(line).collect()
}

/// As [`differences`], of all that processes must have alike to train together: of [training] too.
///
/// # Errors
/// As [`differences`].
pub(crate) fn training_differences(run: &RunConfig, given: &RunConfig) -> Result<Vec<String>> {
    let whole = |config: &RunConfig| -> Result<Table> {
        let mut all = table(config)?;
        let training = Table::try_from(&config.training);
        let training = training.context("the configuration cannot be written as TOML")?;
        all.insert("training".to_owned(), Value::Table(training));
        Ok(all)
    };
    let mut found = Vec::new();
    compare("", &whole(run)?, &whole(given)?, &mut found);
    Ok(lines(found))
}

/// Whether one of the [`differences`] is of what a run that has begun cannot do without: its seed,
/// which is the whole random state, and what the tokenizer was made by, since the embeddings would
/// mean other words. How words are cut in training may change.
pub fn is_fixed(difference: &str) -> bool {
    let key = difference.split(' ').next().unwrap_or_default();
    match key.strip_prefix("data.tokenizer.") {
        Some(key) => !["dropout", "sampling_alpha"].contains(&key),
        None => ["task", "data.nfkc", "data.lowercase", "training.seed"].contains(&key),
    }
}

/// The part of a configuration that makes a run the run it is, as TOML.
fn table(config: &RunConfig) -> Result<Table> {
    let mut config = config.clone();
    let data = &mut config.data;
    // The content of files is compared by itself.
    for split in [&mut data.train, &mut data.validation] {
        *split = split.without_paths();
    }
    Table::try_from(recipe(&config)?).context("the configuration cannot be written as TOML")
}

fn compare(prefix: &str, run: &Table, given: &Table, found: &mut Vec<Difference>) {
    let mut keys: Vec<&String> = run.keys().chain(given.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match (run.get(key), given.get(key)) {
            (Some(Value::Table(run)), Some(Value::Table(given))) => {
                compare(&name, run, given, found)
            }
            (left, right) if left != right => {
                let show = |value: Option<&Value>| value.map(Value::to_string);
                found.push(Difference { key: name, left: show(left), right: show(right) });
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
        assert_eq!(differences(&run, &given).expect("TOML"), Vec::<String>::new());
        given.training.seed = 7;
        given.model.d_ff = 96;
        given.data.tokenizer.path = Some("mine.json".into());
        given.data.tokenizer.dropout = 0.1;
        let found = differences(&run, &given).expect("TOML");
        assert_eq!(
            found,
            [
                "data.tokenizer.dropout is 0.1 but was 0.0",
                "data.tokenizer.path is \"mine.json\" but was not set",
                "model.d_ff is 96 but was 2048",
                "training.seed is 7 but was 1"
            ]
        );
        assert_eq!(
            found.iter().filter(|change| is_fixed(change)).collect::<Vec<_>>(),
            [&found[1], &found[3]]
        );
    }
}
