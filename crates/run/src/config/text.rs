//! Conversion of configurations to and from text.
//!
//! All are read by TOML's deserializer, and written by its serializer: serde compiles the code of
//! all sections again for each further format, which takes longer than to convert here.

use anyhow::{Context, Result, anyhow};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{RunConfig, diagnose};

impl RunConfig {
    /// The whole configuration as TOML, including all defaults.
    ///
    /// # Errors
    /// When a value cannot be written as TOML (an integer above 2^63).
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string_pretty(self).context("the configuration cannot be written as TOML")
    }
}

/// A configuration, or a section of one, as a table of TOML.
pub(crate) fn table(config: &impl Serialize) -> Result<toml::Table> {
    let text = toml::to_string(config).context("the configuration cannot be written as TOML")?;
    text.parse().context("the configuration cannot be read as TOML")
}

/// Reads a configuration, or a section of one, from a table of TOML.
///
/// # Errors
/// When the table has an unknown key or a value that does not fit. The message names the key.
pub(super) fn from_table<T: DeserializeOwned>(table: &toml::Table) -> Result<T> {
    let text = table.to_string();
    toml::from_str(&text).map_err(|error| anyhow!(diagnose::diagnose(&text, &error).message))
}

/// Reads a configuration, or a section of one, from JSON. A key that is null counts as missing,
/// since TOML has no null.
///
/// # Errors
/// See [`from_table`].
pub(crate) fn from_json<T: DeserializeOwned>(json: Value) -> Result<T> {
    let value = of_json(json)?;
    from_table(value.as_table().context("the configuration is no table")?)
}

/// JSON as TOML, without the keys that are null.
pub(crate) fn of_json(mut json: Value) -> Result<toml::Value> {
    remove_nulls(&mut json);
    toml::Value::try_from(json).context("the configuration is not TOML")
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(keys) => {
            keys.retain(|_, value| !value.is_null());
            keys.values_mut().for_each(remove_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// Writes a configuration within a message to another process as text.
pub(crate) fn serialize<S: Serializer>(config: &RunConfig, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&config.to_toml().map_err(serde::ser::Error::custom)?)
}

/// Reads a configuration that [`serialize`] has written.
pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<RunConfig, D::Error> {
    toml::from_str(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_the_same_after_text_a_table_and_json() {
        let mut config = RunConfig { name: "näme \"x\"\n".to_owned(), ..RunConfig::default() };
        config.training.schedule.scale = 0.1 + 0.2;
        config.training.seed = i64::MAX as u64;
        assert_eq!(from_table::<RunConfig>(&table(&config).expect("a table")).unwrap(), config);
        let json = serde_json::to_value(&config).expect("JSON");
        assert_eq!(from_json::<RunConfig>(json).unwrap(), config);
    }

    #[test]
    fn null_is_a_missing_key_and_an_unknown_key_is_named() {
        let json = serde_json::json!({ "training": { "seed": 3, "max_updates": null } });
        assert_eq!(from_json::<RunConfig>(json).unwrap().training.seed, 3);
        let json = serde_json::json!({ "training": { "sead": 3 } });
        let error = from_json::<RunConfig>(json).unwrap_err().to_string();
        assert_eq!(error, "unknown key `training.sead`, did you mean `training.seed`?");
    }
}
