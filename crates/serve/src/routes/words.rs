//! `POST /api/tag` and `POST /api/answer`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use taper_data::Task;
use taper_run::prediction::QuestionInContext;

use super::translation::{Texts, lines};
use crate::app::{App, wrong_answer};
use crate::engine::{Answer, Work};
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
    let engine = app.engine(asked.run.as_deref(), Task::Tagging)?;
    let texts = lines(asked.text)?;
    app.check_lines(texts.len())?;
    let found = match texts.is_empty() {
        true => Vec::new(),
        false => match app.ask(engine, Work::Tag { texts }).await? {
            Answer::Tagged(found) => found,
            _ => return Err(wrong_answer()),
        },
    };
    Ok(json(200, &json!({ "run": engine.info.name, "texts": found })))
}

/// Single question, or several.
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
    /// Unless there is one question or a list, and for an empty text.
    fn questions(self) -> Result<Vec<QuestionInContext>, Refusal> {
        let questions = match (self.question, self.context, self.questions) {
            (Some(question), Some(context), None) => {
                vec![QuestionInContext { question, context, id: None }]
            }
            (None, None, Some(questions)) => questions,
            _ => {
                return Err(Refusal::Malformed(
                    "expected `question` and `context`, or a list of such as `questions`"
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

/// Answers questions about texts, each with a span of its text.
pub(super) async fn answer(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let mut asked: Questioned = json_of(request, app.limits()).await?;
    let run = asked.run.take();
    let engine = app.engine(run.as_deref(), Task::QuestionAnswering)?;
    let questions = asked.questions()?;
    app.check_lines(questions.len())?;
    let found = match questions.is_empty() {
        true => Vec::new(),
        false => match app.ask(engine, Work::Answer { questions }).await? {
            Answer::Answered(found) => found,
            _ => return Err(wrong_answer()),
        },
    };
    Ok(json(200, &json!({ "run": engine.info.name, "answers": found })))
}
