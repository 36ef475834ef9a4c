//! Input of text encoders: rows of tokens with marks, which are the special tokens `<cls>` and
//! `<sep>`.

use rayon::prelude::*;

use crate::tasks::labelled::reader::texts_of;
use crate::text::tokenizer::special::RowMarks;
use crate::{Error, LabelledConfig, Result, Tokenizer};

/// A row for an encoder: `<cls> text <sep>`, or `<cls> first <sep> second <sep>`. Some models have
/// two separators between the texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The tokens, including marks.
    pub ids: Vec<u32>,
    /// Index of the first token of the second text. If there is no second text, the number of all
    /// tokens.
    pub second: usize,
    /// Segment of the second text: 1, or 0 for a model that reads both texts in one segment.
    pub second_segment: u32,
    /// Indices of the tokens at which the model predicts. For the class of a text, this is the
    /// index of the first token; for the two ends of an answer, the same index twice; for tags, the
    /// index of the first token of each word.
    pub asked: Vec<u32>,
    /// Index of the word that begins at each token of `asked`; empty if nothing is predicted for
    /// words.
    pub words: Vec<usize>,
    /// Number of tokens of the texts. Marks are not counted, but tokens that were cut off are.
    pub tokens: usize,
}

impl Row {
    /// The segment of each token. It is [`Self::second_segment`] for the second text and the mark
    /// after it, and 0 for all others.
    pub fn segments(&self) -> impl Iterator<Item = u32> + use<> {
        let (second, segment) = (self.second, self.second_segment);
        (0..self.ids.len()).map(move |at| if at >= second { segment } else { 0 })
    }
}

/// Makes rows for a classifier. Each line is one text, or two texts with a tab between them,
/// depending on [`LabelledConfig::pairs`].
///
/// # Errors
///
/// If a line has more or fewer texts than are configured (the error has the line number, from 1),
/// if the tokenizer has no marks, or if it refuses a text.
pub fn rows_of(
    tokenizer: &Tokenizer,
    lines: &[String],
    config: &LabelledConfig,
) -> Result<Vec<Row>> {
    rows_of_each(tokenizer, lines, 0, config)?.into_iter().collect()
}

/// Makes rows like [`rows_of`], but a line that is refused gets an error instead of a row. In
/// errors, the first line has the number `before + 1`.
///
/// # Errors
///
/// If the tokenizer has no marks.
pub fn rows_of_each(
    tokenizer: &Tokenizer,
    lines: &[String],
    before: usize,
    config: &LabelledConfig,
) -> Result<Vec<Result<Row>>> {
    let marks = tokenizer.row_marks()?;
    let second_segment = marks.second_segment;
    let row = |(index, line): (usize, &String)| -> Result<Row> {
        let line_number = (before + index + 1) as u64;
        let of_line = |message: String| Error::Line { line: line_number, message };
        let (first, second) = texts_of(line, config.pairs).map_err(of_line)?;
        let encode =
            |text: &str| tokenizer.encode(text).map_err(|error| of_line(error.to_string()));
        let (mut ids, second) = (encode(first)?, second.map(encode).transpose()?);
        let tokens = ids.len() + second.as_ref().map_or(0, Vec::len);
        let Some(mut second) = second else {
            ids.truncate(config.max_tokens.saturating_sub(RowMarks::SINGLE));
            ids.insert(0, marks.class);
            ids.push(marks.separator);
            let (second, asked, words) = (ids.len(), vec![0], Vec::new());
            return Ok(Row { ids, second, second_segment, asked, words, tokens });
        };
        let room = config.max_tokens.saturating_sub(marks.in_pair());
        if room < 2 {
            return Err(Error::Config {
                key: "data.labelled.max_tokens",
                message: format!(
                    "is {}, but a row of two texts has {} special tokens of this tokenizer and at \
                     least a token of each text: set it to at least {}",
                    config.max_tokens,
                    marks.in_pair(),
                    marks.in_pair() + 2
                ),
            });
        }
        let (of_first, of_second) = shares((ids.len(), second.len()), room);
        ids.truncate(of_first);
        second.truncate(of_second);
        let mut ids = marks.before_second(&ids);
        let start = ids.len();
        ids.append(&mut second);
        ids.push(marks.separator);
        let (asked, words) = (vec![0], Vec::new());
        Ok(Row { ids, second: start, second_segment, asked, words, tokens })
    };
    Ok(lines.par_iter().enumerate().map(row).collect())
}

