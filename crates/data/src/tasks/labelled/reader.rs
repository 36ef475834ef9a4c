//! Texts with labels, line by line.

use std::path::{Path, PathBuf};

use crate::tables::{Table, table_format};
use crate::tasks::running_text;
use crate::tasks::running_text::reader::refuse_json;
use crate::text::tokenizer::segmentation::Layout;
use crate::text::tokenizer::special::MARKS;
use crate::{
    Corpora, DataConfig, Error, Format, LabelledConfig, LineReader, Pairs, Result, TokenizerPair,
};

/// Endings that the configured name of a file of labelled texts may omit.
pub(crate) const ENDINGS: [&str; 2] = ["", ".tsv"];

/// The files of a split.
///
/// # Errors
///
/// [`Error::Missing`], with the names that were tried, if there is no such file.
pub(crate) fn files(config: &DataConfig, split: &Corpora) -> Result<Vec<PathBuf>> {
    running_text::reader::files_ending(config, split, &ENDINGS)
}

/// Texts with the indices of their classes.
#[derive(Debug, Default)]
pub(crate) struct Labelled {
    pub(crate) classes: Vec<u32>,
    pub(crate) texts: Vec<String>,
}

/// Content of a line or record, or a description of its error.
type RowResult<T> = std::result::Result<T, String>;

/// Text of a line and `None`, or the two texts that its tab separates.
pub(crate) fn texts_of(line: &str, pairs: Pairs) -> RowResult<(&str, Option<&str>)> {
    let (first, second) = match line.split_once('\t').filter(|_| pairs != Pairs::No) {
        Some((_, second)) if second.contains('\t') => {
            let count = line.split('\t').count();
            return Err(format!("has {count} texts with tabs between them, but two are expected"));
        }
        Some((first, second)) => (first, Some(second)),
        None if pairs == Pairs::Yes => {
            return Err("has one text; data.labelled.pairs expects two, with a tab between \
                        them"
                .to_owned());
        }
        None => (line, None),
    };
    if first.trim().is_empty() || second.is_some_and(|second| second.trim().is_empty()) {
        return Err("has an empty text".to_owned());
    }
    Ok((first, second))
}

/// Index of the first text with a tab, if the model reads one text per line. Such a line may have
/// been meant as a pair.
#[must_use]
pub fn first_with_tab(texts: &[String], config: &LabelledConfig) -> Option<usize> {
    match config.pairs {
        Pairs::No => texts.iter().position(|text| text.contains('\t')),
        Pairs::Yes | Pairs::Auto => None,
    }
}

/// Label of a line, and the text after it, or the two texts after it with a tab between them.
fn columns_of(line: &str, pairs: Pairs) -> RowResult<(&str, &str)> {
    let (label, texts) =
        line.split_once('\t').ok_or("has no tab; expected a label, a tab and a text")?;
    match texts.split('\t').count() {
        1 => Ok((label, texts)),
        2 if pairs != Pairs::No => Ok((label, texts)),
        2 => {
            Err("has two texts after its label; set data.labelled.pairs = true, or write the text \
             without a tab"
                .to_owned())
        }
        count => Err(format!(
            "has {count} texts after its label, with tabs between them; write each without a tab"
        )),
    }
}

impl Labelled {
    /// Adds a text, or two texts with a tab between them, with the class of `label`.
    fn push(&mut self, config: &LabelledConfig, label: &str, texts: String) -> RowResult<()> {
        let Some(class) = config.labels.iter().position(|known| known == label) else {
            let known = config.labels.join(", ");
            return Err(format!("has the label {label:?}, but data.labelled.labels has {known}"));
        };
        texts_of(&texts, config.pairs)?;
        self.classes.push(class as u32);
        self.texts.push(texts);
        Ok(())
    }
}

/// Function that is called with the label of a line or record, and with its text, or its two texts
/// with a tab between them.
type Take<'a> = &'a mut dyn FnMut(&str, String) -> RowResult<()>;

/// Reads a file of lines; blank lines are skipped.
fn read_lines(config: &LabelledConfig, path: &Path, take: Take<'_>) -> Result<()> {
    let mut lines = LineReader::open(path)?;
    while let Some(line) = lines.next_line()? {
        if line.trim().is_empty() {
            continue;
        }
        columns_of(&line, config.pairs)
            .and_then(|(label, texts)| take(label, texts.to_owned()))
            .map_err(|message| Error::Record {
                path: path.to_owned(),
                unit: "line",
                line: lines.line(),
                message,
            })?;
    }
    Ok(())
}

