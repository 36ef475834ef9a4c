//! Which columns of a table hold the two sides, and whether its first line is a header.

use std::path::Path;

use crate::{Corpus, DataConfig, Error, Result, Side};

/// Words that head a column of text; no sentence of a corpus is one of them alone in both columns.
const HEADINGS: [&str; 24] = [
    "source",
    "target",
    "src",
    "tgt",
    "trg",
    "input",
    "output",
    "text",
    "sentence",
    "sentence1",
    "sentence2",
    "translation",
    "reference",
    "original",
    "source_text",
    "target_text",
    "source_sentence",
    "target_sentence",
    "source text",
    "target text",
    "question",
    "answer",
    "lang1",
    "lang2",
];

/// Languages by the names that head columns.
const LANGUAGES: [&str; 24] = [
    "english",
    "german",
    "french",
    "spanish",
    "italian",
    "portuguese",
    "dutch",
    "russian",
    "chinese",
    "japanese",
    "korean",
    "arabic",
    "greek",
    "turkish",
    "polish",
    "czech",
    "swedish",
    "finnish",
    "hindi",
    "vietnamese",
    "deutsch",
    "français",
    "español",
    "中文",
];

/// Columns, counted from 0, of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Columns {
    pub(crate) source: usize,
    pub(crate) target: usize,
}

impl Columns {
    /// The two texts of a row of cells that a `separator` stands between.
    ///
    /// # Errors
    ///
    /// In words, where the row is too short.
    pub(crate) fn of(self, row: &[&str], separator: &str) -> Result<(String, String), String> {
        match (row.get(self.source), row.get(self.target)) {
            (Some(source), Some(target)) => Ok(((*source).to_owned(), (*target).to_owned())),
            _ => Err(format!(
                "has {} {separator}-separated columns but data.fields needs column {}",
                row.len(),
                self.source.max(self.target) + 1
            )),
        }
    }
}

/// The columns of the table at `path` whose first row is `first`, and whether that row is a header
/// rather than text.
///
/// # Errors
///
/// [`Error::Record`] where a named column is not there, or where the first row looks like a header
/// and nothing says which columns are meant.
pub(crate) fn columns(
    config: &DataConfig,
    corpus: &Corpus,
    path: &Path,
    first: &[&str],
) -> Result<(Columns, bool)> {
    let fields = corpus.fields(config);
    let wrong =
        |message: String| Error::Record { path: path.to_owned(), unit: "line", line: 1, message };
    let named = |name: &str| {
        first.iter().position(|cell| cell.trim().to_lowercase() == name.to_lowercase())
    };
    if fields.is_default() {
        let [source, target] =
            [Side::Source, Side::Target].map(|side| named(config.language(side)));
        return match (source, target) {
            (Some(source), Some(target)) if source != target => {
                Ok((Columns { source, target }, true))
            }
            _ if looks_like_a_header(first, config) => Err(wrong(format!(
                "looks like a header ({}); name the columns of both sides, for example \
                 data.fields = {{ source = {:?}, target = {:?} }}, or if this is text give their \
                 numbers, {{ source = \"1\", target = \"2\" }}",
                first.join(", "),
                first.first().unwrap_or(&""),
                first.get(1).unwrap_or(&""),
            ))),
            _ => Ok((Columns { source: 0, target: 1 }, false)),
        };
    }
    // Numbers need no header; a name says that there is one.
    let mut has_header = false;
    let mut column = |field: &str, usual: usize| {
        if field.is_empty() {
            return Ok(usual);
        }
        if let Some(number) = field.parse::<usize>().ok().and_then(|number| number.checked_sub(1)) {
            return Ok(number);
        }
        has_header = true;
        first.iter().position(|cell| *cell == field).ok_or_else(|| {
            wrong(format!(
                "no column {field:?} in the header ({}); set data.fields to a name there or to a \
                 column number from 1",
                first.join(", ")
            ))
        })
    };
    let columns =
        Columns { source: column(&fields.source, 0)?, target: column(&fields.target, 1)? };
    Ok((columns, has_header))
}

/// Whether the cells that would be text are names of columns.
fn looks_like_a_header(first: &[&str], config: &DataConfig) -> bool {
    let is_heading = |cell: &&str| {
        let cell = cell.trim().to_lowercase();
        HEADINGS.contains(&cell.as_str())
            || LANGUAGES.contains(&cell.as_str())
            || [Side::Source, Side::Target]
                .iter()
                .any(|side| cell == config.language(*side).to_lowercase())
    };
    first.len() >= 2 && first[..2].iter().all(is_heading)
}
