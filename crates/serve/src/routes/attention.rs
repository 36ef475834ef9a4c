//! `POST /api/attention`: the attention weights of a model on a text.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use taper_run::attention::AttentionLayer;

use super::translation::{Texts, lines};
use crate::app::App;
use crate::engine::{Attend, AttendPair, rounded};
use crate::error::Refusal;
use crate::http::{json, json_of};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttentionRequest {
    run: Option<String>,
    text: String,
    target: Option<String>,
}

/// Answers with the attention of every layer and head on a text.
pub(super) async fn attention(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let AttentionRequest { run, text, target } = json_of(request, app.limits()).await?;
    for text in std::iter::once(&text).chain(&target) {
        lines(Texts::Several(vec![text.clone()]))?;
    }
    let engine = app.engine::<Attend>(run.as_deref())?;
    let map = match target {
        Some(target) => app.ask(engine, AttendPair { text, target }).await?,
        None => app.ask(engine, Attend { text }).await?,
    };
    let layers: Vec<Value> = map.layers.iter().map(layer).collect();
    let answer = json!({
        "run": engine.info.name, "text": map.text, "translation": map.translation,
        "layers": layers,
    });
    Ok(json(200, &answer))
}

/// Describes a layer, with weights rounded to three decimals.
fn layer(layer: &AttentionLayer) -> Value {
    let row = |row: &Vec<f32>| row.iter().map(|&weight| rounded(weight)).collect::<Vec<_>>();
    let head = |head: &Vec<Vec<f32>>| head.iter().map(row).collect::<Vec<_>>();
    json!({
        "part": layer.part, "layer": layer.layer, "queries": layer.queries, "keys": layer.keys,
        "heads": layer.heads.iter().map(head).collect::<Vec<_>>(),
    })
}
