//! `POST /api/generate`, and what other routes of language models share with it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use taper_data::{SpelledSpecial, Task};
use taper_run::generation::GeneratedText;
use tokio::sync::mpsc::unbounded_channel;

use super::translation::Texts;
use crate::app::{App, wrong_answer};
use crate::engine::{Answer, GenerateOptions, Piece, PromptText, Work};
use crate::error::Refusal;
use crate::http::{EventSender, event_stream, json, json_of};

/// The most texts that end a text.
const STOPS: usize = 16;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    run: Option<String>,
    #[serde(default)]
    prompt: String,
    #[serde(default = "some_tokens")]
    max_tokens: usize,
    temperature: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    repetition_penalty: Option<f64>,
    seed: Option<u64>,
    #[serde(default = "one")]
    samples: usize,
    #[serde(default)]
    stop: Vec<String>,
    #[serde(default)]
    special_tokens: SpelledSpecial,
    #[serde(default)]
    stream: bool,
}

fn one() -> usize {
    1
}

fn some_tokens() -> usize {
    128
}

/// Goes on with a prompt.
pub(super) async fn generate(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let asked: Asked = json_of(request, app.limits()).await?;
    let name = app.engine(asked.run.as_deref(), Task::LanguageModel)?.info.name.clone();
    let options = GenerateOptions {
        max_tokens: asked.max_tokens,
        temperature: asked.temperature,
        top_k: asked.top_k,
        top_p: asked.top_p,
        repetition_penalty: asked.repetition_penalty,
        seed: asked.seed,
        samples: asked.samples,
        stop: asked.stop,
        special_tokens: asked.special_tokens,
    };
    check(&app, &options)?;
    let prompts = prompts(&app, Texts::One(asked.prompt), &options)?;
    if asked.stream {
        return stream(app, name, prompts, options, |piece, sender| match piece {
            Told::Piece(piece) => {
                sender.send(&json!({ "sample": piece.sample, "text": piece.text }))
            }
            Told::End(texts, _) => sender.send(&json!({ "done": true, "texts": texts[0] })),
            Told::Failed(refusal) => sender.send(&json!({ "error": refusal.message() })),
        })
        .await;
    }
    let (texts, _) = generated(&app, &name, prompts, options).await?;
    Ok(json(200, &json!({ "run": name, "texts": texts[0] })))
}

/// Refuses what is out of range.
///
/// # Errors
/// With the range.
pub(super) fn check(app: &App, options: &GenerateOptions) -> Result<(), Refusal> {
    let limits = app.limits();
    let ranges = [
        ("max_tokens", options.max_tokens, limits.new_tokens),
        ("the number of texts of a prompt", options.samples, limits.beam),
    ];
    for (name, number, most) in ranges {
        if number == 0 || number > most {
            return Err(Refusal::Unfit(format!("{name} must be from 1 to {most}")));
        }
    }
    if options.stop.len() > STOPS || options.stop.iter().any(String::is_empty) {
        return Err(Refusal::Unfit(format!("stop takes up to {STOPS} texts, none of them empty")));
    }
    Ok(())
}

/// Prompts with numbers for their draws: those of a request with a seed are always the same.
pub(super) fn prompts(
    app: &App,
    texts: Texts,
    options: &GenerateOptions,
) -> Result<Vec<PromptText>, Refusal> {
    let texts = match texts {
        Texts::One(text) => vec![text],
        Texts::Several(texts) => texts,
    };
    app.check_lines(texts.len() * options.samples)?;
    let numbers = match options.seed {
        Some(_) => 0..texts.len() as u64,
        None => app.draws(texts.len()),
    };
    let prompt = |(text, number): (String, u64)| PromptText {
        text: (!text.is_empty()).then_some(text),
        number,
    };
    Ok(texts.into_iter().zip(numbers).map(prompt).collect())
}

/// The texts of each prompt, and how many tokens the prompts have.
///
/// # Errors
/// As [`App::ask`].
pub(super) async fn generated(
    app: &App,
    run: &str,
    prompts: Vec<PromptText>,
    options: GenerateOptions,
) -> Result<(Vec<Vec<GeneratedText>>, usize), Refusal> {
    let engine = app.engine(Some(run), Task::LanguageModel)?;
    match app.ask(engine, Work::Generate { prompts, options, pieces: None }).await? {
        Answer::Generated(texts, tokens) => Ok((texts, tokens)),
        _ => Err(wrong_answer()),
    }
}

/// What a growing answer is told.
pub(super) enum Told {
    Piece(Piece),
    End(Vec<Vec<GeneratedText>>, usize),
    Failed(Refusal),
}

/// An answer that grows as the text does. `tell` sends each part, and says whether anybody reads.
///
/// # Errors
/// When the run refuses before there is any text.
pub(super) async fn stream(
    app: Arc<App>,
    run: String,
    prompts: Vec<PromptText>,
    options: GenerateOptions,
    mut tell: impl FnMut(Told, &EventSender) -> bool + Send + 'static,
) -> Result<Response, Refusal> {
    let (pieces, mut told) = unbounded_channel();
    let work = Work::Generate { prompts, options, pieces: Some(pieces) };
    let mut answer = app.engine(Some(&run), Task::LanguageModel)?.submit(work)?;
    let late = tokio::time::sleep(app.limits().answer);
    let mut late = Box::pin(late);
    // A refusal has a status of its own as long as nothing was sent.
    let first = tokio::select! {
        piece = told.recv() => piece,
        () = &mut late => return Err(Refusal::Late),
    };
    if first.is_none() {
        // Nothing was added: all is said with the answer.
        return match finished(&mut answer).await {
            Told::Failed(refusal) => Err(refusal),
            end => {
                let (sender, response) = event_stream();
                tell(end, &sender);
                Ok(response)
            }
        };
    }
    let (sender, response) = event_stream();
    tokio::spawn(async move {
        let mut piece = first;
        while let Some(new) = piece {
            // Dropping the receivers tells the run that nobody reads.
            if !tell(Told::Piece(new), &sender) {
                return;
            }
            piece = tokio::select! {
                piece = told.recv() => piece,
                () = &mut late => {
                    tell(Told::Failed(Refusal::Late), &sender);
                    return;
                }
            };
        }
        tell(finished(&mut answer).await, &sender);
    });
    Ok(response)
}

async fn finished(answer: &mut tokio::sync::oneshot::Receiver<Result<Answer, Refusal>>) -> Told {
    match answer.await {
        Ok(Ok(Answer::Generated(texts, tokens))) => Told::End(texts, tokens),
        Ok(Ok(_)) => Told::Failed(wrong_answer()),
        Ok(Err(refusal)) => Told::Failed(refusal),
        Err(_) => Told::Failed(Refusal::Failed("the run's thread has ended".to_owned())),
    }
}
