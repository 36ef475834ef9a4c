//! Code shared by completions of texts and of chats.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use taper_data::SpelledSpecial;
use taper_run::generation::{FinishReason, GeneratedText};

use crate::app::App;
use crate::engine::{Continued, GenerateOptions, Scoring};
use crate::error::Refusal;
use crate::routes::translation::Texts;

/// Largest number of alternatives for each token.
pub(super) const MOST_LIKELIEST: usize = 20;

/// Keys that requests for completions of texts and of chats share. Keys without effect here, such
/// as `user`, are ignored; keys that would change the text but are not supported are refused.
#[derive(Debug, Deserialize)]
pub(super) struct Shared {
    pub(super) model: String,
    pub(super) max_tokens: Option<usize>,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    pub(super) n: Option<usize>,
    pub(super) stream: Option<bool>,
    pub(super) stream_options: Option<StreamOptions>,
    pub(super) stop: Option<Texts>,
    pub(super) seed: Option<i64>,
    pub(super) presence_penalty: Option<f64>,
    pub(super) frequency_penalty: Option<f64>,
    /// This key and the following keys are extensions of OpenAI's API, which other servers have
    /// too. A `top_k` of 0 or less means all tokens.
    pub(super) top_k: Option<i64>,
    pub(super) repetition_penalty: Option<f64>,
    #[serde(default)]
    pub(super) special_tokens: SpelledSpecial,
}

#[derive(Debug, Deserialize)]
pub(super) struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

impl Shared {
    /// Number of texts for each prompt.
    pub(super) fn samples(&self) -> usize {
        self.n.unwrap_or(1)
    }

    pub(super) fn is_stream(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Whether a stream ends with the numbers of tokens.
    pub(super) fn streams_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage)
    }

    /// Returns the options of generation.
    pub(super) fn options(self, max_tokens: usize, scoring: Option<Scoring>) -> GenerateOptions {
        GenerateOptions {
            max_tokens,
            temperature: Some(self.temperature.unwrap_or(1.0)),
            top_k: self.top_k.map(|top_k| usize::try_from(top_k).unwrap_or(0)),
            top_p: self.top_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty.unwrap_or(0.0),
            frequency_penalty: self.frequency_penalty.unwrap_or(0.0),
            // The bits of a negative seed are used as an unsigned number.
            seed: self.seed.map(i64::cast_unsigned),
            samples: self.n.unwrap_or(1),
            stop: self.stop.map(Texts::into_vec).unwrap_or_default(),
            special_tokens: self.special_tokens,
            scoring,
        }
    }
}

/// Keys of OpenAI's API and of other servers that would change every kind of text, and are not
/// supported.
const UNSUPPORTED: [&str; 9] = [
    "logit_bias",
    "response_format",
    "min_p",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "bad_words",
    "allowed_token_ids",
    "use_beam_search",
];

/// Refuses the keys of [`UNSUPPORTED`] and `more`, which would change the text, unless their values
/// change nothing.
///
/// # Errors
/// If a key is not supported. The error names it.
pub(super) fn refuse(others: &Map<String, Value>, more: &[&str]) -> Result<(), Refusal> {
    let is_neutral = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Object(entries) => entries.is_empty() || entries.get("type") == Some(&json!("text")),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty() || text == "none",
        Value::Bool(true) => false,
    };
    let mut unsupported = UNSUPPORTED.iter().chain(more);
    match unsupported.find(|name| others.get(**name).is_some_and(|v| !is_neutral(v))) {
        Some(name) => {
            Err(Refusal::Malformed(format!("{name} is not supported here: leave it out")))
        }
        None => Ok(()),
    }
}

/// Refuses a request for more alternatives than the limit.
///
/// # Errors
/// If `likeliest` exceeds the limit. The error has the limit.
pub(super) fn require_few(name: &str, likeliest: usize) -> Result<(), Refusal> {
    match likeliest > MOST_LIKELIEST {
        true => Err(Refusal::Unfit(format!("{name} must be at most {MOST_LIKELIEST}"))),
        false => Ok(()),
    }
}

/// Makes the refusal of a stream for which the field `of` is requested. The field is known only for
/// a complete text.
pub(super) fn no_stream(of: &str) -> Refusal {
    Refusal::Malformed(format!("a stream has no {of}: leave out {of} or stream"))
}

/// Fields that all parts of the answer to one request share.
#[derive(Debug, Clone)]
pub(super) struct Head {
    id: String,
    created: u64,
    pub(super) model: String,
}

impl Head {
    pub(super) fn new(app: &App, prefix: &str, model: &str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self {
            id: format!("{prefix}-{now:x}-{:x}", app.draws(1).start),
            created: now,
            model: model.to_owned(),
        }
    }

    pub(super) fn with(&self, object: &str, choices: Vec<Value>, usage: Option<Value>) -> Value {
        let mut answer = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": choices,
        });
        if let Some(usage) = usage {
            answer["usage"] = usage;
        }
        answer
    }
}

pub(super) fn reason(text: &GeneratedText) -> &'static str {
    match text.finish_reason {
        FinishReason::Length => "length",
        FinishReason::Stop => "stop",
    }
}

pub(super) fn usage(found: &[Continued]) -> Value {
    let prompt: usize = found.iter().map(|one| one.prompt_tokens).sum();
    let texts = found.iter().flat_map(|one| &one.texts);
    let completion: usize = texts.map(|text| text.tokens).sum();
    json!({
        "prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion,
    })
}

/// Returns a log-probability in OpenAI's form: values below -9999, such as minus infinity, become
/// -9999.
pub(super) fn finite(log_probability: f64) -> f64 {
    log_probability.max(-9999.0)
}
