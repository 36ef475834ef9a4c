//! `POST /api/translate`: translation of lines of text.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use taper_data::{Direction, split_lines};

use crate::app::App;
use crate::engine::{Engine, LineAnswer, Translate, TranslateOptions};
use crate::error::Refusal;
use crate::http::{json, json_of};

/// Single text, or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a string, or a list of strings")]
pub(super) enum Texts {
    /// Single text.
    One(String),
    /// Several texts.
    Several(Vec<String>),
}

impl Texts {
    /// All texts as a vector.
    pub(super) fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Several(texts) => texts,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TranslationRequest {
    run: Option<String>,
    /// Language to translate from, for a run of several directions.
    from: Option<String>,
    /// Language to translate into, for a run of several directions.
    to: Option<String>,
    /// Text with lines, or list of lines.
    text: Texts,
    #[serde(default = "one")]
    alternatives: usize,
    beam: Option<usize>,
    length_penalty: Option<f64>,
    #[serde(default)]
    alignment: bool,
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    terms: BTreeMap<String, String>,
}

/// Largest number of terms of a request, and largest number of bytes of all its terms.
const MOST_TERMS: (usize, usize) = (256, 1 << 14);

fn one() -> usize {
    1
}

/// Translates lines.
pub(super) async fn translate(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let asked: TranslationRequest = json_of(request, app.limits()).await?;
    let engine = app.engine::<Translate>(asked.run.as_deref())?;
    let options = TranslateOptions {
        direction: direction(engine, asked.from.as_deref(), asked.to.as_deref())?,
        alternatives: asked.alternatives,
        beam: asked.beam,
        length_penalty: asked.length_penalty,
        alignment: asked.alignment,
        terms: term_lines(&asked.terms)?,
        prefix: asked.prefix,
    };
    let lines = lines(asked.text)?;
    if !options.prefix.trim().is_empty() && lines.len() != 1 {
        return Err(Refusal::Unfit("a prefix can be given only for one line".to_owned()));
    }
    let translations = translated(&app, engine, lines, options).await?;
    Ok(json(200, &json!({ "run": engine.info.name, "translations": translations })))
}

/// Returns the direction that `from` and `to` name; `None` if both are `None`, or the run does not
/// translate.
///
/// # Errors
/// When `from` and `to` do not determine a direction of the run.
pub(super) fn direction(
    engine: &Engine,
    from: Option<&str>,
    to: Option<&str>,
) -> Result<Option<Direction>, Refusal> {
    let Some(info) = &engine.info.translation else { return Ok(None) };
    if from.is_none() && to.is_none() {
        return Ok(None);
    }
    let is_asked = |asked: Option<&str>, own: &str| asked.is_none_or(|asked| asked == own);
    let all = info.all();
    let mut fitting = all.iter().filter(|one| is_asked(from, &one.from) && is_asked(to, &one.to));
    match (fitting.next(), to) {
        (Some(one), Some(_)) => Ok(Some(one.clone())),
        (Some(one), None) if fitting.all(|other| other.to == one.to) => Ok(Some(one.clone())),
        _ => {
            let all: Vec<String> = all.iter().map(Direction::to_string).collect();
            Err(Refusal::Unfit(format!(
                "from and to do not determine one of the run's directions, {}",
                all.join(", ")
            )))
        }
    }
}

/// Writes terms with their translations as lines: a term, a tab and its translation.
///
/// # Errors
/// When there are too many terms, or a term has a tab or a line break.
pub(super) fn term_lines(terms: &BTreeMap<String, String>) -> Result<String, Refusal> {
    let lines: String =
        terms.iter().map(|(source, target)| format!("{source}\t{target}\n")).collect();
    let (most, bytes) = MOST_TERMS;
    if terms.len() > most || lines.len() > bytes {
        return Err(Refusal::Large(format!(
            "there must be at most {most} terms, with at most {bytes} bytes together"
        )));
    }
    let is_divided = |text: &String| text.contains(['\t', '\n', '\r']);
    match terms.iter().find(|(source, target)| is_divided(source) || is_divided(target)) {
        Some((source, _)) => {
            Err(Refusal::Unfit(format!("the term {source:?} has a tab or a line break")))
        }
        None => Ok(lines),
    }
}

/// Returns the lines of a text, or a list of lines as it is. A line end at the end of a text does
/// not begin another line.
///
/// # Errors
/// When a line of a list contains a line break.
pub(super) fn lines(text: Texts) -> Result<Vec<String>, Refusal> {
    match text {
        Texts::One(text) => {
            let mut lines = split_lines(&text);
            if lines.len() > 1 && lines.last() == Some(&"") {
                lines.pop();
            }
            Ok(lines.into_iter().map(str::to_owned).collect())
        }
        Texts::Several(lines) => match lines.iter().position(|line| line.contains(['\n', '\r'])) {
            Some(index) => Err(Refusal::Unfit(format!(
                "line {} has a line break: divide it, or send one string",
                index + 1
            ))),
            None => Ok(lines),
        },
    }
}

/// Translates lines.
///
/// # Errors
/// When options are out of range, and errors of [`App::ask`].
pub(super) async fn translated(
    app: &App,
    engine: &Engine,
    lines: Vec<String>,
    options: TranslateOptions,
) -> Result<Vec<LineAnswer>, Refusal> {
    let most = app.limits().beam;
    for (name, number) in [("alternatives", Some(options.alternatives)), ("beam", options.beam)] {
        if number.is_some_and(|number| number == 0 || number > most) {
            return Err(Refusal::Unfit(format!("{name} must be from 1 to {most}")));
        }
    }
    if options.beam.is_some_and(|beam| beam < options.alternatives) {
        return Err(Refusal::Unfit("alternatives must be at most as many as the beam".to_owned()));
    }
    app.check_lines(lines.len())?;
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    app.ask(engine, Translate { lines, options }).await
}