/// Makes rows of words for a tagger: `<cls> words <sep>`. Each word is tokenised separately, so
/// that no token extends into another word (Devlin et al. 2019, section 5.3). No tag is predicted
/// for words that do not fit and for words without tokens.
///
/// # Errors
///
/// If the tokenizer has no marks or refuses a word.
pub fn rows_of_words<S: AsRef<[String]> + Sync>(
    tokenizer: &Tokenizer,
    sentences: &[S],
    config: &LabelledConfig,
) -> Result<Vec<Row>> {
    let RowMarks { class, separator, second_segment, .. } = tokenizer.row_marks()?;
    let room = config.max_tokens.saturating_sub(1);
    let row = |words: &S| -> Result<Row> {
        let (mut ids, mut asked, mut of) = (vec![class], Vec::new(), Vec::new());
        let mut all = 0;
        for (number, word) in words.as_ref().iter().enumerate() {
            let tokens = tokenizer.encode(word)?;
            all += tokens.len();
            if ids.len() >= room {
                continue;
            }
            if !tokens.is_empty() {
                asked.push(ids.len() as u32);
                of.push(number);
            }
            ids.extend(tokens);
            ids.truncate(room);
        }
        ids.push(separator);
        Ok(Row { second: ids.len(), ids, second_segment, asked, words: of, tokens: all })
    };
    sentences.par_iter().map(row).collect()
}

/// Lengths to which two texts are cut, so that they have at most `room` tokens together. Tokens are
/// removed from the longer text first.
fn shares((first, second): (usize, usize), room: usize) -> (usize, usize) {
    let half = room / 2;
    match (first + second <= room, first <= half, second <= half) {
        (true, ..) => (first, second),
        (_, true, _) => (first, room - first),
        (_, _, true) => (room - second, second),
        _ => (room - half, half),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FolderTokens, Pairs, SpecialTokens};

    /// A tokenizer with the words `a` to `d`, and two separators between two texts, as in RoBERTa.
    fn with_two_separators() -> Tokenizer {
        let words = ["<pad>", "<unk>", "<s>", "</s>", "a", "b", "c", "d"].map(str::to_owned);
        let tokenizer = Tokenizer::of_words(&words).expect("words");
        let special = SpecialTokens {
            class: Some(2),
            separator: Some(3),
            ends: vec![3],
            doubled_separator: true,
            ..SpecialTokens::default()
        };
        let facts = FolderTokens {
            vocabulary_size: words.len(),
            without_row: 0,
            sentence_piece_forms: false,
            special,
            ids: Default::default(),
            files: Default::default(),
            binary_files: Default::default(),
        };
        tokenizer.with_folder(&facts).expect("facts")
    }

    #[test]
    fn each_of_two_texts_has_a_token_or_the_limit_is_refused() {
        let (tokenizer, lines) = (with_two_separators(), ["a b\tc d".to_owned()]);
        let config = |max_tokens| LabelledConfig {
            max_tokens,
            pairs: Pairs::Yes,
            ..LabelledConfig::default()
        };
        let error = rows_of(&tokenizer, &lines, &config(5)).expect_err("refused").to_string();
        assert!(error.contains("max_tokens: is 5") && error.contains("at least 6"), "{error}");
        let rows = rows_of(&tokenizer, &lines, &config(6)).expect("rows");
        assert_eq!(rows[0].ids, [2, 4, 3, 3, 6, 3]);
    }

    #[test]
    fn words_that_do_not_fit_are_counted() {
        let words: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
        let config = LabelledConfig { max_tokens: 4, ..LabelledConfig::default() };
        let rows = rows_of_words(&with_two_separators(), &[words], &config).expect("rows");
        assert_eq!((rows[0].tokens, &*rows[0].ids), (4, &[2, 4, 5, 3][..]));
    }
}
