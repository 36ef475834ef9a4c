//! Every key of a recipe, read off the types that a recipe is parsed into.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::RunConfig;

/// A key of a recipe, or a section of them.
#[derive(Debug)]
pub(crate) struct Key {
    /// Dotted, from the root: `training.schedule.warmup`.
    pub(crate) name: String,
    /// Whether it holds other keys.
    pub(crate) is_section: bool,
}

impl Key {
    /// The part after the last dot.
    pub(crate) fn leaf(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }
}

/// Every key and section; a section comes before its keys.
pub(crate) fn keys() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
        });
        let schema = settings.into_generator().into_root_schema_for::<RunConfig>();
        let mut found = Vec::new();
        collect("", schema.as_value(), &mut found);
        found
    });
    &KEYS
}

/// Adds the keys of a section, whose own name is `prefix`.
fn collect(prefix: &str, section: &Value, found: &mut Vec<Key>) {
    for (leaf, schema) in section["properties"].as_object().into_iter().flatten() {
        let name = if prefix.is_empty() { leaf.clone() } else { format!("{prefix}.{leaf}") };
        let is_section = schema.get("properties").is_some();
        found.push(Key { name: name.clone(), is_section });
        collect(&name, schema, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_section_are_there() {
        let has = |name: &str, is_section| {
            keys().iter().any(|key| key.name == name && key.is_section == is_section)
        };
        assert!(has("name", false) && has("training", true) && has("training.schedule", true));
        assert!(has("training.schedule.warmup", false) && has("data.tokenizer.path", false));
    }
}
