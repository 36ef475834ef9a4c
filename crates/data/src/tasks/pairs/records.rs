//! Pairs from one file with a record a line: tab-separated columns or JSON objects.

use std::path::Path;

use serde_json::Value;

use crate::{DataConfig, Error, Format, LineReader, Result, Side};

/// Reads pairs from a TSV or JSON-lines file.
pub(crate) struct RecordPairs {
    lines: LineReader,
    shape: Shape,
}

enum Shape {
    /// Column indexes from 0.
    Tsv { source: usize, target: usize },
    /// For each side the dotted paths to try, in order.
    Jsonl { source: Vec<String>, target: Vec<String> },
}

impl RecordPairs {
    /// Opens the file and, for TSV with named columns, reads its header.
    pub(crate) fn open(config: &DataConfig, path: &Path) -> Result<Self> {
        let mut lines = LineReader::open(path)?;
        let shape = match config.format {
            Format::Jsonl => Shape::Jsonl {
                source: field_paths(config, Side::Source),
                target: field_paths(config, Side::Target),
            },
            _ => tsv_shape(config, &mut lines)?,
        };
        Ok(Self { lines, shape })
    }

    /// The two sides of the next record. An empty line of JSON lines is skipped, as its readers do.
    pub(crate) fn next_sides(&mut self) -> Result<Option<(String, String)>> {
        while let Some(line) = self.lines.next_line()? {
            let sides = match &self.shape {
                Shape::Tsv { source, target } => tsv_sides(&line, *source, *target),
                Shape::Jsonl { .. } if line.trim().is_empty() => continue,
                Shape::Jsonl { source, target } => json_sides(&line, source, target),
            };
            return sides.map(Some).map_err(|message| Error::Record {
                path: self.lines.path().to_owned(),
                unit: "line",
                line: self.lines.line(),
                message,
            });
        }
        Ok(None)
    }
}

/// Where a side may stand in a record with named fields: where the configuration says, or else
/// under the language, at the top or within `translation` as many published corpora have it.
pub(crate) fn field_paths(config: &DataConfig, side: Side) -> Vec<String> {
    let chosen = match side {
        Side::Source => &config.fields.source,
        Side::Target => &config.fields.target,
    };
    if !chosen.is_empty() {
        return vec![chosen.clone()];
    }
    let language = config.language(side);
    vec![language.to_owned(), format!("translation.{language}")]
}

fn tsv_shape(config: &DataConfig, lines: &mut LineReader) -> Result<Shape> {
    let wanted = [(&config.fields.source, "1"), (&config.fields.target, "2")]
        .map(|(field, default)| if field.is_empty() { default } else { field.as_str() });
    // Numbers need no header; a name says that there is one.
    let numbers = wanted.map(|field| field.parse::<usize>().ok().and_then(|n| n.checked_sub(1)));
    if let [Some(source), Some(target)] = numbers {
        return Ok(Shape::Tsv { source, target });
    }
    let header = lines.next_line()?.unwrap_or_default();
    let names: Vec<&str> = header.split('\t').collect();
    let column = |field: &str, number: Option<usize>| {
        match number {
        Some(number) => Ok(number),
        None => names.iter().position(|name| *name == field).ok_or_else(|| Error::Record {
            path: lines.path().to_owned(),
            unit: "line",
            line: 1,
            message: format!(
                "no column {field:?} in the header ({}); set data.fields to a name there or to a column number from 1",
                names.join(", ")
            ),
        }),
    }
    };
    Ok(Shape::Tsv {
        source: column(wanted[0], numbers[0])?,
        target: column(wanted[1], numbers[1])?,
    })
}

fn tsv_sides(line: &str, source: usize, target: usize) -> Result<(String, String), String> {
    let columns: Vec<&str> = line.split('\t').collect();
    match (columns.get(source), columns.get(target)) {
        (Some(source), Some(target)) => Ok(((*source).to_owned(), (*target).to_owned())),
        _ => Err(format!(
            "has {} tab-separated columns but data.fields needs column {}",
            columns.len(),
            source.max(target) + 1
        )),
    }
}

fn json_sides(
    line: &str,
    source: &[String],
    target: &[String],
) -> Result<(String, String), String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    Ok((json_text(&value, source)?, json_text(&value, target)?))
}

fn json_text(record: &Value, paths: &[String]) -> Result<String, String> {
    for path in paths {
        // A key may itself hold a dot; it wins over a nested one.
        let found = record
            .get(path)
            .or_else(|| path.split('.').try_fold(record, |value, key| value.get(key)));
        match found {
            Some(Value::String(text)) => return Ok(text.clone()),
            Some(other) => return Err(format!("field {path:?} is {other}, not a string")),
            None => {}
        }
    }
    Err(format!("no field {}; name it in data.fields", paths.join(" or ")))
}
