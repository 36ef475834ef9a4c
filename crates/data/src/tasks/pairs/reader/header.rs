//! Chooses the columns of a table that contain source and target, and decides if the first line is
//! a header.

use std::path::{Path, PathBuf};

use crate::tables::{Columns, Field, Table, Wanted, column_named};
use crate::{Corpus, DataConfig, Error, Format, Result, Side};

/// Usual column names. A first row with two of these words is a header, because no pair of
/// sentences consists of two such words.
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

/// Names of languages that are used as column names.
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

/// Opens the table of a corpus. Each record consists of source and target.
///
/// # Errors
///
/// If a file cannot be opened, or lacks the columns that the configuration names.
pub(crate) fn open(
    config: &DataConfig,
    corpus: &Corpus,
    format: Format,
    files: &[PathBuf],
) -> Result<Table> {
    let field = |side| Field { paths: field_paths(config, corpus, side), may_be_number: false };
    let path = files.first().map_or(Path::new(""), PathBuf::as_path);
    let columns = |first: &[&str]| columns(config, corpus, path, first);
    let fields = [Side::Source, Side::Target].map(field).into();
    Table::open(format, files, Wanted { fields, columns: &columns })
}

/// Possible names of the field with the text of a side, for records with named fields, in the order
/// in which they are tried. If the configuration names the field, this is the only name. Otherwise
/// the name is the language, first at the top level and then within `translation`, as in many
/// published corpora.
fn field_paths(config: &DataConfig, corpus: &Corpus, side: Side) -> Vec<String> {
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

/// Columns of source and target in the table at `path`, and true if its first row, `first`, is a
/// header rather than text.
///
/// # Errors
///
/// [`Error::Record`] if a configured column is missing, or if no columns are configured and the
/// first row looks like a header.
fn columns(
    config: &DataConfig,
    corpus: &Corpus,
    path: &Path,
    first: &[&str],
) -> Result<(Columns, bool)> {
    let fields = corpus.fields(config);
    let wrong =
        |message: String| Error::Record { path: path.to_owned(), unit: "line", line: 1, message };
    let count = Some(first.len());
    if fields.source.is_empty() && fields.target.is_empty() {
        let [source, target] =
            [Side::Source, Side::Target].map(|side| column_named(first, config.language(side)));
        return match (source, target) {
            (Some(source), Some(target)) if source != target => {
                Ok((Columns { places: vec![source, target], count }, true))
            }
            _ if looks_like_a_header(first, config) => Err(wrong(format!(
                "looks like a header ({}); name the columns of both sides, for example \
                 data.fields = {{ source = {:?}, target = {:?} }}, or if this is text give their \
                 numbers, {{ source = \"1\", target = \"2\" }}",
                first.join(", "),
                first.first().unwrap_or(&""),
                first.get(1).unwrap_or(&""),
            ))),
            _ => Ok((Columns { places: vec![0, 1], count }, false)),
        };
    }
    // A column chosen by name requires a header, a column chosen by number does not.
    let mut has_header = false;
    let mut column = |field: &str, side: Side, usual: usize| {
        if field.is_empty() {
            let named = column_named(first, config.language(side));
            has_header |= named.is_some();
            return Ok(named.unwrap_or(usual));
        }
        if let Some(number) = field.parse::<usize>().ok().and_then(|number| number.checked_sub(1)) {
            return Ok(number);
        }
        has_header = true;
        column_named(first, field).ok_or_else(|| {
            wrong(format!(
                "no column {field:?} in the header ({}); set data.fields to a name there or to a \
                 column number from 1",
                first.join(", ")
            ))
        })
    };
    let source = column(&fields.source, Side::Source, 0)?;
    let target = column(&fields.target, Side::Target, 1)?;
    let missing = match (fields.source.is_empty(), fields.target.is_empty()) {
        (true, _) => Some(("source", Side::Source)),
        (_, true) => Some(("target", Side::Target)),
        _ => None,
    };
    if let Some((field, side)) = missing.filter(|_| source == target) {
        return Err(wrong(format!(
            "column {} would be both source and target, because no column is named {:?} ({}); set \
             data.fields.{field} too",
            source + 1,
            config.language(side),
            first.join(", ")
        )));
    }
    let (places, count) = (vec![source, target], count.filter(|_| has_header));
    Ok((Columns { places, count }, has_header))
}

/// True if the first two cells, which would be a source and a target, are usual names of columns.
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
