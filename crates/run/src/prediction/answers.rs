//! Answers to questions. An answer is a span (a part) of a given text.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use taper_data::{Context, QuestionWindow, QuestionsConfig, Tokenizer, best_windows, windows_of};
use taper_model::{Model, SpanExtractor};

use super::{packed, together};
use crate::LoadedRun;
use crate::finite::require_finite;

/// Number of questions that are answered at a time. A question about a long text is read several
/// times, each time with another part of the text (a window).
const CHUNK: usize = 256;

/// Required content of a line with a question, for error messages.
const EXPECTED: &str = "{\"question\": \"…\", \"context\": \"…\"}, and \"id\" where wanted";

/// Question about a text.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionInContext {
    /// Text of the question.
    pub question: String,
    /// Text that contains the answer.
    pub context: String,
    /// Id of the question, which the answer repeats.
    #[serde(default)]
    pub id: Option<String>,
}

impl QuestionInContext {
    /// Reads a question from `line`, a JSON object, which is line `number` of a file.
    ///
    /// # Errors
    /// If the line is not such an object, the question or its context is empty, or one of them has
    /// the name of a special token that `tokenizer` refuses.
    pub(crate) fn from_line(number: usize, line: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let wrong = || format!("line {number}: expected {EXPECTED}");
        let question: Self = serde_json::from_str(line).with_context(wrong)?;
        for (key, text) in [("question", &question.question), ("context", &question.context)] {
            let place = || format!("line {number}: \"{key}\"");
            ensure!(!text.trim().is_empty(), "{} is empty", place());
            tokenizer.check_spelled(text).with_context(place)?;
        }
        Ok(question)
    }
}

/// Answer to a question.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SpanAnswer {
    /// Id of the question, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Answer: a part of the context; empty if the context has no answer.
    pub answer: String,
    /// Index in the context of the answer's first character; `None` if there is no answer.
    pub start: Option<usize>,
    /// Index in the context of the first character after the answer; `None` if there is no answer.
    pub end: Option<usize>,
    /// Probability of the answer. The probabilities of all possible answers sum to 1. Possible
    /// answers are all parts of the context that are not too long and, if the configuration allows
    /// it, "no answer".
    pub probability: f64,
}

/// Answers questions. `done` receives the number of questions that are answered so far.
///
/// # Errors
/// If the tokenizer refuses a text, or the model fails.
pub fn predict_answers(
    run: &LoadedRun<SpanExtractor>,
    questions: &[QuestionInContext],
    done: impl FnMut(usize),
) -> Result<Vec<SpanAnswer>> {
    let (tokenizer, settings) = (run.tokenizers.target(), &run.config.data.questions);
    let mut answers = answers_of(&run.model, tokenizer, settings, &texts_of(questions), done)?;
    for (answer, question) in answers.iter_mut().zip(questions) {
        answer.id.clone_from(&question.id);
    }
    Ok(answers)
}

/// Tokens of a question and of its context.
#[derive(Debug, Clone)]
pub struct EncodedQuestion {
    question: Vec<u32>,
    /// Tokenised context. Questions about the same text share it.
    context: Arc<Context>,
}

impl EncodedQuestion {
    /// Number of tokens of the question and its context.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.question.len() + self.context.tokens()
    }

    /// Tokenises questions.
    ///
    /// # Errors
    /// If the tokenizer refuses a text.
    pub fn encode(questions: &[QuestionInContext], tokenizer: &Tokenizer) -> Result<Vec<Self>> {
        Self::each(&texts_of(questions), tokenizer)
    }

    /// Tokenises questions. Each pair in `asked` is a context and a question about it.
    fn each(asked: &[(&str, &str)], tokenizer: &Tokenizer) -> Result<Vec<Self>> {
        let mut texts: Vec<&str> = asked.iter().map(|&(text, _)| text).collect();
        texts.dedup();
        let contexts = texts.par_iter().map(|text| Ok(Context::new(tokenizer, text)?.into()));
        let contexts = contexts.collect::<Result<Vec<Arc<Context>>>>()?;
        let contexts: BTreeMap<&str, Arc<Context>> = texts.into_iter().zip(contexts).collect();
        let encode = |&(text, question): &(&str, &str)| {
            let question = tokenizer.encode(question)?;
            Ok(Self { question, context: Arc::clone(&contexts[text]) })
        };
        asked.par_iter().map(encode).collect()
    }
}

/// Context and text of each question.
fn texts_of(questions: &[QuestionInContext]) -> Vec<(&str, &str)> {
    questions.iter().map(|one| (one.context.as_str(), one.question.as_str())).collect()
}

