//! The columns or fields of tables: `[data.fields]`.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};

/// Names the columns or fields of single-file formats.
///
/// In TSV and CSV a number is a column counted from 1 and a name is looked up in the first line,
/// which is then a header. In JSON lines, Parquet and hub data a dot enters a nested object:
/// `translation.de`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FieldsConfig {
    /// The source side. Empty: the column or field named like the language; else column 1 of TSV
    /// and CSV, elsewhere `translation.` and the language.
    #[serde(deserialize_with = "column")]
    #[schemars(schema_with = "column_schema")]
    pub source: String,
    /// The target side. Empty: as for the source, with column 2.
    #[serde(deserialize_with = "column")]
    #[schemars(schema_with = "column_schema")]
    pub target: String,
}

/// A name, or the number of a column.
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
    /// Whether neither side is named.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
