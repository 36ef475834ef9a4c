//! `POST /translate_file` and `GET /download_file/{name}`: plain text in, plain text out.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_DISPOSITION, HOST, HeaderValue};
use axum::response::Response;
use serde_json::json;
use taper_data::split_lines;

use super::{allowed, chosen, plain};
use crate::app::App;
use crate::error::Refusal;
use crate::http::{Part, json, multipart_of, text};
use crate::routes::translation::translated;

/// Number of lines that are translated at a time, so that a long file does not delay other
/// requests.
const TOGETHER: usize = 32;

/// Translates a file of plain text, line by line, and returns the address of the translation.
pub(in crate::routes) async fn translate_file(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let headers = request.headers().clone();
    let parts = match multipart_of(request, app.limits()).await {
        Ok(parts) => parts,
        // Without a key, other errors are not reported.
        Err(refusal) => return Err(allowed(&app, &headers, None).err().unwrap_or(refusal)),
    };
    let value = |name: &str| {
        let part = parts.iter().find(|part| part.name == name && part.file.is_none());
        part.and_then(|part| std::str::from_utf8(&part.bytes).ok())
    };
    allowed(&app, &headers, value("api_key"))?;
    let needed = |name: &str| {
        value(name).filter(|value| !value.is_empty()).ok_or_else(|| {
            Refusal::Malformed(format!("the form has no {name}: expected file, source and target"))
        })
    };
    let (source, target) = (needed("source")?, needed("target")?);
    let file = parts.iter().find(|part| part.name == "file" && part.file.is_some());
    let file = file.ok_or_else(|| Refusal::Malformed("the form has no file".to_owned()))?;
    let (name, content) = read(file)?;
    let texts = [content.to_owned()];
    let choice = chosen(&app, source, target, &texts).await?;
    let lines: Vec<String> = split_lines(content).into_iter().map(str::to_owned).collect();
    let translate = async {
        let mut found = Vec::with_capacity(lines.len());
        for lines in lines.chunks(TOGETHER.min(app.limits().lines)) {
            let lines = translated(&app, choice.engine, lines.to_vec(), plain(&choice, 1)).await?;
            found.extend(lines.into_iter().map(|line| {
                line.translations.into_iter().next().map(|best| best.text).unwrap_or_default()
            }));
        }
        Ok(found.join("\n"))
    };
    let whole = tokio::time::timeout(app.limits().answer, translate);
    let content = whole.await.map_err(|_| Refusal::Late)??;
    let name = app.files.keep(&name, content)?;
    let url = format!("{}/download_file/{name}", base(&headers));
    Ok(json(200, &json!({ "translatedFileUrl": url })))
}

/// Name of a file without its folder, and its text.
fn read(file: &Part) -> Result<(String, &str), Refusal> {
    let name = file.file.as_deref().unwrap_or_default();
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    if !name.to_ascii_lowercase().ends_with(".txt") {
        return Err(Refusal::Malformed(format!(
            "{name:?} is not supported: only files of plain text are, whose names end in .txt"
        )));
    }
    let text = std::str::from_utf8(&file.bytes).ok().filter(|text| !text.contains('\0'));
    let text = text.ok_or_else(|| {
        Refusal::Malformed(format!("{name:?} is not text in UTF-8: save it in that encoding"))
    })?;
    Ok((name.to_owned(), text))
}

/// Address by which the client calls the server.
fn base(headers: &HeaderMap) -> String {
    let told = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // From a proxy before the server. A false header affects only the answer to its own sender.
    let scheme = if told("x-forwarded-proto") == Some("https") { "https" } else { "http" };
    format!("{scheme}://{}", told(HOST.as_str()).unwrap_or_default())
}

/// Sends a translation, to be saved.
pub(in crate::routes) async fn download_file(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let (file, content) = app.files.find(&name).ok_or_else(|| {
        Refusal::Missing("there is no such file, or there is no longer".to_owned())
    })?;
    let mut response = text(200, "text/plain; charset=utf-8", content);
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{file}\"")) {
        response.headers_mut().insert(CONTENT_DISPOSITION, value);
    }
    Ok(response)
}
