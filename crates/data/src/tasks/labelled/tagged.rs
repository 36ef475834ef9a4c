//! Words with tags, in columns as in CoNLL's shared tasks.

use std::path::PathBuf;

use crate::tasks::running_text;
use crate::{Corpora, DataConfig, Error, LineReader, Result, words};

/// Endings that the configured name of a file of tags may omit.
pub(crate) const ENDINGS: [&str; 3] = ["", ".conll", ".txt"];
/// First column of a line that separates documents.
const DOCUMENT: &str = "-DOCSTART-";

/// The paths of the files of a split.
///
/// # Errors
///
/// [`Error::Missing`] if there is no such file, with the names that were tried.
pub(crate) fn files(config: &DataConfig, split: &Corpora) -> Result<Vec<PathBuf>> {
    running_text::reader::files_ending(config, split, &ENDINGS)
}

/// A sentence: its words, and for each word the index of its tag.
#[derive(Debug, Default)]
pub(crate) struct Tagged {
    pub(crate) words: Vec<String>,
    pub(crate) tags: Vec<u32>,
}

/// The sentences of a split. Each is a list of words and a list of their tags.
///
/// # Errors
///
/// If a file is missing, or a line is not a word with a listed tag.
pub fn tagged_words(
    config: &DataConfig,
    split: &Corpora,
) -> Result<Vec<(Vec<String>, Vec<String>)>> {
    let labels = &config.labelled.labels;
    let named = |Tagged { words, tags }: Tagged| {
        let tags = tags.into_iter().map(|tag| labels[tag as usize].clone()).collect();
        (words, tags)
    };
    Ok(read(config, split)?.into_iter().map(named).collect())
}

/// Reads a split. Each line is a word: its first column is the word and its last column the tag,
/// with spaces or tabs between columns. An empty line ends a sentence.
///
/// # Errors
///
/// If a line has only one column, or another number of columns than the first line of its file, or
/// if the configuration does not list its tag.
pub(crate) fn read(config: &DataConfig, split: &Corpora) -> Result<Vec<Tagged>> {
    let labels = &config.labelled.labels;
    let (mut found, mut sentence) = (Vec::new(), Tagged::default());
    for path in files(config, split)? {
        let mut lines = LineReader::open(&path)?;
        // Number of columns in this file, and the number of the first line with columns.
        let mut first = None;
        while let Some(line) = lines.next_line()? {
            let columns: Vec<&str> = words(&line).collect();
            let wrong = |message: String| Error::Record {
                path: path.clone(),
                unit: "line",
                line: lines.line(),
                message,
            };
            match columns[..] {
                [] | [DOCUMENT, ..] => {
                    if !sentence.words.is_empty() {
                        found.push(std::mem::take(&mut sentence));
                    }
                }
                [word] => {
                    let message = format!("has {word:?} alone; expected a word and a tag");
                    return Err(wrong(message));
                }
                [word, .., tag] => {
                    let (count, of_line) = *first.get_or_insert((columns.len(), lines.line()));
                    if columns.len() != count {
                        return Err(wrong(format!(
                            "has {} columns, but line {of_line} has {count}; spaces and tabs \
                             divide columns, so a word cannot contain any",
                            columns.len()
                        )));
                    }
                    let Some(number) = labels.iter().position(|known| known == tag) else {
                        let known = labels.join(", ");
                        return Err(wrong(format!(
                            "has the tag {tag:?}, but data.labelled.labels has {known}"
                        )));
                    };
                    sentence.words.push(word.to_owned());
                    sentence.tags.push(number as u32);
                }
            }
        }
        if !sentence.words.is_empty() {
            found.push(std::mem::take(&mut sentence));
        }
    }
    if found.is_empty() {
        let files: Vec<String> =
            files(config, split)?.iter().map(|file| file.display().to_string()).collect();
        return Err(Error::EmptyText { split: split.name(), files: files.join(", ") });
    }
    Ok(found)
}