/// Answers tokenised questions. `done` receives the number of questions that are answered so far.
///
/// # Errors
/// If the model fails.
pub fn answer_encoded(
    run: &LoadedRun<SpanExtractor>,
    questions: &[(&QuestionInContext, &EncodedQuestion)],
    mut done: impl FnMut(usize),
) -> Result<Vec<SpanAnswer>> {
    let (tokenizer, settings) = (run.tokenizers.target(), &run.config.data.questions);
    let mut answers = Vec::with_capacity(questions.len());
    for chunk in questions.chunks(CHUNK) {
        let encoded: Vec<&EncodedQuestion> = chunk.iter().map(|&(_, encoded)| encoded).collect();
        let chunk = chunk.iter().zip(answers_of_chunk(&run.model, tokenizer, settings, &encoded)?);
        answers.extend(chunk.map(|((one, _), answer)| SpanAnswer { id: one.id.clone(), ..answer }));
        done(answers.len());
    }
    Ok(answers)
}

/// Answers questions. Each pair in `asked` is a context and a question about it. `done` receives
/// the number of questions that are answered so far.
///
/// # Errors
/// If the tokenizer refuses a text, or the model fails.
pub(crate) fn answers_of(
    model: &SpanExtractor,
    tokenizer: &Tokenizer,
    settings: &QuestionsConfig,
    asked: &[(&str, &str)],
    mut done: impl FnMut(usize),
) -> Result<Vec<SpanAnswer>> {
    let mut answers = Vec::with_capacity(asked.len());
    for chunk in asked.chunks(CHUNK) {
        let encoded = EncodedQuestion::each(chunk, tokenizer)?;
        let encoded: Vec<&EncodedQuestion> = encoded.iter().collect();
        answers.extend(answers_of_chunk(model, tokenizer, settings, &encoded)?);
        done(answers.len());
    }
    Ok(answers)
}

fn answers_of_chunk(
    model: &SpanExtractor,
    tokenizer: &Tokenizer,
    settings: &QuestionsConfig,
    chunk: &[&EncodedQuestion],
) -> Result<Vec<SpanAnswer>> {
    let windows =
        |one: &&EncodedQuestion| Ok(windows_of(tokenizer, &one.question, &one.context, settings)?);
    let read = chunk.par_iter().map(windows).collect::<Result<Vec<Vec<QuestionWindow>>>>()?;
    let mut logits = logits_of(model, &read)?.into_iter();
    let answer = |(one, windows): (&&EncodedQuestion, &Vec<QuestionWindow>)| {
        let logits: Vec<Vec<[f32; 2]>> = logits.by_ref().take(windows.len()).collect();
        best_span(windows, &logits, settings).answer(&one.context)
    };
    Ok(chunk.iter().zip(&read).map(answer).collect())
}

/// For each window, a list with two logits for each of its tokens: that the answer starts there,
/// and that it ends there. The result has the windows of the first question, then those of the
/// second question, and so on.
fn logits_of(model: &SpanExtractor, read: &[Vec<QuestionWindow>]) -> Result<Vec<Vec<[f32; 2]>>> {
    let rows: Vec<_> = read.iter().flatten().map(|window| &window.row).collect();
    let mut logits_of_windows = Vec::with_capacity(rows.len());
    while logits_of_windows.len() < rows.len() {
        let batch = together(rows[logits_of_windows.len()..].iter().copied());
        let (segments, text) = packed(&batch);
        let tell = || model.logits(&segments, &text);
        let logits = taper_ops::threads::in_pool(model.device(), tell)?.to_vec2::<f32>()?;
        require_finite("the logits", logits.iter().flatten().copied())?;
        let mut logits = logits.into_iter().map(|row| [row[0], row[1]]);
        logits_of_windows
            .extend(batch.iter().map(|row| logits.by_ref().take(row.ids.len()).collect()));
    }
    Ok(logits_of_windows)
}

/// Best answer as a span of tokens (first and last) of a context, with its probability; the span is
/// `None` if there is no answer.
#[derive(Debug, Clone, PartialEq)]
struct BestSpan {
    tokens: Option<(usize, usize)>,
    probability: f64,
}

impl BestSpan {
    fn answer(&self, context: &Context) -> SpanAnswer {
        let text = context.text();
        let bytes = self.tokens.map(|tokens| context.bytes_of(text, tokens));
        let characters = |at: usize| text[..at].chars().count();
        SpanAnswer {
            id: None,
            answer: bytes.clone().map_or_else(String::new, |bytes| text[bytes].to_owned()),
            start: bytes.as_ref().map(|bytes: &Range<usize>| characters(bytes.start)),
            end: bytes.map(|bytes| characters(bytes.end)),
            probability: self.probability,
        }
    }
}

