//! What encoders of texts read: rows of tokens with their marks.

use rayon::prelude::*;

use crate::tasks::labelled::reader::texts_of;
use crate::{Error, LabelledConfig, Result, Tokenizer};

/// What an encoder reads: `<cls> text <sep>`, or `<cls> first <sep> second <sep>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The tokens with their marks.
    pub ids: Vec<u32>,
    /// The number of the first token of the second text; that of all tokens where there is none.
    pub second: usize,
    /// The tokens that are asked: the first for the class of a text, or twice for both ends of an
    /// answer; or that with which each word begins.
    pub asked: Vec<u32>,
    /// The word of each, where words are asked.
    pub words: Vec<usize>,
}

impl Row {
    /// The segment of each token: 1 of the second text and of the mark behind it, else 0.
    pub fn segments(&self) -> impl Iterator<Item = u32> + use<> {
        let second = self.second;
        (0..self.ids.len()).map(move |at| u32::from(at >= second))
    }
}

/// Lines as a classifier reads them: a text each, or two with a tab between them, as
/// [`LabelledConfig::pairs`] says.
///
/// # Errors
///
/// For a line that is not that, by its number from 1, and if the tokenizer has no marks or refuses a
/// text.
pub fn rows_of(
    tokenizer: &Tokenizer,
    lines: &[String],
    config: &LabelledConfig,
) -> Result<Vec<Row>> {
    rows_of_each(tokenizer, lines, config)?.into_iter().collect()
}

/// As [`rows_of`], where a line that is not as it should be has its error in its place.
///
/// # Errors
///
/// If the tokenizer has no marks.
pub fn rows_of_each(
    tokenizer: &Tokenizer,
    lines: &[String],
    config: &LabelledConfig,
) -> Result<Vec<Result<Row>>> {
    let [class, separator] = tokenizer.edges()?;
    let row = |(index, line): (usize, &String)| -> Result<Row> {
        let of_line = |message: String| Error::Line { line: index as u64 + 1, message };
        let (first, second) = texts_of(line, config.pairs).map_err(of_line)?;
        let encode =
            |text: &str| tokenizer.encode(text).map_err(|error| of_line(error.to_string()));
        let (mut ids, second) = (encode(first)?, second.map(encode).transpose()?);
        let Some(mut second) = second else {
            ids.truncate(config.max_tokens.saturating_sub(2));
            ids.insert(0, class);
            ids.push(separator);
            return Ok(Row { second: ids.len(), ids, asked: vec![0], words: Vec::new() });
        };
        let (of_first, of_second) =
            shares((ids.len(), second.len()), config.max_tokens.saturating_sub(3));
        ids.truncate(of_first);
        second.truncate(of_second);
        ids.insert(0, class);
        ids.push(separator);
        let start = ids.len();
        ids.append(&mut second);
        ids.push(separator);
        Ok(Row { ids, second: start, asked: vec![0], words: Vec::new() })
    };
    Ok(lines.par_iter().enumerate().map(row).collect())
}

/// Words as a tagger reads them: `<cls> words <sep>`, each word by itself, so that none of its tokens
/// reaches into another (Devlin et al. 2019, section 5.3). Words for which there is no room, and those
/// of which the tokenizer makes nothing, are not asked.
///
/// # Errors
///
/// If the tokenizer has no marks or refuses a word.
pub fn rows_of_words<S: AsRef<[String]> + Sync>(
    tokenizer: &Tokenizer,
    sentences: &[S],
    config: &LabelledConfig,
) -> Result<Vec<Row>> {
    let [class, separator] = tokenizer.edges()?;
    let room = config.max_tokens.saturating_sub(1);
    let row = |words: &S| -> Result<Row> {
        let (mut ids, mut asked, mut of) = (vec![class], Vec::new(), Vec::new());
        for (number, word) in words.as_ref().iter().enumerate() {
            let tokens = tokenizer.encode(word)?;
            if ids.len() >= room {
                break;
            }
            if !tokens.is_empty() {
                asked.push(ids.len() as u32);
                of.push(number);
            }
            ids.extend(tokens);
            ids.truncate(room);
        }
        ids.push(separator);
        Ok(Row { second: ids.len(), ids, asked, words: of })
    };
    sentences.par_iter().map(row).collect()
}

/// How much of two lengths has room: what is too much is taken off the longer.
fn shares((first, second): (usize, usize), room: usize) -> (usize, usize) {
    let half = room / 2;
    match (first + second <= room, first <= half, second <= half) {
        (true, ..) => (first, second),
        (_, true, _) => (first, room - first),
        (_, _, true) => (room - second, second),
        _ => (room - half, half),
    }
}
