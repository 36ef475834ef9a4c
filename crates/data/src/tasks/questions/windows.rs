//! Rows (token sequences) for a model that answers questions. A row contains a question and a
//! window, which is a part of the context of the question. Before, between and after them are
//! marks: the special tokens `<cls>` and `<sep>`. This module also finds the places of answers in
//! rows.

use std::ops::Range;

use rayon::prelude::*;

use crate::tasks::labelled::rows::Row;
use crate::tasks::questions::squad::{Paragraph, read_questions};
use crate::{Corpora, DataConfig, EncodedText, QuestionsConfig, Result, TextReport, Tokenizer};

/// Number of paragraphs that are tokenised together, in parallel.
const CHUNK: usize = 512;

/// A tokenised context: the text that answers questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context(EncodedText);

impl Context {
    /// Tokenises a text.
    ///
    /// # Errors
    ///
    /// If the tokenizer refuses the text.
    pub fn new(tokenizer: &Tokenizer, text: &str) -> Result<Self> {
        Ok(Self(tokenizer.encode_text(text)?))
    }

    /// The text.
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// Number of tokens of the context.
    pub fn tokens(&self) -> usize {
        self.0.len()
    }

    /// Indices of the first and last token that overlap a range of bytes of the text; `None` if no
    /// token does.
    pub fn tokens_of(&self, bytes: &Range<usize>) -> Option<(usize, usize)> {
        let is_of = |one: &Range<usize>| one.start < bytes.end && one.end > bytes.start;
        let tokens = self.0.bytes();
        Some((tokens.iter().position(is_of)?, tokens.iter().rposition(is_of)?))
    }

    /// Byte range in the text from the token `first` to the token `last`, without white space at
    /// both ends. `text` must be the text of this context.
    pub fn bytes_of(&self, text: &str, (first, last): (usize, usize)) -> Range<usize> {
        let tokens = self.0.bytes();
        let (start, end) = (tokens[first].start, tokens[last].end.max(tokens[first].start));
        let span = &text[start..end];
        let start = start + (span.len() - span.trim_start().len());
        start..start + span.trim().len()
    }
}

/// A question and a part of its context: `<cls> question <sep> context <sep>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionWindow {
    /// Tokens of the row that the model reads.
    pub row: Row,
    /// Range of the context's tokens in this window.
    pub tokens: Range<usize>,
}

impl QuestionWindow {
    /// Index in the row of the token with the index `token` in the context.
    ///
    /// # Panics
    ///
    /// If the window does not contain the token.
    pub fn place(&self, token: usize) -> usize {
        assert!(self.tokens.contains(&token), "token {token} is not in {:?}", self.tokens);
        self.row.second + token - self.tokens.start
    }

    /// Amount of context around a token, by which windows are compared: `min(before, after) + length
    /// / 100`, as in BERT's program. `before` and `after` are the numbers of tokens of the window
    /// before and after this token, and `length` is the number of all its tokens.
    fn context_around(&self, token: usize) -> f64 {
        let (before, after) = (token - self.tokens.start, self.tokens.end - 1 - token);
        before.min(after) as f64 + 0.01 * self.tokens.len() as f64
    }
}

/// Windows that together cover a context. Each window has as many tokens as fit after the question,
/// and begins at most [`document_stride`] tokens after the previous window.
///
/// [`document_stride`]: QuestionsConfig::document_stride
///
/// # Errors
///
/// If the tokenizer has no marks or refuses the question.
pub fn windows(
    tokenizer: &Tokenizer,
    question: &str,
    context: &Context,
    config: &QuestionsConfig,
) -> Result<Vec<QuestionWindow>> {
    windows_of(tokenizer, &tokenizer.encode(question)?, context, config)
}

