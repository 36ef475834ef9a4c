//! `POST /translate_file` and `GET /download_file/{name}`: translation of whole documents.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_DISPOSITION, HOST, HeaderValue};
use axum::response::Response;
use serde_json::json;

use super::{allowed, chosen};
use crate::app::App;
use crate::error::Refusal;
use crate::files::KeptFile;
use crate::http::{is_key, json, multipart_of, text};
use crate::routes::documents::{DocumentWork, opened};

/// Translates a document, and returns the address of the translation.
pub(in crate::routes) async fn translate_file(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let headers = request.headers().clone();
    let limits = app.limits();
    // The form may contain the key. Until the key is known, only a small form is accepted: a client
    // that sends a large form must have the key in a header.
    let is_known = is_key(&app, &headers, None);
    let of_document = if is_known { limits.document_bytes } else { 0 };
    let most = limits.body_bytes.saturating_add(of_document);
    let mut form = match multipart_of(request, most, limits).await {
        Ok(form) => form,
        // Without a key, other errors are not reported.
        Err(refusal) => return Err(allowed(&app, &headers, None).err().unwrap_or(refusal)),
    };
    allowed(&app, &headers, form.text("api_key"))?;
    let file = form.take_file("file")?;
    let needed = |name: &str| {
        form.text(name).filter(|value| !value.is_empty()).ok_or_else(|| {
            Refusal::Malformed(format!("the form has no {name}: expected file, source and target"))
        })
    };
    let (source, target) = (needed("source")?, needed("target")?);
    let document = opened(&app, file).await?;
    let choice = chosen(&app, source, target, &document.sample).await?;
    let work = DocumentWork::new(&app, document, choice.direction, String::new()).await?;
    let stored = work.finish(&app, choice.engine, |_| {}).await?;
    let url = format!("{}/{}", base(&headers), stored.address);
    let mut answer = json!({ "translatedFileUrl": url });
    if let Some(warning) = stored.warning() {
        answer["warning"] = warning.into();
    }
    Ok(json(200, &answer))
}

/// Address with which the client calls the server.
fn base(headers: &HeaderMap) -> String {
    let told = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // These headers come from a proxy in front of the server. A false header affects only the
    // answer to its own sender.
    let scheme = if told("x-forwarded-proto") == Some("https") { "https" } else { "http" };
    format!("{scheme}://{}", told(HOST.as_str()).unwrap_or_default())
}

/// Sends a translated file, which the browser saves.
pub(in crate::routes) async fn download_file(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let KeptFile { name, media_type, content } = app.files.find(&name).ok_or_else(|| {
        Refusal::Missing("there is no such file, or it no longer exists".to_owned())
    })?;
    let mut response = text(200, media_type, content);
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        response.headers_mut().insert(CONTENT_DISPOSITION, value);
    }
    Ok(response)
}
