//! `POST /api/caption`, and queries of routes that take a picture.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::json;

use crate::app::App;
use crate::engine::Describe;
use crate::error::Refusal;
use crate::http::{file_of, json};

/// Query of a request whose body is a picture.
#[derive(Debug, Default)]
pub(super) struct Query {
    /// Name of the run.
    pub(super) run: Option<String>,
    /// Texts to choose from: all values of `text`.
    pub(super) texts: Vec<String>,
}

impl Query {
    /// Parses the query of a request.
    ///
    /// # Errors
    /// When a key is unknown, a text is given but not expected, or a text is empty.
    pub(super) fn parse(request: &Request, takes_texts: bool) -> Result<Self, Refusal> {
        let query = request.uri().query().unwrap_or_default();
        let malformed = |message: String| Refusal::Malformed(format!("the query: {message}"));
        let pairs: Vec<(String, String)> =
            serde_urlencoded::from_str(query).map_err(|error| malformed(error.to_string()))?;
        let mut asked = Self::default();
        for (key, value) in pairs {
            match key.as_str() {
                "run" if asked.run.is_none() => asked.run = Some(value),
                "text" if takes_texts && value.trim().is_empty() => {
                    return Err(malformed("a text is empty".to_owned()));
                }
                "text" if takes_texts => asked.texts.push(value),
                _ => return Err(malformed(format!("unknown or repeated key `{key}`"))),
            }
        }
        Ok(asked)
    }
}

/// Describes a picture.
pub(super) async fn caption(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let Query { run, .. } = Query::parse(&request, false)?;
    let engine = app.engine::<Describe>(run.as_deref())?;
    let file = file_of(request, app.limits()).await?;
    let caption = app.ask(engine, Describe { file }).await?;
    Ok(json(200, &json!({ "run": engine.info.name, "captions": [caption] })))
}
