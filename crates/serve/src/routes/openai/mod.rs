//! OpenAI's API: `GET /v1/models`, `POST /v1/completions` and `POST /v1/chat/completions`.

mod chat;
mod completions;
mod shared;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Value, json};

use crate::app::App;
use crate::engine::Generate;
use crate::http::{json, openai_refusal};
use crate::run_info::RunInfo;
pub(super) use chat::chat;
pub(super) use completions::completions;

fn described(info: &RunInfo) -> Value {
    json!({
        "id": info.name, "object": "model", "created": info.created, "owned_by": "taper",
    })
}

/// Lists the language models.
pub(super) async fn models(State(app): State<Arc<App>>) -> Response {
    let own = app.engines_for::<Generate>();
    let data: Vec<Value> = own.map(|engine| described(&engine.info)).collect();
    json(200, &json!({ "object": "list", "data": data }))
}

/// Describes one language model.
pub(super) async fn model(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    match app.engine::<Generate>(Some(&name)) {
        Ok(engine) => json(200, &described(&engine.info)),
        Err(refusal) => openai_refusal(&refusal),
    }
}
