//! Routes for the web page, and for information about the server.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::ACCEPT_LANGUAGE;
use axum::response::Response;
use serde_json::json;

use crate::app::App;
use crate::http::{html, json, text};
use crate::metrics::MEDIA_TYPE;
use crate::run_info::RunInfo;

/// Description of the API, for machines.
pub(super) const DESCRIPTION: &str = include_str!("openapi.json");

/// Sends the page in the language of `?lang=`, or else in the language of the browser.
pub(super) async fn page(State(app): State<Arc<App>>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let chosen = query.split('&').find_map(|pair| pair.strip_prefix("lang="));
    let header = request.headers().get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    let (page, policy) = app.pages.choose(chosen, header.unwrap_or_default());
    html(page.to_owned(), policy)
}

/// Reports whether all runs answer requests.
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    let (status, health) = app.health();
    json(status, &health)
}

/// Answers with the counters of the server.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let waiting = app.engines.iter().map(|engine| (engine.info.name.as_str(), engine.waiting()));
    text(200, MEDIA_TYPE, app.metrics.text(waiting))
}

/// Description of the API.
pub(super) async fn description() -> Response {
    text(200, "application/json", DESCRIPTION)
}

/// Answers with the served runs and the limits.
pub(super) async fn runs(State(app): State<Arc<App>>) -> Response {
    let infos: Vec<&RunInfo> = app.engines.iter().map(|engine| &engine.info).collect();
    let limits = app.limits();
    json(
        200,
        &json!({
            "runs": infos,
            "limits": {
                "body_bytes": limits.body_bytes, "image_bytes": limits.image_bytes,
                "lines": limits.lines, "tokens": limits.tokens,
                "attention_tokens": limits.attention_tokens, "new_tokens": limits.new_tokens,
                "beam": limits.beam, "answer_seconds": limits.answer.as_secs_f64(),
                "document_bytes": limits.document_bytes, "sentences": limits.sentences,
                "document_answer_seconds": limits.document_answer.as_secs_f64(),
            },
        }),
    )
}