/// Makes windows like [`windows`], for a question that is already tokenised.
///
/// # Errors
///
/// If the tokenizer has no marks.
pub fn windows_of(
    tokenizer: &Tokenizer,
    question: &[u32],
    context: &Context,
    config: &QuestionsConfig,
) -> Result<Vec<QuestionWindow>> {
    let marks = tokenizer.row_marks()?;
    // At least one token of the context must fit.
    let room = config.max_tokens.saturating_sub(marks.in_pair() + 1);
    let asked = &question[..question.len().min(config.max_question_tokens.min(room))];
    let begin = marks.before_second(asked);
    let room = config.max_tokens.saturating_sub(begin.len() + 1).max(1);
    let (mut windows, mut first, all) = (Vec::new(), 0, context.0.len());
    loop {
        let tokens = first..all.min(first + room);
        let ids = [&begin, &context.0.ids()[tokens.clone()], &[marks.separator]].concat();
        let count = question.len() + tokens.len();
        // Each row has two predictions: the start and the end of an answer.
        let (second, asked) = (begin.len(), vec![0, 0]);
        let (second_segment, words) = (marks.second_segment, Vec::new());
        let row = Row { ids, second, second_segment, asked, words, tokens: count };
        let is_last = tokens.end == all;
        windows.push(QuestionWindow { row, tokens });
        if is_last {
            return Ok(windows);
        }
        first += room.min(config.document_stride);
    }
}

/// For each token of a context, the index of the window with the most context around the token. If
/// this is true of several windows, the first of them is taken. As in BERT's program, only this
/// window decides whether an answer starts at the token.
pub fn best_windows(windows: &[QuestionWindow]) -> Vec<usize> {
    let all = windows.last().map_or(0, |window| window.tokens.end);
    let mut best: Vec<Option<(usize, f64)>> = vec![None; all];
    for (number, window) in windows.iter().enumerate() {
        for token in window.tokens.clone() {
            let around = window.context_around(token);
            if best[token].is_none_or(|(_, most)| around > most) {
                best[token] = Some((number, around));
            }
        }
    }
    best.into_iter().map(|one| one.map_or(0, |(number, _)| number)).collect()
}

/// Rows of a split, and the answer for each row: the places in the row of the first and the last
/// token of the question's first answer. If the window does not contain the whole answer, both
/// places are that of `<cls>`.
///
/// # Errors
///
/// If a file cannot be read, or the tokenizer has no marks or refuses a text.
pub(crate) fn rows_of_split(
    config: &DataConfig,
    tokenizer: &Tokenizer,
    split: &Corpora,
    report: &mut TextReport,
) -> Result<(Vec<Row>, Vec<Vec<u32>>)> {
    let (mut rows, mut answers) = (Vec::new(), Vec::new());
    let mut add = |paragraphs: &[Paragraph]| -> Result<()> {
        let of_paragraphs: Vec<_> = paragraphs
            .par_iter()
            .map(|paragraph| rows_of_paragraph(tokenizer, paragraph, &config.questions))
            .collect::<Result<_>>()?;
        for (row, answer) in of_paragraphs.into_iter().flatten() {
            rows.push(row);
            answers.push(answer);
        }
        for paragraph in paragraphs {
            report.count_text(&paragraph.context);
            report.documents += 1;
            paragraph.questions.iter().for_each(|question| report.count_text(&question.text));
        }
        Ok(())
    };
    let mut chunk = Vec::with_capacity(CHUNK);
    read_questions(config, split, |paragraph| {
        chunk.push(paragraph);
        if chunk.len() < CHUNK {
            return Ok(());
        }
        add(&chunk)?;
        chunk.clear();
        Ok(())
    })?;
    add(&chunk)?;
    Ok((rows, answers))
}

/// Rows of all questions about a text, with their answers.
fn rows_of_paragraph(
    tokenizer: &Tokenizer,
    paragraph: &Paragraph,
    config: &QuestionsConfig,
) -> Result<Vec<(Row, Vec<u32>)>> {
    let context = Context::new(tokenizer, &paragraph.context)?;
    let mut rows = Vec::new();
    for question in &paragraph.questions {
        let bytes = question.answers.first().and_then(|answer| answer.bytes(&paragraph.context));
        let answer = bytes.and_then(|bytes| context.tokens_of(&bytes));
        for window in windows(tokenizer, &question.text, &context, config)? {
            let whole = answer.filter(|(first, last)| {
                window.tokens.contains(first) && window.tokens.contains(last)
            });
            let places = match whole {
                Some((first, last)) => [first, last].map(|token| window.place(token) as u32),
                None => [0, 0],
            };
            rows.push((window.row, places.to_vec()));
        }
    }
    Ok(rows)
}

/// Texts of a split: each context and each question, as separate items.
///
/// # Errors
///
/// If a file cannot be read.
pub(crate) fn texts(config: &DataConfig, split: &Corpora) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    read_questions(config, split, |paragraph| {
        texts.push(paragraph.context);
        texts.extend(paragraph.questions.into_iter().map(|question| question.text));
        Ok(())
    })?;
    Ok(texts)
}
