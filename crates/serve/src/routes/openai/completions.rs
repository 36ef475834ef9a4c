//! `POST /v1/completions`: generated texts, in the form of OpenAI's API.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use taper_run::generation::TokenScore;

use super::shared::{Head, Shared, finite, no_stream, reason, refuse, require_few, usage};
use crate::app::App;
use crate::engine::{Continued, Generate, GenerateOptions, OwnPrompt, PromptText, Scoring};
use crate::error::Refusal;
use crate::http::{EventSender, json, json_of, openai_refusal};
use crate::routes::generation::{StreamEvent, check, generated, prompts, stream, text_prompt};

/// Prompts: a text, several texts, the tokens of a text, or the tokens of several texts.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a string, a list of strings, a list of tokens, or a list of such")]
enum Asking {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    Several(Vec<Vec<u32>>),
}

impl Asking {
    fn prompts(self) -> Vec<OwnPrompt> {
        match self {
            Self::Text(text) => vec![text_prompt(&text)],
            Self::Texts(texts) => texts.iter().map(|text| text_prompt(text)).collect(),
            Self::Tokens(ids) => vec![OwnPrompt::Tokens(ids)],
            Self::Several(rows) => rows.into_iter().map(OwnPrompt::Tokens).collect(),
        }
    }
}

/// A request.
#[derive(Debug, Deserialize)]
struct CompletionRequest {
    prompt: Option<Asking>,
    echo: Option<bool>,
    best_of: Option<usize>,
    logprobs: Option<usize>,
    #[serde(flatten)]
    shared: Shared,
    #[serde(flatten)]
    others: Map<String, Value>,
}

const OBJECT: &str = "text_completion";

fn choice(index: usize, text: &str, logprobs: Value, reason: Option<&str>) -> Value {
    json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": reason })
}

/// Generates text after prompts.
pub(in crate::routes) async fn completions(
    State(app): State<Arc<App>>,
    request: Request,
) -> Response {
    match completed(app, request).await {
        Ok(response) => response,
        Err(refusal) => openai_refusal(&refusal),
    }
}

async fn completed(app: Arc<App>, request: Request) -> Result<Response, Refusal> {
    let CompletionRequest { prompt, echo, best_of, logprobs, shared, others } =
        json_of(request, app.limits()).await?;
    refuse(&others, &["suffix"])?;
    if best_of.is_some_and(|best| best != shared.samples()) {
        return Err(Refusal::Malformed("best_of must be equal to n: leave best_of out".to_owned()));
    }
    let own = prompt.map_or_else(|| vec![OwnPrompt::Beginning], Asking::prompts);
    if own.is_empty() {
        return Err(Refusal::Malformed("prompt is an empty list: leave it out".to_owned()));
    }
    let (is_stream, echo) = (shared.is_stream(), echo.unwrap_or(false));
    if is_stream && (shared.samples() > 1 || own.len() > 1) {
        let message = "a stream is of one text of one prompt: leave out n or stream";
        return Err(Refusal::Malformed(message.to_owned()));
    }
    if is_stream && logprobs.is_some() {
        return Err(no_stream("logprobs"));
    }
    require_few("logprobs", logprobs.unwrap_or(0))?;
    let scoring = logprobs.map(|likeliest| Scoring { likeliest, whole: echo });
    let engine = app.engine::<Generate>(Some(&shared.model))?;
    let head = Head::new(&app, "cmpl", &engine.info.name);
    let with_usage = shared.streams_usage();
    let max_tokens = shared.max_tokens.unwrap_or(16);
    let options = shared.options(max_tokens, scoring);
    check(&app, &options)?;
    let prompts = prompts(&app, own, &options)?;
    if is_stream {
        return streamed(app, head, prompts, options, echo, with_usage).await;
    }
    let found = generated(&app, &head.model, prompts, options).await?;
    let choices = found.iter().flat_map(|one| choices(one, echo)).enumerate();
    let choices = choices.map(|(index, mut choice)| {
        choice["index"] = index.into();
        choice
    });
    Ok(json(200, &head.with(OBJECT, choices.collect(), Some(usage(&found)))))
}

/// Returns the generated texts of a prompt in OpenAI's form. If `echo` is true, each text is
/// preceded by the prompt.
fn choices(one: &Continued, echo: bool) -> impl Iterator<Item = Value> {
    let before = if echo { one.prompt.as_str() } else { "" };
    one.texts.iter().enumerate().map(move |(index, text)| {
        let whole = format!("{before}{}", text.text);
        // If a text was cut at a stop text, the scores may have tokens after its end. They are left
        // out.
        let from = if echo { 0 } else { one.prompt.chars().count() };
        let scores = one.scores.get(index);
        let logprobs =
            scores.map_or(Value::Null, |scores| logprobs(scores, from, whole.chars().count()));
        choice(0, &whole, logprobs, Some(reason(text)))
    })
}

/// Returns the log-probabilities of the tokens of a text in OpenAI's form. The text has `length`
/// characters, and its offsets are counted from `from`.
fn logprobs(scores: &[TokenScore], from: usize, length: usize) -> Value {
    let (mut tokens, mut own, mut likeliest, mut offsets) = (vec![], vec![], vec![], vec![]);
    let mut at = 0;
    for score in scores {
        if at >= length {
            break;
        }
        tokens.push(score.text.as_str());
        own.push(score.log_probability.map(finite));
        likeliest.push(score.log_probability.map(|log_probability| {
            let mut told: Map<String, Value> = Map::new();
            for (text, log_probability) in &score.likeliest {
                // Among tokens with the same spelling, the likeliest counts.
                told.entry(text.clone()).or_insert_with(|| finite(*log_probability).into());
            }
            told.entry(score.text.clone()).or_insert_with(|| finite(log_probability).into());
            told
        }));
        offsets.push(from + at);
        at += score.text.chars().count();
    }
    json!({
        "tokens": tokens, "token_logprobs": own, "top_logprobs": likeliest,
        "text_offset": offsets,
    })
}

async fn streamed(
    app: Arc<App>,
    head: Head,
    prompts: Vec<PromptText>,
    options: GenerateOptions,
    echo: bool,
    with_usage: bool,
) -> Result<Response, Refusal> {
    let mut before = match prompts.first().map(|prompt| &prompt.content) {
        Some(OwnPrompt::Text(text)) if echo => text.clone(),
        Some(OwnPrompt::Tokens(_)) if echo => return Err(no_stream("echo")),
        _ => String::new(),
    };
    let model = head.model.clone();
    let tell = move |event: StreamEvent, sender: &EventSender| match event {
        StreamEvent::Piece(piece) => {
            let text = std::mem::take(&mut before) + &piece.text;
            sender.send(&head.with(OBJECT, vec![choice(0, &text, Value::Null, None)], None))
        }
        StreamEvent::End(found) => {
            let text = std::mem::take(&mut before);
            let reason = found.iter().flat_map(|one| &one.texts).next().map(reason);
            let last = choice(0, &text, Value::Null, reason);
            sender.send(&head.with(OBJECT, vec![last], None));
            if with_usage {
                sender.send(&head.with(OBJECT, Vec::new(), Some(usage(&found))));
            }
            sender.send_text("[DONE]")
        }
        StreamEvent::Failed(refusal) => sender.send(&json!({
            "error": { "message": refusal.message(), "type": "server_error" }
        })),
    };
    stream(app, model, prompts, options, tell).await
}
