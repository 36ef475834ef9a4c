//! Texts with labels, line by line.

use std::path::PathBuf;

use crate::tasks::running_text;
use crate::text::segmentation::Layout;
use crate::text::special::MARKS;
use crate::{Corpora, DataConfig, Error, LineReader, Result, TokenizerPair};

/// What the name of a file of such texts may end in.
pub(crate) const ENDINGS: [&str; 4] = ["", ".tsv", ".tsv.gz", ".tsv.zst"];

/// The files of a split.
///
/// # Errors
///
/// [`Error::Missing`] with the names that were tried.
pub(crate) fn files(config: &DataConfig, split: &Corpora) -> Result<Vec<PathBuf>> {
    running_text::reader::files_ending(config, split, &ENDINGS)
}

/// Texts with the numbers of their classes.
#[derive(Debug, Default)]
pub(crate) struct Labelled {
    pub(crate) classes: Vec<u32>,
    pub(crate) texts: Vec<String>,
}

/// The text of a line, or the two texts with a tab between them; or what is wrong with it.
pub(crate) fn texts_of(
    line: &str,
    pairs: bool,
) -> std::result::Result<(&str, Option<&str>), String> {
    let (first, second) = match line.split_once('\t') {
        Some((first, second)) if pairs => (first, Some(second)),
        None if pairs => {
            return Err("has one text; data.labelled.pairs expects two, with a tab between \
                        them"
                .to_owned());
        }
        _ => (line, None),
    };
    if first.trim().is_empty() || second.is_some_and(|second| second.trim().is_empty()) {
        return Err("has an empty text".to_owned());
    }
    Ok((first, second))
}

/// Reads a split; lines that are blank are passed over.
///
/// # Errors
///
/// For a line without a tab or text, or with a label that the configuration does not list.
pub(crate) fn read(config: &DataConfig, split: &Corpora) -> Result<Labelled> {
    let labels = &config.labelled.labels;
    let mut found = Labelled::default();
    for path in files(config, split)? {
        let mut lines = LineReader::open(&path)?;
        while let Some(line) = lines.next_line()? {
            if line.trim().is_empty() {
                continue;
            }
            let wrong = |message: String| Error::Record {
                path: path.clone(),
                unit: "line",
                line: lines.line(),
                message,
            };
            let Some((label, text)) = line.split_once('\t') else {
                return Err(wrong("has no tab; expected a label, a tab and a text".to_owned()));
            };
            let Some(class) = labels.iter().position(|known| known == label) else {
                let known = labels.join(", ");
                return Err(wrong(format!(
                    "has the label {label:?}, but data.labelled.labels has {known}"
                )));
            };
            texts_of(text, config.labelled.pairs).map_err(wrong)?;
            found.classes.push(class as u32);
            found.texts.push(text.to_owned());
        }
    }
    if found.texts.is_empty() {
        let files: Vec<String> =
            files(config, split)?.iter().map(|file| file.display().to_string()).collect();
        return Err(Error::EmptyText { split: split.name(), files: files.join(", ") });
    }
    Ok(found)
}

/// The texts of the training split, each by itself.
///
/// # Errors
///
/// If they cannot be read.
pub(crate) fn texts(config: &DataConfig) -> Result<Vec<String>> {
    let texts = read(config, &config.train)?.texts.into_iter();
    Ok(texts
        .flat_map(|line| match texts_of(&line, config.labelled.pairs) {
            Ok((first, Some(second))) => vec![first.to_owned(), second.to_owned()],
            _ => vec![line],
        })
        .collect())
}

/// A tokenizer with `<cls>`, `<sep>` and `<mask>`: the one that is named, or one trained on `texts`.
///
/// # Errors
///
/// If a text cannot be read, or a tokenizer not be trained or loaded.
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