/// Span whose logits of start and end have the highest sum (Devlin et al. 2019, section 4.2), among
/// all spans of at most `max_answer_tokens` tokens. Each span is scored in the window in which its
/// first token has the most context (other tokens) on both sides. If "no answer" is allowed, its
/// score is the sum of both logits of the first token (`<cls>`), in the window where this sum is
/// lowest (section 4.3).
fn best_span(
    windows: &[QuestionWindow],
    logits: &[Vec<[f32; 2]>],
    settings: &QuestionsConfig,
) -> BestSpan {
    let none =
        logits.iter().map(|of_window| f64::from(of_window[0][0]) + f64::from(of_window[0][1]));
    let none = none.fold(f64::INFINITY, f64::min);
    let mut scores = if settings.unanswerable { vec![none] } else { Vec::new() };
    let mut best = (scores.first().copied().unwrap_or(f64::NEG_INFINITY), None);
    for (start, number) in best_windows(windows).into_iter().enumerate() {
        let (window, logits) = (&windows[number], &logits[number]);
        let last = window.tokens.end.min(start + settings.max_answer_tokens);
        let of_start = f64::from(logits[window.place(start)][0]);
        for end in start..last {
            let score = of_start + f64::from(logits[window.place(end)][1]);
            scores.push(score);
            if score > best.0 {
                best = (score, Some((start, end)));
            }
        }
    }
    // A text without tokens has no answer, with probability 1.
    let sum: f64 = scores.iter().map(|score| (score - best.0).exp()).sum();
    BestSpan { tokens: best.1, probability: if scores.is_empty() { 1.0 } else { 1.0 / sum } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_data::Row;

    /// Window with these tokens of a context, after a question of one token.
    fn window(tokens: Range<usize>) -> QuestionWindow {
        let (ids, asked) = (vec![0; 4 + tokens.len()], vec![0, 0]);
        let (words, count) = (Vec::new(), 1 + tokens.len());
        let row = Row { ids, second: 3, second_segment: 1, asked, words, tokens: count };
        QuestionWindow { row, tokens }
    }

    #[test]
    fn the_best_span_is_that_of_a_search_over_all_windows() {
        let windows = [window(0..6), window(4..10), window(8..11)];
        let sum = |start: f32, end: f32| f64::from(start) + f64::from(end);
        let value = |seed: usize| ((seed * 7919 + 31) % 1009) as f32 / 200.0 - 2.5;
        for seed in 0..40 {
            let logits: Vec<Vec<[f32; 2]>> = windows
                .iter()
                .enumerate()
                .map(|(number, window)| {
                    let at = |place| seed * 1000 + number * 100 + 2 * place;
                    (0..window.row.ids.len()).map(|p| [value(at(p)), value(at(p) + 1)]).collect()
                })
                .collect();
            // A token in two windows counts in the one with more context on both sides; among
            // equals, in the longer one, then in the first. So token 4 counts in the first window,
            // tokens 5 and 8 in the second, and token 9 in the third.
            let of_start = [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2];
            assert_eq!(best_windows(&windows), of_start);
            for unanswerable in [false, true] {
                let settings =
                    QuestionsConfig { unanswerable, max_answer_tokens: 3, ..Default::default() };
                let mut all = Vec::new();
                for (start, &number) in of_start.iter().enumerate() {
                    let tokens = &windows[number].tokens;
                    for end in start..(start + 3).min(tokens.end) {
                        let place = |token: usize| 3 + token - tokens.start;
                        let of_window = &logits[number];
                        let score = sum(of_window[place(start)][0], of_window[place(end)][1]);
                        all.push((score, Some((start, end))));
                    }
                }
                if unanswerable {
                    let none = logits.iter().map(|of_window| sum(of_window[0][0], of_window[0][1]));
                    all.push((none.fold(f64::INFINITY, f64::min), None));
                }
                let best = all.iter().map(|(score, _)| *score).fold(f64::NEG_INFINITY, f64::max);
                let best_found = best_span(&windows, &logits, &settings);
                assert!(all.contains(&(best, best_found.tokens)), "{seed}: {best_found:?}");
                let total: f64 = all.iter().map(|(score, _)| score.exp()).sum();
                assert!((best_found.probability - best.exp() / total).abs() < 1e-12);
            }
        }
        let nothing = [window(0..0)];
        let best_found = best_span(&nothing, &[vec![[0.0; 2]; 4]], &QuestionsConfig::default());
        assert_eq!(best_found, BestSpan { tokens: None, probability: 1.0 });
    }
}
