//! Upload of large files by Git LFS: in one request, or in several parts if the hub requires this.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use reqwest::blocking::{Body, RequestBuilder};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::connection::escaped;
use crate::{Hub, HubError, HubEvent, Result};

/// Media type of the messages of Git LFS.
const KIND: &str = "application/vnd.git-lfs+json";

/// Large file in the folder that is being uploaded.
pub(crate) struct LargeFile {
    /// Path in the repository.
    pub(crate) path: String,
    pub(crate) file: PathBuf,
    pub(crate) bytes: u64,
    /// SHA-256 in hexadecimal.
    pub(crate) oid: String,
}

#[derive(Deserialize)]
struct Batch {
    objects: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    oid: String,
    #[serde(default)]
    actions: Option<Actions>,
    #[serde(default)]
    error: Option<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    #[serde(default)]
    code: Option<u16>,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Actions {
    upload: Action,
    #[serde(default)]
    verify: Option<Action>,
}

#[derive(Deserialize)]
struct Action {
    href: String,
    #[serde(default)]
    header: Map<String, Value>,
}

/// Uploads files that the repository does not have yet.
pub(crate) fn upload(
    hub: &Hub,
    repository: &str,
    revision: &str,
    files: &[LargeFile],
    observer: &mut dyn FnMut(HubEvent<'_>),
) -> Result<()> {
    let objects: Vec<Value> =
        files.iter().map(|file| json!({"oid": file.oid, "size": file.bytes})).collect();
    let asked = json!({
        "operation": "upload", "transfers": ["basic", "multipart"], "objects": objects,
        "hash_algo": "sha256", "ref": {"name": revision},
    });
    let place = format!("/{repository}.git/info/lfs/objects/batch");
    let request = hub.post(&place).header("Accept", KIND).header("Content-Type", KIND);
    let batch: Batch = hub.ask(repository, request.body(asked.to_string()), 0)?;
    for file in files {
        let Some(object) = batch.objects.iter().find(|object| object.oid == file.oid) else {
            let message = format!("it says nothing of {}", file.path);
            return Err(HubError::Answer { subject: repository.to_owned(), message });
        };
        if let Some(fault) = &object.error {
            return Err(refusal(hub, &file.path, fault));
        }
        let Some(actions) = &object.actions else {
            observer(HubEvent::IsThere { path: &file.path });
            continue;
        };
        observer(HubEvent::Transfers { path: &file.path, from: 0, bytes: file.bytes });
        match actions.upload.header.get("chunk_size") {
            Some(size) => in_parts(hub, file, &actions.upload, size)?,
            None => at_once(hub, file, &actions.upload)?,
        }
        if let Some(verify) = &actions.verify {
            let said = json!({"oid": file.oid, "size": file.bytes});
            let mut request = match has_authorization(&verify.header) {
                true => hub.client().post(&verify.href),
                false => hub.post_to(&verify.href),
            };
            request = with_headers(request.header("Content-Type", KIND), &verify.header);
            hub.send(&file.path, request.body(said.to_string()), 0, &[])?;
        }
    }
    Ok(())
}

/// Makes the error for a file that the hub refuses.
fn refusal(hub: &Hub, path: &str, Fault { code, message }: &Fault) -> HubError {
    match code {
        Some(code) => HubError::status(path, *code, message, hub.has_token()),
        None => {
            let message = format!("it refuses the file, with the message {message:?}");
            HubError::Answer { subject: path.to_owned(), message }
        }
    }
}

/// Makes a request body from the `bytes` bytes of a file that begin at byte `from`.
fn part(file: &LargeFile, from: u64, bytes: u64) -> Result<Body> {
    let fault = |error| HubError::file(&file.file, error);
    let mut reader = File::open(&file.file).map_err(fault)?;
    reader.seek(SeekFrom::Start(from)).map_err(fault)?;
    Ok(Body::sized(reader.take(bytes), bytes))
}

/// Adds the headers that the hub names for an action.
fn with_headers(request: RequestBuilder, headers: &Map<String, Value>) -> RequestBuilder {
    headers.iter().fold(request, |request, (name, value)| {
        request.header(name, value.as_str().unwrap_or_default())
    })
}

/// Whether the headers of an action have an authorization, which replaces the token.
fn has_authorization(headers: &Map<String, Value>) -> bool {
    headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
}

fn at_once(hub: &Hub, file: &LargeFile, upload: &Action) -> Result<()> {
    let request = with_headers(hub.client().put(&upload.href), &upload.header);
    hub.send(&file.path, request.body(part(file, 0, file.bytes)?), file.bytes, &[])?;
    Ok(())
}

/// Uploads a file in parts of `size` bytes. The field `header` of `upload` maps the number of each
/// part to the address to which the part is sent.
fn in_parts(hub: &Hub, file: &LargeFile, upload: &Action, size: &Value) -> Result<()> {
    let fault = |message: &str| HubError::Answer {
        subject: file.path.clone(),
        message: message.to_owned(),
    };
    let size = size.as_str().and_then(|size| size.parse().ok()).or(size.as_u64());
    let size = size.filter(|&size| size > 0).ok_or_else(|| fault("chunk_size is no size"))?;
    let numbered = upload
        .header
        .iter()
        .filter_map(|(number, place)| Some((number.parse::<u64>().ok()?, place.as_str()?)));
    let mut places: Vec<(u64, &str)> = numbered.collect();
    places.sort_unstable();
    if places.len() as u64 != file.bytes.div_ceil(size) {
        return Err(fault("it has another number of parts"));
    }
    if places.iter().zip(1..).any(|((number, _), expected)| *number != expected) {
        return Err(fault("its parts are not numbered from 1"));
    }
    let mut parts = Vec::with_capacity(places.len());
    for (at, (number, place)) in places.into_iter().enumerate() {
        let from = at as u64 * size;
        let bytes = size.min(file.bytes - from);
        let request = hub.client().put(place).body(part(file, from, bytes)?);
        let answer = hub.send(&file.path, request, bytes, &[])?;
        let tag = answer.headers().get("etag").and_then(|tag| tag.to_str().ok());
        let tag = tag.ok_or_else(|| fault("a part has no etag"))?;
        parts.push(json!({"partNumber": number, "etag": tag}));
    }
    let whole = json!({"oid": file.oid, "parts": parts});
    let request =
        hub.client().post(&upload.href).header("Accept", KIND).header("Content-Type", KIND);
    hub.send(&file.path, request.body(whole.to_string()), 0, &[])?;
    Ok(())
}

/// Returns the path in the hub's API for the action `verb` (such as `commit`) on a revision of a
/// repository.
pub(crate) fn of_models(repository: &str, verb: &str, revision: &str) -> String {
    format!("/api/models/{repository}/{verb}/{}", escaped(revision, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_file_says_why() {
        let error = |token: Option<&str>, fault: &str| {
            let token = token.map(str::to_owned);
            let hub = Hub::new("http://hub.example", token).expect("a connection");
            let fault = serde_json::from_str(fault).expect("a fault");
            refusal(&hub, "model.bin", &fault)
        };
        let denied = r#"{"code": 401, "message": "denied"}"#;
        assert!(matches!(error(None, denied), HubError::NoToken { .. }));
        assert!(matches!(error(Some("token"), denied), HubError::Token { .. }));
        let without_code = error(None, r#"{"message": "too large"}"#).to_string();
        assert!(without_code.contains("\"too large\""), "{without_code}");
        assert!(!without_code.contains("answers 0"), "{without_code}");
    }
}
