//! Names of the columns or fields of tables: the `[data.fields]` table of a recipe (the TOML file
//! with all settings of a training).

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};

use crate::tables::Named;

/// Names of the columns or fields of tables. They apply to sentence pairs, and to running text and
/// labelled texts whose files are tables.
///
/// In TSV and CSV a number is a column counted from 1, and a name is looked up in the first line,
/// which is then a header. In JSON lines, Parquet and hub data a dot enters a nested object:
/// `translation.de`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FieldsConfig {
    /// The column or field of the source side. If empty, the one named like the source language; if
    /// there is none, column 1 in TSV and CSV, and `translation.LANGUAGE` in other formats.
    #[serde(deserialize_with = "column")]
    #[schemars(schema_with = "column_schema")]
    #[schemars(extend("x-idle" = ["no-tables"]))]
    pub source: String,
    /// The column or field of the target side. If empty, it is found as for `source`, but by the
    /// target language, and with column 2 instead of 1.
    #[serde(deserialize_with = "column")]
    #[schemars(schema_with = "column_schema")]
    #[schemars(extend("x-idle" = ["no-tables"]))]
    pub target: String,
    /// The column or field of the text, for language models and classifiers. If empty, `text`.
    #[serde(deserialize_with = "column", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "column_schema")]
    #[schemars(extend("x-idle" = ["no-tables-of-texts"]))]
    pub text: String,
    /// The column or field of the second text, for classifiers of two texts. If empty, `text_pair`.
    #[serde(deserialize_with = "column", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "column_schema")]
    #[schemars(extend("x-idle" = ["not-classification"]))]
    pub text_pair: String,
    /// The column or field of the label, for classifiers. The labels in it may be numbers. If
    /// empty, `label`.
    #[serde(deserialize_with = "column", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "column_schema")]
    #[schemars(extend("x-idle" = ["not-classification"]))]
    pub label: String,
}

/// Reads the name or the number of a column; a number is returned as its digits.
fn column<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Column;

    impl Visitor<'_> for Column {
        type Value = String;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a name, or the number of a column from 1")
        }

        fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<String, E> {
            Ok(name.to_owned())
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<String, E> {
            if number < 1 {
                return Err(E::invalid_value(serde::de::Unexpected::Signed(number), &self));
            }
            Ok(number.to_string())
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<String, E> {
            self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
        }
    }

    deserializer.deserialize_any(Column)
}

fn column_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-values": "a name or the number of a column from 1",
        "type": ["string", "integer"]
    })
}

impl FieldsConfig {
    /// Name of the field with the text of a record.
    pub(crate) fn text(&self) -> Named<'_> {
        let (key, usual) = ("data.fields.text", "text");
        Named { key, chosen: &self.text, usual, may_be_number: false }
    }

    /// Name of the field with the second text of a record.
    pub(crate) fn text_pair(&self) -> Named<'_> {
        let (key, usual) = ("data.fields.text_pair", "text_pair");
        Named { key, chosen: &self.text_pair, usual, may_be_number: false }
    }

    /// Name of the field with the label of a record.
    pub(crate) fn label(&self) -> Named<'_> {
        let (key, usual) = ("data.fields.label", "label");
        Named { key, chosen: &self.label, usual, may_be_number: true }
    }

    /// True if the recipe sets none of the fields.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
