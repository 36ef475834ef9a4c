//! Overrides of a configuration from the command line, such as `--set model.d_model=256`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use toml::{Table, Value};

use super::paths;

/// Override of a configuration: the path of a key, and its new value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Override {
    /// Text of the override as the user typed it, for messages.
    pub text: String,
    path: Vec<String>,
    value: Value,
}

impl Override {
    /// Parses an override of the form `key.path=value`. The value is read as TOML; what is not
    /// valid TOML, such as a word without quotes, becomes a string.
    ///
    /// # Errors
    /// When there is no `=` or the key or a part of it is empty.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let Some((key, value)) = text.split_once('=') else {
            bail!("override {text}: expected key=value, for example model.d_model=256");
        };
        let path: Vec<String> = key.trim().split('.').map(str::to_owned).collect();
        if path.iter().any(String::is_empty) {
            bail!("override {text}: the key is empty or has an empty part");
        }
        Ok(Self { text: text.to_owned(), path, value: parse_value(value.trim()) })
    }

    /// Dotted name of the key.
    pub(crate) fn key(&self) -> String {
        self.path.join(".")
    }

    /// Sets the key in `table` to the value, and adds sections that are missing.
    ///
    /// # Errors
    /// When a part of the key that should be a section is a value in `table`.
    pub(crate) fn apply(&self, table: &mut Table) -> Result<()> {
        let (last, sections) = self.path.split_last().context("an override has a key")?;
        let mut current = table;
        for section in sections {
            current = current
                .entry(section.clone())
                .or_insert_with(|| Value::Table(Table::new()))
                .as_table_mut()
                .with_context(|| format!("override {}: `{section}` is not a section", self.text))?;
        }
        current.insert(last.clone(), self.value.clone());
        Ok(())
    }

    /// The same override with relative paths made absolute; they start at the current folder.
    pub(crate) fn with_resolved_paths(&self) -> Self {
        let mut table = self.to_table();
        paths::resolve(&mut table, Path::new(""));
        let whole = Value::Table(table);
        let value = self.path.iter().try_fold(&whole, |value, part| value.get(part)).cloned();
        Self { value: value.unwrap_or_else(|| self.value.clone()), ..self.clone() }
    }

    /// Table that contains only this override, so that its key and the type of its value can be
    /// checked by themselves.
    pub(crate) fn to_table(&self) -> Table {
        let mut table = Table::new();
        let mut value = self.value.clone();
        for part in self.path.iter().rev().take(self.path.len() - 1) {
            let mut section = Table::new();
            section.insert(part.clone(), value);
            value = Value::Table(section);
        }
        table.insert(self.path[0].clone(), value);
        table
    }
}

/// Parses `text` as a TOML value. Text that is not exactly one value becomes a string.
fn parse_value(text: &str) -> Value {
    let table = format!("value = {text}").parse::<Table>().ok().filter(|table| table.len() == 1);
    table
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_types() {
        assert_eq!(parse_value("3"), Value::Integer(3));
        assert_eq!(parse_value("0.5"), Value::Float(0.5));
        assert_eq!(parse_value("true"), Value::Boolean(true));
        assert_eq!(parse_value("../data/x"), Value::String("../data/x".into()));
        assert_eq!(parse_value("\"3\""), Value::String("3".into()));
        assert_eq!(parse_value("[1,\n2]"), Value::Array(vec![1.into(), 2.into()]));
        let two = "2\nmodel.d_ff = 3";
        assert_eq!(parse_value(two), Value::String(two.into()), "one key has one value");
    }

    #[test]
    fn apply_reaches_nested_keys() {
        let mut table: Table = "[a]\nb = 1".parse().expect("toml");
        Override::parse("a.b=2").expect("parse").apply(&mut table).expect("apply");
        Override::parse("c.d.e=x").expect("parse").apply(&mut table).expect("apply");
        assert_eq!(table["a"]["b"], Value::Integer(2));
        assert_eq!(table["c"]["d"]["e"], Value::String("x".into()));
        assert!(Override::parse("a.b.c=1").expect("parse").apply(&mut table).is_err());
    }

    #[test]
    fn malformed_overrides_are_refused() {
        assert!(Override::parse("novalue").is_err());
        assert!(Override::parse("=1").is_err());
        assert!(Override::parse("a..b=1").is_err());
    }
}
