//! LibreTranslate's API: `GET /languages`, `POST /translate`, `POST /detect` and `POST
//! /translate_file`.

mod detect;
mod files;
mod languages;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use taper_data::{Direction, split_lines};

use self::detect::{Detected, languages_of};
use super::documents::{DocumentWork, SAMPLED, html};
use super::translation::{Texts, term_lines, translated};
use crate::app::App;
use crate::engine::{Engine, LineAnswer, TranslateOptions};
use crate::error::Refusal;
use crate::http::{form_or_json_of, is_key, json};
pub(super) use detect::detect;
pub(super) use files::{download_file, translate_file};

/// Request in JSON.
#[derive(Debug, Deserialize)]
struct TranslateRequest {
    q: Texts,
    source: String,
    target: String,
    format: Option<String>,
    #[serde(default)]
    alternatives: usize,
    api_key: Option<String>,
    /// Terms with their translations, an extension of LibreTranslate's API.
    #[serde(default)]
    terms: BTreeMap<String, String>,
}

/// Request as an HTML form, in which numbers are text and there is a single `q`.
#[derive(Debug, Deserialize)]
struct TranslateForm {
    q: String,
    source: String,
    target: String,
    format: Option<String>,
    #[serde(default)]
    alternatives: usize,
    api_key: Option<String>,
}

impl From<TranslateForm> for TranslateRequest {
    fn from(form: TranslateForm) -> Self {
        let TranslateForm { q, source, target, format, alternatives, api_key } = form;
        let terms = BTreeMap::new();
        Self { q: Texts::One(q), source, target, format, alternatives, api_key, terms }
    }
}

/// Returns the runs that translate, once for each of their directions.
fn directions(app: &App) -> impl Iterator<Item = (&Engine, Direction)> {
    let of =
        |engine: &Engine| engine.info.translation.as_ref().map_or(Vec::new(), |info| info.all());
    app.engines
        .iter()
        .flat_map(move |engine| of(engine).into_iter().map(move |direction| (engine, direction)))
}

/// Lists the source languages with their target languages.
pub(super) async fn languages(State(app): State<Arc<App>>) -> Response {
    let mut targets: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, Direction { from, to }) in directions(&app) {
        // Target languages are listed too, because clients look up their names.
        targets.entry(to.clone()).or_default();
        targets.entry(from).or_default().push(to);
    }
    let language = |(code, mut targets): (String, Vec<String>)| -> Value {
        targets.sort_unstable();
        targets.dedup();
        json!({ "code": code, "name": languages::name(&code), "targets": targets })
    };
    json(200, &targets.into_iter().map(language).collect::<Vec<_>>())
}

/// Refuses a client that does not send the server's key, if the server has one. `key` is the key in
/// the body; if it is `None`, the headers must contain the key.
///
/// # Errors
/// When the key is missing or wrong.
fn allowed(app: &App, headers: &HeaderMap, key: Option<&str>) -> Result<(), Refusal> {
    let key = key.filter(|key| !key.is_empty());
    if is_key(app, headers, key) { Ok(()) } else { Err(Refusal::Key) }
}

/// Returns the options for translations by the run's own search.
fn plain(choice: &Choice<'_>, alternatives: usize) -> TranslateOptions {
    let direction = Some(choice.direction.clone());
    TranslateOptions { direction, alternatives, ..TranslateOptions::default() }
}

/// Translates a text, or several.
pub(super) async fn translate(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let headers = request.headers().clone();
    // The body is read before the key is checked, because it may contain the key.
    let asked: TranslateRequest =
        form_or_json_of::<TranslateRequest, TranslateForm>(request, app.limits()).await?;
    allowed(&app, &headers, asked.api_key.as_deref())?;
    let texts = match &asked.q {
        Texts::One(text) => std::slice::from_ref(text),
        Texts::Several(texts) => texts.as_slice(),
    };
    match asked.format.as_deref() {
        None | Some("text") => {}
        Some("html") => return translate_html(&app, &asked, texts).await,
        Some(_) => return Err(Refusal::Malformed("format must be text or html".to_owned())),
    }
    let choice = chosen(&app, &asked.source, &asked.target, texts).await?;
    // Each line is translated by itself; the translations are joined by `\n`, whatever the line
    // breaks were.
    let lines_of =
        |text: &String| split_lines(text).into_iter().map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = texts.iter().map(lines_of).collect();
    let terms = term_lines(&asked.terms)?;
    let options =
        TranslateOptions { terms, ..plain(&choice, asked.alternatives.saturating_add(1)) };
    let found = translated(&app, choice.engine, lines.concat(), options).await?;
    let mut found = found.into_iter();
    let (mut best, mut others) = (Vec::new(), Vec::new());
    for text in &lines {
        let own: Vec<LineAnswer> = found.by_ref().take(text.len()).collect();
        let ranks = own.iter().map(|line| line.translations.len()).min().unwrap_or(0);
        let rank = |rank: usize| {
            let texts: Vec<&str> =
                own.iter().map(|line| line.translations[rank].text.as_str()).collect();
            texts.join("\n")
        };
        best.push(if ranks == 0 { String::new() } else { rank(0) });
        others.push((1..ranks).map(rank).collect::<Vec<_>>());
    }
    Ok(json(200, &answer(&asked, &best, &others, choice.detected.as_ref())))
}

