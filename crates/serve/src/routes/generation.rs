//! `POST /api/generate`: texts that a language model generates. Other routes of language models
//! share parts of this code.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use taper_data::{SpelledSpecial, with_newlines};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use crate::app::App;
use crate::engine::{
    Continued, Generate, GenerateOptions, OwnPrompt, Piece, PieceSender, PromptText,
};
use crate::error::Refusal;
use crate::http::{EventSender, event_stream, json, json_of};

/// Largest number of stop texts.
const STOPS: usize = 16;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GenerateRequest {
    run: Option<String>,
    #[serde(default)]
    prompt: String,
    #[serde(default = "some_tokens")]
    max_tokens: usize,
    temperature: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    repetition_penalty: Option<f64>,
    #[serde(default)]
    presence_penalty: f64,
    #[serde(default)]
    frequency_penalty: f64,
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

/// Generates text after a prompt.
pub(super) async fn generate(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let asked: GenerateRequest = json_of(request, app.limits()).await?;
    let name = app.engine::<Generate>(asked.run.as_deref())?.info.name.clone();
    let options = GenerateOptions {
        max_tokens: asked.max_tokens,
        temperature: asked.temperature,
        top_k: asked.top_k,
        top_p: asked.top_p,
        repetition_penalty: asked.repetition_penalty,
        presence_penalty: asked.presence_penalty,
        frequency_penalty: asked.frequency_penalty,
        seed: asked.seed,
        samples: asked.samples,
        stop: asked.stop,
        special_tokens: asked.special_tokens,
        scoring: None,
    };
    check(&app, &options)?;
    let prompts = prompts(&app, vec![text_prompt(&asked.prompt)], &options)?;
    if asked.stream {
        return stream(app, name, prompts, options, |piece, sender| match piece {
            StreamEvent::Piece(piece) => {
                sender.send(&json!({ "sample": piece.sample, "text": piece.text }))
            }
            StreamEvent::End(generated_texts) => {
                sender.send(&json!({ "done": true, "texts": generated_texts[0].texts }))
            }
            StreamEvent::Failed(refusal) => sender.send(&json!({ "error": refusal.message() })),
        })
        .await;
    }
    let generated_texts = generated(&app, &name, prompts, options).await?;
    Ok(json(200, &json!({ "run": name, "texts": generated_texts[0].texts })))
}

/// Refuses values out of range.
///
/// # Errors
/// If an option is out of range. The error has the range.
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

/// Makes a prompt from a text; an empty text means the beginning of a document. Line ends are
/// converted to the line ends that training texts have.
pub(super) fn text_prompt(text: &str) -> OwnPrompt {
    if text.is_empty() { OwnPrompt::Beginning } else { OwnPrompt::Text(with_newlines(text)) }
}

/// Gives each prompt a number, which determines its stream of random numbers. For a request with a
/// seed, the numbers begin at 0, so that the same request always gets the same texts.
///
/// # Errors
/// When there are more prompts than the limit.
pub(super) fn prompts(
    app: &App,
    prompts: Vec<OwnPrompt>,
    options: &GenerateOptions,
) -> Result<Vec<PromptText>, Refusal> {
    app.check_lines(prompts.len() * options.samples)?;
    let numbers = match options.seed {
        Some(_) => 0..prompts.len() as u64,
        None => app.draws(prompts.len()),
    };
    let prompt = |(content, number)| PromptText { content, number };
    Ok(prompts.into_iter().zip(numbers).map(prompt).collect())
}

/// Generates text after each prompt.
///
/// # Errors
/// See [`App::ask`].
pub(super) async fn generated(
    app: &App,
    run: &str,
    prompts: Vec<PromptText>,
    options: GenerateOptions,
) -> Result<Vec<Continued>, Refusal> {
    let engine = app.engine::<Generate>(Some(run))?;
    app.ask(engine, Generate { prompts, options, pieces: None }).await
}

/// Part of an answer that is sent while its text is generated.
pub(super) enum StreamEvent {
    Piece(Piece),
    End(Vec<Continued>),
    Failed(Refusal),
}

/// Sends an answer while its text grows. `tell` sends each part, and returns whether anybody still
/// reads the answer.
///
/// # Errors
/// When the run refuses before there is any text.
pub(super) async fn stream(
    app: Arc<App>,
    run: String,
    prompts: Vec<PromptText>,
    options: GenerateOptions,
    mut tell: impl FnMut(StreamEvent, &EventSender) -> bool + Send + 'static,
) -> Result<Response, Refusal> {
    let (pieces, mut received) = unbounded_channel();
    let pieces = Some(PieceSender::new(pieces, options.samples));
    let request = Generate { prompts, options, pieces };
    let mut answer = app.engine::<Generate>(Some(&run))?.submit(request)?;
    let late = tokio::time::sleep(app.limits().answer);
    let mut late = Box::pin(late);
    // Waits for the first piece, because a refusal can have its own status only if nothing was sent
    // before.
    let first = tokio::select! {
        piece = received.recv() => piece,
        () = &mut late => return Err(Refusal::Late),
    };
    if first.is_none() {
        // No piece was sent: the answer is complete, or refused.
        return match finished(&mut answer).await {
            StreamEvent::Failed(refusal) => Err(refusal),
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
            // Returning drops the receivers, which informs the run that nobody reads.
            if !tell(StreamEvent::Piece(new), &sender) {
                return;
            }
            piece = tokio::select! {
                piece = received.recv() => piece,
                () = &mut late => {
                    tell(StreamEvent::Failed(Refusal::Late), &sender);
                    return;
                }
            };
        }
        tell(finished(&mut answer).await, &sender);
    });
    Ok(response)
}

async fn finished(answer: &mut oneshot::Receiver<Result<Vec<Continued>, Refusal>>) -> StreamEvent {
    match answer.await {
        Ok(Ok(found)) => StreamEvent::End(found),
        Ok(Err(refusal)) => StreamEvent::Failed(refusal),
        Err(_) => StreamEvent::Failed(Refusal::Failed("the run's thread has ended".to_owned())),
    }
}
