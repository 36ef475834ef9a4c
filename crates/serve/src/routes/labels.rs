//! Labels of texts and pictures: `POST /api/classify`, `POST /api/occlusion`, `POST
//! /api/classify-image` and `POST /api/match`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use taper_run::prediction::Prediction;

use super::pictures::Query;
use super::translation::{Texts, lines};
use crate::app::App;
use crate::engine::{Engine, LabelImage, LabelTexts, Match, Occlude};
use crate::error::Refusal;
use crate::http::{file_of, json, json_of};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelRequest {
    run: Option<String>,
    text: Texts,
}

/// Labels texts.
pub(super) async fn classify(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let asked: LabelRequest = json_of(request, app.limits()).await?;
    let engine = app.engine::<LabelTexts>(asked.run.as_deref())?;
    let texts = lines(asked.text)?;
    app.check_lines(texts.len())?;
    if texts.is_empty() {
        return Ok(answer(engine, &[], None));
    }
    let tab = texts.iter().position(|text| text.contains('\t')).filter(|_| !engine.info.pairs);
    let warning = tab.map(|line| {
        format!("text {} has a tab, but the run labels one text at a time, not pairs", line + 1)
    });
    let labels = app.ask(engine, LabelTexts { texts }).await?;
    Ok(answer(engine, &labels, warning))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OcclusionRequest {
    run: Option<String>,
    text: String,
}

/// Labels a text, and measures how much each of its words contributes to the label.
pub(super) async fn occlusion(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let OcclusionRequest { run, text } = json_of(request, app.limits()).await?;
    lines(Texts::Several(vec![text.clone()]))?;
    let engine = app.engine::<Occlude>(run.as_deref())?;
    let evidence = app.ask(engine, Occlude { text }).await?;
    let answer = json!({
        "run": engine.info.name, "label": evidence.prediction.label,
        "probability": evidence.prediction.probability, "words": evidence.words,
    });
    Ok(json(200, &answer))
}

/// Labels a picture.
pub(super) async fn classify_image(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let Query { run, .. } = Query::parse(&request, false)?;
    let engine = app.engine::<LabelImage>(run.as_deref())?;
    let file = file_of(request, app.limits()).await?;
    let label = app.ask(engine, LabelImage { file }).await?;
    Ok(answer(engine, &[label], None))
}

/// Finds the text that matches a picture best, among the texts in the query or else the run's
/// labels.
pub(super) async fn match_image(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let Query { run, texts } = Query::parse(&request, true)?;
    app.check_lines(texts.len())?;
    let engine = app.engine::<Match>(run.as_deref())?;
    let file = file_of(request, app.limits()).await?;
    let names = if texts.is_empty() { engine.info.labels.clone() } else { texts.clone() };
    let matched = app.ask(engine, Match { file, texts }).await?;
    Ok(named(engine, &names, &[matched], None))
}

fn answer(engine: &Engine, found: &[Prediction], warning: Option<String>) -> Response {
    named(engine, &engine.info.labels, found, warning)
}

/// Answers with predictions, in which each probability has the name of its label.
fn named(
    engine: &Engine,
    names: &[String],
    found: &[Prediction],
    warning: Option<String>,
) -> Response {
    let labelled = |one: &Prediction| -> Value {
        let probabilities = names.iter().zip(&one.probabilities);
        let probabilities: Vec<Value> = probabilities
            .map(|(label, probability)| json!({ "label": label, "probability": probability }))
            .collect();
        json!({
            "label": one.label, "probability": one.probability, "probabilities": probabilities,
        })
    };
    let found: Vec<Value> = found.iter().map(labelled).collect();
    let mut told = json!({ "run": engine.info.name, "predictions": found });
    if let Some(warning) = warning {
        told["warning"] = warning.into();
    }
    json(200, &told)
}
