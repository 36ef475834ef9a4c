//! Reads the records of a file in which each line is a record: tab-separated columns or a JSON
//! object.

use std::path::Path;

use serde_json::Value;

use super::{Columns, Field, Wanted};
use crate::{Error, LineReader, Result};

/// Reads records from a TSV or JSON-lines file.
pub(crate) struct LineRecords {
    lines: LineReader,
    shape: Shape,
    /// First line, if it is a record that has been read but not returned yet.
    first: Option<String>,
}

enum Shape {
    Tsv(Columns),
    Jsonl(Vec<Field>),
}

impl LineRecords {
    /// Opens a file of columns and examines its first line.
    pub(super) fn open_columns(path: &Path, wanted: &Wanted<'_>) -> Result<Self> {
        let mut lines = LineReader::open(path)?;
        let first = lines.next_line()?;
        let cells: Vec<&str> = first.as_deref().unwrap_or_default().split('\t').collect();
        let (columns, is_header) = (wanted.columns)(&cells)?;
        Ok(Self { lines, shape: Shape::Tsv(columns), first: first.filter(|_| !is_header) })
    }

    /// Opens a file of JSON objects.
    pub(super) fn open_json(path: &Path, fields: Vec<Field>) -> Result<Self> {
        Ok(Self { lines: LineReader::open(path)?, shape: Shape::Jsonl(fields), first: None })
    }

    /// Bytes of the file that have been read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.lines.bytes_read()
    }

    /// Texts of the next record. Empty lines of a JSON-lines file are skipped. `None` after the
    /// last record.
    pub(super) fn next_record(&mut self) -> Result<Option<Vec<String>>> {
        loop {
            let line = match self.first.take() {
                Some(first) => first,
                None => match self.lines.next_line()? {
                    Some(line) => line,
                    None => return Ok(None),
                },
            };
            let texts = match &self.shape {
                Shape::Tsv(columns) => {
                    columns.texts_in(&line.split('\t').collect::<Vec<_>>(), "tab")
                }
                Shape::Jsonl(_) if line.trim().is_empty() => continue,
                Shape::Jsonl(fields) => json_texts(&line, fields),
            };
            return texts.map(Some).map_err(|message| Error::Record {
                path: self.lines.path().to_owned(),
                unit: "line",
                line: self.lines.line(),
                message,
            });
        }
    }
}

fn json_texts(line: &str, fields: &[Field]) -> Result<Vec<String>, String> {
    let record: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    fields.iter().map(|field| json_text(&record, field)).collect()
}

fn json_text(record: &Value, field: &Field) -> Result<String, String> {
    for path in &field.paths {
        // A key that contains dots itself takes precedence over nested keys.
        let found = record
            .get(path)
            .or_else(|| path.split('.').try_fold(record, |value, key| value.get(key)));
        match found {
            Some(Value::String(text)) => return Ok(text.clone()),
            Some(value @ (Value::Number(_) | Value::Bool(_))) if field.may_be_number => {
                return Ok(value.to_string());
            }
            Some(Value::Null) => return Err(Field::is_null(path)),
            Some(other) => return Err(Field::no_text(path, other)),
            None => {}
        }
    }
    let present: Vec<&str> =
        record.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    Err(field.missing(&present))
}
