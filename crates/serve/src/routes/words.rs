//! `POST /api/tag` and `POST /api/answer`: tags of words, and answers to questions about texts.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use taper_data::with_newlines;
use taper_run::prediction::{QuestionInContext, SpanAnswer};

use super::translation::{Texts, lines};
use crate::app::App;
use crate::engine::{Question, Tag};
use crate::error::Refusal;
use crate::http::{json, json_of};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Texted {
    run: Option<String>,
    text: Texts,
}

/// Tags the words of texts.
pub(super) async fn tag(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let asked: Texted = json_of(request, app.limits()).await?;
    let engine = app.engine::<Tag>(asked.run.as_deref())?;
    let texts = lines(asked.text)?;
    app.check_lines(texts.len())?;
    let found = if texts.is_empty() { Vec::new() } else { app.ask(engine, Tag { texts }).await? };
    Ok(json(200, &json!({ "run": engine.info.name, "texts": found })))
}

/// Request with a single question, or with several.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Questioned {
    run: Option<String>,
    question: Option<String>,
    context: Option<String>,
    questions: Option<Vec<QuestionInContext>>,
}

impl Questioned {
    /// All questions as a vector.
    ///
    /// # Errors
    /// When there is neither a single question nor a list, or a text is empty.
    fn questions(self) -> Result<Vec<QuestionInContext>, Refusal> {
        let questions = match (self.question, self.context, self.questions) {
            (Some(question), Some(context), None) => {
                vec![QuestionInContext { question, context, id: None }]
            }
            (None, None, Some(questions)) => questions,
            _ => {
                return Err(Refusal::Malformed(
                    "expected `question` and `context`, or a list of these as `questions`"
                        .to_owned(),
                ));
            }
        };
        for (index, one) in questions.iter().enumerate() {
            for (key, text) in [("question", &one.question), ("context", &one.context)] {
                if text.trim().is_empty() {
                    let message = format!("question {}: `{key}` is empty", index + 1);
                    return Err(Refusal::Unfit(message));
                }
            }
        }
        Ok(questions)
    }
}

/// Answers questions about texts; each answer is a span of its text.
pub(super) async fn answer(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let mut asked: Questioned = json_of(request, app.limits()).await?;
    let run = asked.run.take();
    let engine = app.engine::<Question>(run.as_deref())?;
    let mut questions = asked.questions()?;
    app.check_lines(questions.len())?;
    let mut contexts = Vec::with_capacity(questions.len());
    for one in &mut questions {
        one.question = with_newlines(&one.question);
        let read = with_newlines(&one.context);
        contexts.push(std::mem::replace(&mut one.context, read));
    }
    let mut found = match questions.is_empty() {
        true => Vec::new(),
        false => app.ask(engine, Question { questions }).await?,
    };
    found.iter_mut().zip(&contexts).for_each(|(answer, context)| place(answer, context));
    Ok(json(200, &json!({ "run": engine.info.name, "answers": found })))
}

/// Converts the place and the text of an answer to the client's own `context`. The model has read a
/// text in which every line end is `\n`, so places may differ.
fn place(answer: &mut SpanAnswer, context: &str) {
    let (Some(start), Some(end)) = (answer.start, answer.end) else { return };
    let mut places = Vec::new();
    let mut last = '\n';
    for (at, character) in context.chars().enumerate() {
        let is_joined = (last, character) == ('\r', '\n');
        if !is_joined && (at, character) != (0, '\u{feff}') {
            places.push(at);
        }
        last = character;
    }
    let (Some(&first), Some(&end)) = (places.get(start), places.get(end.saturating_sub(1))) else {
        return;
    };
    answer.answer = context.chars().skip(first).take(end + 1 - first).collect();
    (answer.start, answer.end) = (Some(first), Some(end + 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_stand_in_the_clients_text() {
        let context = "\u{feff}one\r\ntwo\rthree\nfour";
        let read = with_newlines(context);
        assert_eq!(read, "one\ntwo\nthree\nfour");
        for word in ["one", "two", "three", "four", "two\nthree"] {
            let at = read.find(word).expect("a word");
            let (start, end) = (Some(at), Some(at + word.len()));
            let answer = word.to_owned();
            let mut found = SpanAnswer { id: None, answer, start, end, probability: 1.0 };
            place(&mut found, context);
            let letters = context.chars().skip(found.start.expect("a start"));
            let length = found.end.expect("an end") - found.start.expect("a start");
            assert_eq!(letters.take(length).collect::<String>(), found.answer);
            assert_eq!(with_newlines(&found.answer), word);
        }
    }
}