/// Reads the records of a table. Columns are found by the configured names of fields.
fn read_table(config: &DataConfig, path: &Path, format: Format, take: Take<'_>) -> Result<()> {
    let fields = &config.fields;
    let mut named = vec![fields.label(), fields.text()];
    let has_pairs = match config.labelled.pairs {
        Pairs::Yes => true,
        Pairs::Auto => !fields.text_pair.is_empty(),
        Pairs::No => false,
    };
    if has_pairs {
        named.push(fields.text_pair());
    }
    let mut table = Table::open_named(path, format, &named)?;
    let mut record = 0;
    while let Some(mut texts) = table.next_record()? {
        record += 1;
        let label = texts.remove(0);
        if config.labelled.pairs != Pairs::No {
            // A tab separates the two texts, so neither may contain one.
            texts.iter_mut().for_each(|text| *text = text.replace('\t', " "));
        }
        take(&label, texts.join("\t")).map_err(|message| {
            let path = path.to_owned();
            Error::Record { path, unit: "record", line: record, message }
        })?;
    }
    Ok(())
}

/// Reads the lines and tables of a split.
///
/// # Errors
///
/// If a line or record has no label or text, too many columns, or a label that the configuration
/// does not list.
pub(crate) fn read(config: &DataConfig, split: &Corpora) -> Result<Labelled> {
    let mut found = Labelled::default();
    let labelled = &config.labelled;
    each(config, split, &mut |label, texts| found.push(labelled, label, texts))?;
    if found.texts.is_empty() {
        let files: Vec<String> =
            files(config, split)?.iter().map(|file| file.display().to_string()).collect();
        return Err(Error::EmptyText { split: split.name(), files: files.join(", ") });
    }
    Ok(found)
}

/// Label and text of each line or record of a split; two texts have a tab between them. A label
/// need not be listed in the configuration.
///
/// # Errors
///
/// If a line or record has no label or text, or too many columns.
pub fn labelled_texts(config: &DataConfig, split: &Corpora) -> Result<Vec<[String; 2]>> {
    let mut found = Vec::new();
    each(config, split, &mut |label, texts| {
        texts_of(&texts, config.labelled.pairs)?;
        found.push([label.to_owned(), texts]);
        Ok(())
    })?;
    Ok(found)
}

/// Passes every line and record of a split to `take`.
fn each(config: &DataConfig, split: &Corpora, take: Take<'_>) -> Result<()> {
    let fields = &config.fields;
    let names_columns = [&fields.label, &fields.text, &fields.text_pair];
    let names_columns = names_columns.iter().any(|name| !name.is_empty());
    for path in files(config, split)? {
        refuse_json(&path)?;
        match table_format(&path) {
            Some(Format::Tsv) if !names_columns => read_lines(&config.labelled, &path, take)?,
            Some(format) => read_table(config, &path, format, take)?,
            None => read_lines(&config.labelled, &path, take)?,
        }
    }
    Ok(())
}

/// Texts of the training split. The two texts of a pair are separate items.
///
/// # Errors
///
/// If the files cannot be read.
pub(crate) fn texts(config: &DataConfig) -> Result<Vec<String>> {
    let texts = read(config, &config.train)?.texts.into_iter();
    Ok(texts
        .flat_map(|line| match texts_of(&line, config.labelled.pairs) {
            Ok((first, Some(second))) => vec![first.to_owned(), second.to_owned()],
            _ => vec![line],
        })
        .collect())
}

/// Tokenizer with `<cls>`, `<sep>` and `<mask>`: the configured one, or one trained on `texts`.
///
/// # Errors
///
/// If a text cannot be read, or the tokenizer cannot be trained or loaded.
pub(crate) fn train_tokenizer(
    config: &DataConfig,
    texts: impl FnOnce() -> Result<Vec<String>>,
) -> Result<TokenizerPair> {
    let settings = &config.tokenizer;
    let tokenizer = match &settings.path {
        Some(path) => crate::Tokenizer::load(path)?,
        None => {
            let mut settings = settings.clone();
            settings.vocabulary_size = settings.vocabulary_size.saturating_sub(MARKS.len());
            let most = usize::try_from(settings.max_pairs).unwrap_or(usize::MAX);
            let texts = texts()?.into_iter().take(most).map(Ok);
            let (nfkc, lowercase) = (config.nfkc, config.lowercase);
            crate::Tokenizer::train_for(Layout::RunningText, &settings, nfkc, lowercase, texts)?
        }
    };
    tokenizer.with_marks().map(TokenizerPair::joint)
}
