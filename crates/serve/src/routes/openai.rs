//! The completions of OpenAI's API: `GET /v1/models` and `POST /v1/completions`.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Path, Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use taper_data::{SpelledSpecial, Task};
use taper_run::generation::GeneratedText;

use super::generation::{Told, check, generated, prompts, stream};
use super::translation::Texts;
use crate::app::App;
use crate::engine::{GenerateOptions, RunInfo};
use crate::error::Refusal;
use crate::http::{json, json_of, openai_refusal};

/// A request. Keys that change nothing here, such as `user`, are passed over; those that would
/// change the text and are not known are refused.
#[derive(Debug, Deserialize)]
struct Asked {
    model: String,
    #[serde(default)]
    prompt: Option<Texts>,
    max_tokens: Option<usize>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    n: Option<usize>,
    #[serde(default)]
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    stop: Option<Texts>,
    seed: Option<i64>,
    echo: Option<bool>,
    best_of: Option<usize>,
    /// Not of OpenAI's.
    #[serde(default)]
    special_tokens: SpelledSpecial,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// Keys that would change the text, and the values that do not.
const UNSUPPORTED: [&str; 5] =
    ["logprobs", "suffix", "logit_bias", "presence_penalty", "frequency_penalty"];

fn described(info: &RunInfo) -> Value {
    json!({
        "id": info.name, "object": "model", "created": info.created, "owned_by": "taper",
    })
}

/// The language models.
pub(super) async fn models(State(app): State<Arc<App>>) -> Response {
    let task = Task::LanguageModel.to_string();
    let own = app.engines.iter().map(|engine| &engine.info).filter(|info| info.task == task);
    let data: Vec<Value> = own.map(described).collect();
    json(200, &json!({ "object": "list", "data": data }))
}

/// One of them.
pub(super) async fn model(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    match app.engine(Some(&name), Task::LanguageModel) {
        Ok(engine) => json(200, &described(&engine.info)),
        Err(refusal) => openai_refusal(&refusal),
    }
}

/// Goes on with prompts.
pub(super) async fn completions(State(app): State<Arc<App>>, request: Request) -> Response {
    match completed(app, request).await {
        Ok(response) => response,
        Err(refusal) => openai_refusal(&refusal),
    }
}

/// What the completions of one request have in common.
#[derive(Clone)]
struct Head {
    id: String,
    created: u64,
    model: String,
}

impl Head {
    fn with(&self, choices: Vec<Value>, usage: Option<Value>) -> Value {
        let mut answer = json!({
            "id": self.id, "object": "text_completion", "created": self.created,
            "model": self.model, "choices": choices,
        });
        if let Some(usage) = usage {
            answer["usage"] = usage;
        }
        answer
    }
}

fn choice(index: usize, text: &str, reason: Option<&str>) -> Value {
    json!({ "index": index, "text": text, "logprobs": null, "finish_reason": reason })
}

fn reason(text: &GeneratedText) -> &'static str {
    if text.truncated { "length" } else { "stop" }
}

fn usage(prompt: usize, texts: &[Vec<GeneratedText>]) -> Value {
    let completion: usize = texts.iter().flatten().map(|text| text.tokens).sum();
    json!({
        "prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion,
    })
}

async fn completed(app: Arc<App>, request: Request) -> Result<Response, Refusal> {
    let asked: Asked = json_of(request, app.limits()).await?;
    let is_neutral = |value: &Value| match value {
        Value::Null => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Object(entries) => entries.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    let unsupported =
        UNSUPPORTED.iter().find(|name| asked.others.get(**name).is_some_and(|v| !is_neutral(v)));
    if let Some(name) = unsupported {
        return Err(Refusal::Malformed(format!("{name} is not supported here: leave it out")));
    }
    let samples = asked.n.unwrap_or(1);
    if asked.best_of.is_some_and(|best| best != samples) {
        return Err(Refusal::Malformed("best_of must be n: leave it out".to_owned()));
    }
    let is_stream = asked.stream.unwrap_or(false);
    let texts = asked.prompt.unwrap_or_else(|| Texts::One(String::new()));
    if is_stream && (samples > 1 || matches!(&texts, Texts::Several(texts) if texts.len() > 1)) {
        let message = "a stream is of one text of one prompt: leave out n or stream";
        return Err(Refusal::Malformed(message.to_owned()));
    }
    let options = GenerateOptions {
        max_tokens: asked.max_tokens.unwrap_or(16),
        temperature: Some(asked.temperature.unwrap_or(1.0)),
        top_k: None,
        top_p: asked.top_p,
        repetition_penalty: None,
        // A seed is a name: any bits will do.
        seed: asked.seed.map(i64::cast_unsigned),
        samples,
        stop: match asked.stop {
            None => Vec::new(),
            Some(Texts::One(stop)) => vec![stop],
            Some(Texts::Several(stops)) => stops,
        },
        special_tokens: asked.special_tokens,
    };
    check(&app, &options)?;
    let engine = app.engine(Some(&asked.model), Task::LanguageModel)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let head = Head {
        id: format!("cmpl-{now:x}-{:x}", app.draws(1).start),
        created: now,
        model: engine.info.name.clone(),
    };
    let prompts = prompts(&app, texts, &options)?;
    let echo = match asked.echo {
        Some(true) => prompts.iter().map(|one| one.text.clone().unwrap_or_default()).collect(),
        _ => vec![String::new(); prompts.len()],
    };
    if is_stream {
        let with_usage = asked.stream_options.is_some_and(|options| options.include_usage);
        return streamed(app, head, prompts, options, echo, with_usage).await;
    }
    let (texts, tokens) = generated(&app, &head.model, prompts, options).await?;
    let choices = texts
        .iter()
        .zip(&echo)
        .flat_map(|(texts, echo)| texts.iter().map(move |text| (echo, text)))
        .enumerate()
        .map(|(index, (echo, text))| {
            choice(index, &format!("{echo}{}", text.text), Some(reason(text)))
        })
        .collect();
    Ok(json(200, &head.with(choices, Some(usage(tokens, &texts)))))
}

async fn streamed(
    app: Arc<App>,
    head: Head,
    prompts: Vec<crate::engine::PromptText>,
    options: GenerateOptions,
    echo: Vec<String>,
    with_usage: bool,
) -> Result<Response, Refusal> {
    let mut before = echo.concat();
    let model = head.model.clone();
    let tell = move |told: Told, sender: &crate::http::EventSender| match told {
        Told::Piece(piece) => {
            let text = std::mem::take(&mut before) + &piece.text;
            sender.send(&head.with(vec![choice(0, &text, None)], None))
        }
        Told::End(texts, tokens) => {
            let text = std::mem::take(&mut before);
            let reason = texts.iter().flatten().next().map(reason);
            sender.send(&head.with(vec![choice(0, &text, reason)], None));
            if with_usage {
                sender.send(&head.with(Vec::new(), Some(usage(tokens, &texts))));
            }
            sender.send_text("[DONE]")
        }
        Told::Failed(refusal) => sender.send(&json!({
            "error": { "message": refusal.message(), "type": "server_error" }
        })),
    };
    stream(app, model, prompts, options, tell).await
}
