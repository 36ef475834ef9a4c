//! Upload of a folder as one commit.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::checksums::sha256_of;
use crate::connection::owner_and_name;
use crate::lfs::{LargeFile, of_models, upload};
use crate::{Hub, HubError, HubEvent, Result};

/// Number of bytes from the beginning of a file that are sent to the hub. The hub uses them to
/// decide whether the file is stored by Git LFS.
const SAMPLE: u64 = 512;
/// Largest number of files in one request.
const MOST_FILES: usize = 100;
/// Ending of the names of files that a download has not finished.
pub(crate) const INCOMPLETE: &str = ".incomplete";

/// Settings of an upload.
#[derive(Debug, Clone)]
pub struct PushSettings {
    /// Branch, which is made if it does not exist.
    pub revision: String,
    /// Whether a new repository is private.
    pub private: bool,
    /// First line of the commit's message.
    pub message: String,
}

/// Result of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// Address of the repository.
    pub url: String,
    /// Hash of the commit.
    pub commit: String,
    /// Number of files.
    pub files: usize,
    /// Total number of bytes of the files.
    pub bytes: u64,
}

/// File in the folder that is uploaded.
struct Local {
    /// Path in the repository.
    path: String,
    file: PathBuf,
    bytes: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mode {
    path: String,
    upload_mode: String,
    #[serde(default)]
    should_ignore: bool,
}

#[derive(Deserialize)]
struct Modes {
    files: Vec<Mode>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Committed {
    commit_oid: String,
}

/// Uploads all files of `folder`, except hidden files and unfinished downloads, to `repository`,
/// given as `owner/name`. The repository is created if it does not exist. Files that are only in
/// the repository are kept.
///
/// # Errors
/// When a file cannot be read, or the hub does not answer or refuses.
pub fn push(
    hub: &Hub,
    folder: &Path,
    repository: &str,
    settings: &PushSettings,
    observer: &mut dyn FnMut(HubEvent<'_>),
) -> Result<Pushed> {
    let (owner, name) = owner_and_name(repository)?;
    let files = files_of(folder)?;
    if files.is_empty() {
        return Err(HubError::file(folder, "no file to upload"));
    }
    let made = json!({
        "type": "model", "organization": owner, "name": name, "private": settings.private,
    });
    // 409 means that the repository exists.
    hub.send(repository, json_body(hub.post("/api/repos/create"), &made), 0, &[409])?;
    let revision = settings.revision.as_str();
    if revision != "main" {
        let place = of_models(repository, "branch", revision);
        hub.send(repository, json_body(hub.post(&place), &json!({})), 0, &[409])?;
    }
    let (small, large) = by_mode(hub, repository, revision, files)?;
    for some in large.chunks(MOST_FILES) {
        upload(hub, repository, revision, some, observer)?;
    }
    let body = commit(&settings.message, &small, &large, observer)?;
    let sent = body.len() as u64;
    let place = of_models(repository, "commit", revision);
    let request = hub.post(&place).header("Content-Type", "application/x-ndjson").body(body);
    let Committed { commit_oid } = hub.ask(repository, request, sent)?;
    Ok(Pushed {
        url: format!("{}/{repository}", hub.endpoint()),
        commit: commit_oid,
        files: small.len() + large.len(),
        bytes: small.iter().map(|file| file.bytes).sum::<u64>()
            + large.iter().map(|file| file.bytes).sum::<u64>(),
    })
}

fn json_body(
    request: reqwest::blocking::RequestBuilder,
    body: &Value,
) -> reqwest::blocking::RequestBuilder {
    request.header("Content-Type", "application/json").body(body.to_string())
}

/// Returns the files of a folder and its subfolders, sorted by path, without hidden files and
/// unfinished downloads. Links are followed; a link to a folder around it is an error.
fn files_of(folder: &Path) -> Result<Vec<Local>> {
    let mut files = Vec::new();
    // Each folder has the prefix of its paths in the repository, and the folders around it.
    let mut rest = vec![(folder.to_owned(), String::new(), Vec::new())];
    while let Some((folder, before, mut around)) = rest.pop() {
        let fault = |error| HubError::file(&folder, error);
        let real = fs::canonicalize(&folder).map_err(fault)?;
        if around.contains(&real) {
            let message = "this link leads to a folder around it: remove the link";
            return Err(HubError::file(&folder, message));
        }
        around.push(real);
        for entry in fs::read_dir(&folder).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let name = entry.file_name().into_string();
            let name = name.map_err(|_| HubError::file(&entry.path(), "its name is not UTF-8"))?;
            if name.starts_with('.') || name.ends_with(INCOMPLETE) {
                continue;
            }
            let facts =
                fs::metadata(entry.path()).map_err(|error| HubError::file(&entry.path(), error))?;
            let path = format!("{before}{name}");
            if facts.is_dir() {
                rest.push((entry.path(), format!("{path}/"), around.clone()));
            } else if facts.is_file() {
                files.push(Local { path, file: entry.path(), bytes: facts.len() });
            }
        }
    }
    files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// Asks the hub which files are stored by Git LFS. Returns first the small files, which are not
/// stored by Git LFS, and then the large files, which are. Files that the hub ignores are left out.
fn by_mode(
    hub: &Hub,
    repository: &str,
    revision: &str,
    files: Vec<Local>,
) -> Result<(Vec<Local>, Vec<LargeFile>)> {
    let place = of_models(repository, "preupload", revision);
    let mut modes = Vec::new();
    for some in files.chunks(MOST_FILES) {
        let described = some.iter().map(described).collect::<Result<Vec<Value>>>()?;
        let body = json!({ "files": described });
        let answer: Modes = hub.ask(repository, json_body(hub.post(&place), &body), 0)?;
        modes.extend(answer.files);
    }
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for file in files {
        let mode = modes.iter().find(|mode| mode.path == file.path);
        let mode = mode.ok_or_else(|| HubError::Answer {
            subject: repository.to_owned(),
            message: format!("it says nothing of {}", file.path),
        })?;
        match mode.upload_mode.as_str() {
            _ if mode.should_ignore => {}
            "lfs" => {
                let oid = sha256_of(&file.file)?;
                let Local { path, file, bytes } = file;
                large.push(LargeFile { path, file, bytes, oid });
            }
            _ => small.push(file),
        }
    }
    Ok((small, large))
}

/// Describes a file as JSON: path, size, and its first bytes in Base64.
fn described(local: &Local) -> Result<Value> {
    let mut sample = Vec::new();
    let fault = |error| HubError::file(&local.file, error);
    let file = File::open(&local.file).map_err(fault)?;
    file.take(SAMPLE).read_to_end(&mut sample).map_err(fault)?;
    Ok(json!({"path": local.path, "size": local.bytes, "sample": BASE64.encode(sample)}))
}

/// Returns the body of a commit request, with one JSON object on each line.
fn commit(
    message: &str,
    small: &[Local],
    large: &[LargeFile],
    observer: &mut dyn FnMut(HubEvent<'_>),
) -> Result<String> {
    let header = json!({"key": "header", "value": {"summary": message, "description": ""}});
    let mut lines = vec![header];
    for Local { path, file, bytes } in small {
        observer(HubEvent::Transfers { path, from: 0, bytes: *bytes });
        let content = fs::read(file).map_err(|error| HubError::file(file, error))?;
        let content = BASE64.encode(content);
        let value = json!({"path": path, "content": content, "encoding": "base64"});
        lines.push(json!({"key": "file", "value": value}));
    }
    for LargeFile { path, oid, bytes, .. } in large {
        let value = json!({"path": path, "algo": "sha256", "oid": oid, "size": bytes});
        lines.push(json!({"key": "lfsFile", "value": value}));
    }
    Ok(lines.iter().map(|line| format!("{line}\n")).collect())
}
