//! Pairs from one file with a record a line: tab-separated columns or JSON objects.

use std::path::Path;

use serde_json::Value;

use crate::tasks::pairs::reader::header::{Columns, columns};
use crate::{Corpus, DataConfig, Error, Format, LineReader, Result, Side};

/// Reads pairs from a TSV or JSON-lines file.
pub(crate) struct RecordPairs {
    lines: LineReader,
    shape: Shape,
    /// The first line, where it has been looked at and is text.
    first: Option<String>,
}

enum Shape {
    Tsv(Columns),
    /// For each side the dotted paths to try, in order.
    Jsonl {
        source: Vec<String>,
        target: Vec<String>,
    },
}

impl RecordPairs {
    /// Opens the file and, for TSV, looks at its first line.
    pub(crate) fn open(
        config: &DataConfig,
        corpus: &Corpus,
        format: Format,
        path: &Path,
    ) -> Result<Self> {
        let mut lines = LineReader::open(path)?;
        if format == Format::Jsonl {
            let shape = Shape::Jsonl {
                source: field_paths(config, corpus, Side::Source),
                target: field_paths(config, corpus, Side::Target),
            };
            return Ok(Self { lines, shape, first: None });
        }
        let first = lines.next_line()?;
        let cells: Vec<&str> = first.as_deref().unwrap_or_default().split('\t').collect();
        let (columns, is_header) = columns(config, corpus, path, &cells)?;
        Ok(Self { lines, shape: Shape::Tsv(columns), first: first.filter(|_| !is_header) })
    }

    /// Bytes of the file that have been read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.lines.bytes_read()
    }

    /// The two sides of the next record. An empty line of JSON lines is skipped, as its readers do.
    pub(crate) fn next_sides(&mut self) -> Result<Option<(String, String)>> {
        loop {
            let line = match self.first.take() {
                Some(first) => first,
                None => match self.lines.next_line()? {
                    Some(line) => line,
                    None => return Ok(None),
                },
            };
            let sides = match &self.shape {
                Shape::Tsv(columns) => columns.of(&line.split('\t').collect::<Vec<_>>(), "tab"),
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
    }
}

/// Where a side may stand in a record with named fields: where the configuration says, or else
/// under the language, at the top or within `translation` as many published corpora have it.
pub(crate) fn field_paths(config: &DataConfig, corpus: &Corpus, side: Side) -> Vec<String> {
    let fields = corpus.fields(config);
    let chosen = match side {
        Side::Source => &fields.source,
        Side::Target => &fields.target,
    };
    if !chosen.is_empty() {
        return vec![chosen.clone()];
    }
    let language = config.language(side);
    vec![language.to_owned(), format!("translation.{language}")]
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