/// Translates texts in HTML, and keeps their markup. Each text is translated as a document, so it
/// has no alternative translations.
async fn translate_html(
    app: &App,
    asked: &TranslateRequest,
    texts: &[String],
) -> Result<Response, Refusal> {
    let mut documents = Vec::with_capacity(texts.len());
    for text in texts {
        documents.push(html(app, text).await?);
    }
    let sample: Vec<String> =
        documents.iter().flat_map(|document| &document.sample).take(SAMPLED).cloned().collect();
    let choice = chosen(app, &asked.source, &asked.target, &sample).await?;
    let terms = term_lines(&asked.terms)?;
    let (mut best, mut warnings) = (Vec::new(), Vec::new());
    for document in documents {
        let direction = choice.direction.clone();
        let work = DocumentWork::new(app, document, direction, terms.clone()).await?;
        let (text, warning) = work.text(app, choice.engine).await?;
        best.push(text);
        warnings.extend(warning);
    }
    let others = vec![Vec::new(); best.len()];
    let mut answer = answer(asked, &best, &others, choice.detected.as_ref());
    if !warnings.is_empty() {
        answer["warning"] = warnings.join("; ").into();
    }
    Ok(json(200, &answer))
}

/// Makes the content of an answer. If the request has a list of texts, the fields of the answer are
/// lists with an element for each text; otherwise they have the values for the only text.
fn answer(
    asked: &TranslateRequest,
    best: &[String],
    others: &[Vec<String>],
    detected: Option<&Detected>,
) -> Value {
    let is_one = matches!(asked.q, Texts::One(_));
    let mut answer = match is_one {
        true => json!({ "translatedText": best[0] }),
        false => json!({ "translatedText": best }),
    };
    if asked.alternatives > 0 {
        answer["alternatives"] = if is_one { json!(others[0]) } else { json!(others) };
    }
    if let Some(detected) = detected {
        answer["detectedLanguage"] =
            if is_one { json!(detected) } else { json!(vec![detected; best.len()]) };
    }
    answer
}

/// Run and direction that are chosen for a request.
struct Choice<'a> {
    engine: &'a Engine,
    direction: Direction,
    /// Detected source language, if detection was requested.
    detected: Option<Detected>,
}

/// Chooses the run and direction whose languages match `source` and `target` best. Among equally
/// good matches, the first is chosen. If `source` is `auto`, the language of `texts` is detected.
///
/// # Errors
/// When no run translates from `source` into `target`, and errors of [`App::ask`].
async fn chosen<'a>(
    app: &'a App,
    source: &str,
    target: &str,
    texts: &[String],
) -> Result<Choice<'a>, Refusal> {
    let into = move |one: &Direction| languages::answers_to(&one.to, target);
    let own = || directions(app).filter(move |(_, one)| into(one).is_some());
    let none = || {
        let message = format!("nothing here translates {source} into {target}: see /languages");
        Refusal::Malformed(message)
    };
    let is_auto = source.trim().eq_ignore_ascii_case("auto");
    let detected = match is_auto {
        true if own().next().is_none() => return Err(none()),
        true => languages_of(app, texts, own()).await?.into_iter().next(),
        false => None,
    };
    let source = detected.as_ref().map_or(source, |detected| detected.language.as_str());
    let from = |one: &Direction| languages::answers_to(&one.from, source);
    let ranked = own().filter_map(|(engine, one)| Some((from(&one)? + into(&one)?, engine, one)));
    let (_, engine, direction) = ranked.min_by_key(|(rank, ..)| *rank).ok_or_else(none)?;
    Ok(Choice { engine, direction, detected })
}
