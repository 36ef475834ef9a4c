//! `POST /v1/chat/completions`: conversations in the form of the model's template.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use taper_data::with_newlines;
use taper_run::generation::TokenScore;

use super::shared::{Head, Shared, finite, no_stream, reason, refuse, require_few, usage};
use crate::app::App;
use crate::engine::{Continued, Generate, GenerateOptions, OwnPrompt, PromptText, Scoring};
use crate::error::Refusal;
use crate::http::{EventSender, json, json_of, openai_refusal};
use crate::routes::generation::{StreamEvent, check, generated, prompts, stream};
use crate::run_info::RunInfo;

/// A request.
#[derive(Debug, Deserialize)]
struct ChatRequest {
    messages: Vec<Said>,
    max_completion_tokens: Option<usize>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
    #[serde(flatten)]
    shared: Shared,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Message from a client.
#[derive(Debug, Deserialize)]
struct Said {
    role: String,
    content: Content,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a string, or a list of parts")]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

/// Message for templates.
#[derive(Debug, Serialize)]
struct Message {
    role: String,
    content: String,
}

impl Said {
    /// Converts a message from a client to a message for templates.
    ///
    /// # Errors
    /// When the content is not text.
    fn message(self) -> Result<Message, Refusal> {
        let content = match self.content {
            Content::Text(text) => text,
            Content::Parts(parts) => {
                let text = |part: Part| match part.text {
                    Some(text) if part.kind == "text" => Ok(text),
                    _ => Err(Refusal::Malformed(format!(
                        "a part of a message is {}: only text is read",
                        part.kind
                    ))),
                };
                parts.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n")
            }
        };
        Ok(Message { role: self.role, content: with_newlines(&content) })
    }
}

/// Converts a conversation to the text that the model reads.
async fn written(info: &RunInfo, messages: Vec<Said>) -> Result<OwnPrompt, Refusal> {
    let template = match &info.chat {
        None => {
            return Err(Refusal::Unfit(format!(
                "{} has no chat template: put the model's as chat_template.jinja into the folder \
                 of the run, or use /v1/completions",
                info.name
            )));
        }
        Some(Err(error)) => return Err(Refusal::Unfit(format!("the chat template: {error}"))),
        Some(Ok(template)) => Arc::clone(template),
    };
    if messages.is_empty() {
        return Err(Refusal::Malformed("messages is empty".to_owned()));
    }
    let messages: Vec<Message> =
        messages.into_iter().map(Said::message).collect::<Result<_, _>>()?;
    let said = messages.iter().map(|one| [one.role.clone(), one.content.clone()]).collect();
    let text = template.render_aside(messages).await?;
    Ok(OwnPrompt::Marked { text, messages: said })
}

/// Answers in a conversation.
pub(in crate::routes) async fn chat(State(app): State<Arc<App>>, request: Request) -> Response {
    match answered(app, request).await {
        Ok(response) => response,
        Err(refusal) => openai_refusal(&refusal),
    }
}

/// Keys that would change the answer, and are not supported.
const UNSUPPORTED: [&str; 8] = [
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "audio",
    "modalities",
    "prediction",
    "web_search_options",
];

async fn answered(app: Arc<App>, request: Request) -> Result<Response, Refusal> {
    let ChatRequest { messages, max_completion_tokens, logprobs, top_logprobs, shared, others } =
        json_of(request, app.limits()).await?;
    refuse(&others, &UNSUPPORTED)?;
    let is_stream = shared.is_stream();
    if is_stream && shared.samples() > 1 {
        let message = "a stream is of one answer: leave out n or stream";
        return Err(Refusal::Malformed(message.to_owned()));
    }
    let scoring = match (logprobs.unwrap_or(false), top_logprobs) {
        (true, likeliest) => Some(Scoring { likeliest: likeliest.unwrap_or(0), whole: false }),
        (false, None | Some(0)) => None,
        (false, Some(_)) => {
            return Err(Refusal::Malformed("top_logprobs is for logprobs: true".to_owned()));
        }
    };
    if is_stream && scoring.is_some() {
        return Err(no_stream("logprobs"));
    }
    require_few("top_logprobs", top_logprobs.unwrap_or(0))?;
    let engine = app.engine::<Generate>(Some(&shared.model))?;
    let own = vec![written(&engine.info, messages).await?];
    let head = Head::new(&app, "chatcmpl", &engine.info.name);
    let with_usage = shared.streams_usage();
    let most = max_completion_tokens.or(shared.max_tokens);
    let options = shared.options(most.unwrap_or(app.limits().new_tokens), scoring);
    check(&app, &options)?;
    let prompts = prompts(&app, own, &options)?;
    if is_stream {
        return streamed(app, head, prompts, options, with_usage).await;
    }
    let found = generated(&app, &head.model, prompts, options).await?;
    let choices = found.iter().flat_map(choices).collect();
    Ok(json(200, &head.with("chat.completion", choices, Some(usage(&found)))))
}

/// Returns the answers to a conversation in OpenAI's form.
fn choices(one: &Continued) -> impl Iterator<Item = Value> {
    one.texts.iter().enumerate().map(|(index, text)| {
        let scores = one.scores.get(index);
        let logprobs = scores.map_or(Value::Null, |scores| logprobs(scores, &text.text));
        json!({
            "index": index,
            "message": { "role": "assistant", "content": text.text, "refusal": null },
            "logprobs": logprobs, "finish_reason": reason(text),
        })
    })
}

/// Returns the log-probabilities of the tokens of an answer in OpenAI's form.
fn logprobs(scores: &[TokenScore], text: &str) -> Value {
    let token = |text: &str, log_probability: f64| json!({ "token": text, "logprob": finite(log_probability), "bytes": text.as_bytes() });
    let (mut content, mut at) = (Vec::new(), 0);
    for score in scores {
        if at >= text.len() {
            break;
        }
        at += score.text.len();
        let mut told = token(&score.text, score.log_probability.unwrap_or(0.0));
        let likeliest = score.likeliest.iter();
        told["top_logprobs"] = likeliest.map(|(text, logprob)| token(text, *logprob)).collect();
        content.push(told);
    }
    json!({ "content": content, "refusal": null })
}

const CHUNK: &str = "chat.completion.chunk";

async fn streamed(
    app: Arc<App>,
    head: Head,
    prompts: Vec<PromptText>,
    options: GenerateOptions,
    with_usage: bool,
) -> Result<Response, Refusal> {
    let model = head.model.clone();
    let mut is_first = true;
    let mut delta = move |content: Option<&str>| {
        let mut delta = Map::new();
        if std::mem::take(&mut is_first) {
            delta.insert("role".to_owned(), "assistant".into());
        }
        if let Some(content) = content {
            delta.insert("content".to_owned(), content.into());
        }
        delta
    };
    let choice = |delta: Map<String, Value>, reason: Option<&str>| json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason });
    let tell = move |event: StreamEvent, sender: &EventSender| match event {
        StreamEvent::Piece(piece) => {
            let choice = choice(delta(Some(&piece.text)), None);
            sender.send(&head.with(CHUNK, vec![choice], None))
        }
        StreamEvent::End(found) => {
            let reason = found.iter().flat_map(|one| &one.texts).next().map(reason);
            sender.send(&head.with(CHUNK, vec![choice(delta(None), reason)], None));
            if with_usage {
                sender.send(&head.with(CHUNK, Vec::new(), Some(usage(&found))));
            }
            sender.send_text("[DONE]")
        }
        StreamEvent::Failed(refusal) => sender.send(&json!({
            "error": { "message": refusal.message(), "type": "server_error" }
        })),
    };
    stream(app, model, prompts, options, tell).await
}
