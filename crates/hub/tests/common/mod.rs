//! A server on this machine with the part of the hub's API that transfers use.
//! `scripts/check/hub.py` tests this server with the Python library huggingface_hub.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// Smallest number of bytes of a large file. Files of at least twice this number of bytes are
/// uploaded in parts.
pub(crate) const LARGE: usize = 3000;
/// Number of bytes of a part.
const PART: usize = 4000;

/// Files of a revision by path: the content, and whether the file is large.
type Files = BTreeMap<String, (Vec<u8>, bool)>;

/// Repositories of the server, and its settings for a test.
#[derive(Default)]
pub(crate) struct State {
    /// Files by repository and revision.
    pub(crate) repositories: BTreeMap<(String, String), Files>,
    /// Large files by SHA-256.
    objects: BTreeMap<String, Vec<u8>>,
    /// Uploaded parts of large files, by the SHA-256 of the file and the number of the part.
    parts: BTreeMap<(String, usize), Vec<u8>>,
    /// Token that requests must have; `None` if requests need no token.
    pub(crate) token: Option<String>,
    /// A text and an HTTP status: requests to paths that contain the text get this status.
    pub(crate) refuses: Option<(&'static str, u16)>,
    /// Number of bytes of a download after which the connection breaks; only one download is
    /// broken.
    pub(crate) breaks_after: Option<usize>,
    /// Whether downloads have a wrong byte.
    pub(crate) damages: bool,
    /// Number of bytes that downloads have after their file.
    pub(crate) lengthens: usize,
    /// Address of another server. Downloads are redirected to it, and uploads of large files are
    /// verified there. If it is `None`, this server does both.
    pub(crate) redirects_to: Option<String>,
    /// Address of another server, where uploads of large files are verified; `None` if this server
    /// verifies them.
    pub(crate) verifies_at: Option<String>,
    /// Headers of the requests so far, with names in lower case.
    pub(crate) headers: Vec<BTreeMap<String, String>>,
    /// Requests so far, each as its method and path.
    pub(crate) requests: Vec<String>,
    /// Values of the header `Range` of the requests so far.
    pub(crate) ranges: Vec<String>,
}

/// Server and its address.
pub(crate) struct Server {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) endpoint: String,
}

impl Server {
    /// Starts a server on a free port.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let (kept, address) = (state.clone(), endpoint.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (state, endpoint) = (kept.clone(), address.clone());
                std::thread::spawn(move || {
                    let _ = serve(stream, &state, &endpoint);
                });
            }
        });
        Self { state, endpoint }
    }

    pub(crate) fn files(&self, repository: &str, revision: &str) -> BTreeMap<String, Vec<u8>> {
        let state = self.state.lock().unwrap();
        let files = &state.repositories[&(repository.to_owned(), revision.to_owned())];
        files.iter().map(|(path, (bytes, _))| (path.clone(), bytes.clone())).collect()
    }
}

struct Request {
    method: String,
    place: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Number of bytes of the body after which the connection breaks; `None` if it does not break.
    breaks_after: Option<usize>,
}

impl Answer {
    fn json(value: &Value) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self { status: 200, headers, body: value.to_string().into_bytes(), breaks_after: None }
    }

    fn status(status: u16, error: &str) -> Self {
        Self { status, ..Self::json(&json!({ "error": error })) }
    }

    fn header(mut self, name: &str, value: String) -> Self {
        self.headers.push((name.to_owned(), value));
        self
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>, endpoint: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let Some(request) = read(&mut reader, &stream)? else { return Ok(()) };
    let answer = answer(&request, &mut state.lock().unwrap(), endpoint);
    let mut out = stream;
    write!(out, "HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status)?;
    for (name, value) in &answer.headers {
        write!(out, "{name}: {value}\r\n")?;
    }
    write!(out, "Content-Length: {}\r\n\r\n", answer.body.len())?;
    if request.method == "HEAD" {
        return Ok(());
    }
    out.write_all(&answer.body[..answer.breaks_after.unwrap_or(answer.body.len())])
}

fn read(
    reader: &mut BufReader<TcpStream>,
    mut stream: &TcpStream,
) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(place)) = (words.next(), words.next()) else { return Ok(None) };
    let (place, query) = place.split_once('?').unwrap_or((place, ""));
    let (method, place, query) = (method.to_owned(), place.to_owned(), query.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    if headers.contains_key("expect") {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let mut body = Vec::new();
    if headers.get("transfer-encoding").is_some_and(|kind| kind == "chunked") {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk)?;
            body.extend(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = headers.get("content-length").and_then(|it| it.parse().ok()) {
        body = vec![0; length];
        reader.read_exact(&mut body)?;
    }
    Ok(Some(Request { method, place, query, headers, body }))
}

fn hexadecimal(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn git_blob(bytes: &[u8]) -> String {
    let mut digest = Sha1::new();
    digest.update(format!("blob {}\0", bytes.len()));
    digest.update(bytes);
    hexadecimal(&digest.finalize())
}

/// Returns the hash of a commit, which depends only on the commit's files.
fn commit_of(files: &Files) -> String {
    let mut whole = Vec::new();
    for (path, (bytes, _)) in files {
        whole.extend(format!("{path} {}\n", git_blob(bytes)).into_bytes());
    }
    hexadecimal(&Sha1::digest(whole))
}

/// Decodes the percent-encoding of a text: `%2F` becomes `/`.
fn plain(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, others @ ..] = rest {
        let code = others.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match code.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &others[2..];
            }
            _ => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn answer(request: &Request, state: &mut State, endpoint: &str) -> Answer {
    let Request { method, place, .. } = request;
    state.requests.push(format!("{method} {place}"));
    state.headers.push(request.headers.clone());
    if let Some((part, status)) = state.refuses
        && place.contains(part)
    {
        return Answer::status(status, "the reason");
    }
    let is_stored = place.starts_with("/stored/") && !place.ends_with("/verify");
    let token = request.headers.get("authorization").and_then(|it| it.strip_prefix("Bearer "));
    // On a real hub, large files can be stored on another server, which must not get the token.
    assert!(!is_stored || token.is_none(), "a token went to another place");
    if !is_stored && state.token.is_some() && state.token.as_deref() != token {
        return Answer::status(401, "Invalid credentials");
    }
    let parts: Vec<&str> = place.trim_start_matches('/').split('/').collect();
    match (method.as_str(), parts.as_slice()) {
        ("POST", ["api", "validate-yaml"]) => Answer::json(&json!({"errors": [], "warnings": []})),
        ("POST", ["api", "repos", "create"]) => create(request, state, endpoint),
        (_, ["api", "models", owner, name, rest @ ..]) => {
            of_repository(request, state, (endpoint, &format!("{owner}/{name}")), rest)
        }
        ("POST", [_, _, "info", "lfs", "objects", "batch"]) => batch(request, state, endpoint),
        ("PUT" | "POST", ["stored", oid, rest @ ..]) => store(request, state, oid, rest),
        (_, [_, _, "resolve", ..]) if state.redirects_to.is_some() => {
            let other = state.redirects_to.as_deref().unwrap();
            Answer::status(302, "elsewhere").header("Location", format!("{other}{place}"))
        }
        ("GET" | "HEAD", [owner, name, "resolve", revision, path @ ..]) => {
            let path = plain(&path.join("/"));
            resolve(request, state, (&format!("{owner}/{name}"), &plain(revision)), &path)
        }
        _ => Answer::status(404, "no such place"),
    }
}

fn body(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap_or_default()
}

fn create(request: &Request, state: &mut State, endpoint: &str) -> Answer {
    let asked = body(request);
    let owner = asked["organization"].as_str().unwrap_or("me");
    let repository = format!("{owner}/{}", asked["name"].as_str().unwrap());
    let url = json!({ "url": format!("{endpoint}/{repository}") });
    let key = (repository, "main".to_owned());
    if state.repositories.contains_key(&key) {
        return Answer { status: 409, ..Answer::json(&url) };
    }
    state.repositories.insert(key, Files::new());
    Answer::json(&url)
}

fn of_repository(
    request: &Request,
    state: &mut State,
    (endpoint, repository): (&str, &str),
    rest: &[&str],
) -> Answer {
    let revision = plain(rest.get(1).copied().unwrap_or("main"));
    let found = state.repositories.iter().find(|((of, name), files)| {
        of == repository && (*name == revision || commit_of(files) == revision)
    });
    let key = found.map(|(key, _)| key.clone());
    match (request.method.as_str(), rest.first().copied(), key) {
        ("POST", Some("branch"), None) => {
            let main = (repository.to_owned(), "main".to_owned());
            let files = state.repositories[&main].clone();
            state.repositories.insert((main.0, revision), files);
            Answer::json(&json!({}))
        }
        ("POST", Some("branch"), Some(_)) => Answer::status(409, "Reference already exists"),
        (_, _, None) => Answer::status(404, "Repository not found"),
        ("POST", Some("preupload"), _) => {
            let files = body(request)["files"].as_array().unwrap().clone();
            let mode = |file: &Value| {
                let is_large = file["size"].as_u64().unwrap() >= LARGE as u64;
                let mode = if is_large { "lfs" } else { "regular" };
                json!({"path": file["path"], "uploadMode": mode, "shouldIgnore": false, "oid": null})
            };
            Answer::json(&json!({ "files": files.iter().map(mode).collect::<Vec<_>>() }))
        }
        ("POST", Some("commit"), Some(key)) => commit(request, state, endpoint, &key),
        ("GET", Some("revision") | None, Some(key)) => {
            let files = &state.repositories[&key];
            let sibling = |(path, (bytes, is_large)): (&String, &(Vec<u8>, bool))| {
                let lfs = is_large.then(
                    || json!({"sha256": sha256(bytes), "size": bytes.len(), "pointerSize": 130}),
                );
                json!({"rfilename": path, "size": bytes.len(), "blobId": git_blob(bytes), "lfs": lfs})
            };
            let siblings: Vec<Value> = files.iter().map(sibling).collect();
            let (id, sha) = (repository, commit_of(files));
            Answer::json(
                &json!({"_id": "1", "id": id, "modelId": id, "sha": sha, "siblings": siblings, "private": false, "tags": [], "downloads": 0, "likes": 0}),
            )
        }
        ("GET", Some("tree"), Some(key)) => {
            let entry = |(path, (bytes, is_large)): (&String, &(Vec<u8>, bool))| {
                let mut entry = json!({"type": "file", "path": path, "size": bytes.len(), "oid": git_blob(bytes)});
                if *is_large {
                    entry["lfs"] =
                        json!({"oid": sha256(bytes), "size": bytes.len(), "pointerSize": 130});
                }
                entry
            };
            Answer::json(&state.repositories[&key].iter().map(entry).collect())
        }
        _ => Answer::status(404, "no such place"),
    }
}

fn commit(request: &Request, state: &mut State, endpoint: &str, key: &(String, String)) -> Answer {
    let mut files = state.repositories[key].clone();
    for line in request.body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let line: Value = serde_json::from_slice(line).unwrap();
        let value = &line["value"];
        let path = value["path"].as_str().unwrap_or_default().to_owned();
        match line["key"].as_str().unwrap() {
            "header" => assert!(!value["summary"].as_str().unwrap().is_empty()),
            "file" => {
                let bytes = BASE64.decode(value["content"].as_str().unwrap()).unwrap();
                files.insert(path, (bytes, false));
            }
            "lfsFile" => {
                let Some(bytes) = state.objects.get(value["oid"].as_str().unwrap()) else {
                    return Answer::status(400, "an object was not uploaded");
                };
                files.insert(path, (bytes.clone(), true));
            }
            other => panic!("{other}"),
        }
    }
    let oid = commit_of(&files);
    state.repositories.insert(key.clone(), files);
    Answer::json(
        &json!({"success": true, "commitOid": oid, "commitUrl": format!("{endpoint}/{}/commit/{oid}", key.0)}),
    )
}

fn batch(request: &Request, state: &State, endpoint: &str) -> Answer {
    let asked = body(request);
    assert_eq!(asked["operation"], "upload");
    let object = |object: &Value| {
        let (oid, size) =
            (object["oid"].as_str().unwrap(), object["size"].as_u64().unwrap() as usize);
        let href = format!("{endpoint}/stored/{oid}");
        if state.objects.contains_key(oid) {
            return json!({"oid": oid, "size": size});
        }
        let mut header = json!({});
        if size >= 2 * LARGE {
            header["chunk_size"] = json!(PART.to_string());
            for part in 0..size.div_ceil(PART) {
                header[format!("{:05}", part + 1)] = json!(format!("{href}/{}", part + 1));
            }
        }
        let verifier = state.verifies_at.as_deref().unwrap_or(endpoint);
        let verify = format!("{verifier}/stored/{oid}/verify");
        json!({"oid": oid, "size": size, "authenticated": true, "actions": {
            "upload": {"href": href, "header": header}, "verify": {"href": verify, "header": {"X-Verify": oid}}}})
    };
    let objects: Vec<Value> = asked["objects"].as_array().unwrap().iter().map(object).collect();
    let is_multipart =
        objects.iter().any(|one| !one["actions"]["upload"]["header"]["chunk_size"].is_null());
    let transfer = if is_multipart { "multipart" } else { "basic" };
    Answer::json(&json!({ "transfer": transfer, "objects": objects }))
}

fn store(request: &Request, state: &mut State, oid: &str, rest: &[&str]) -> Answer {
    match (request.method.as_str(), rest) {
        ("PUT", []) => {
            assert_eq!(sha256(&request.body), oid);
            state.objects.insert(oid.to_owned(), request.body.clone());
            Answer::json(&json!({}))
        }
        ("PUT", [number]) => {
            let number: usize = number.parse().unwrap();
            assert!(request.body.len() <= PART);
            state.parts.insert((oid.to_owned(), number), request.body.clone());
            Answer::json(&json!({})).header("ETag", format!("\"{}\"", git_blob(&request.body)))
        }
        ("POST", []) => {
            let mut whole = Vec::new();
            for part in body(request)["parts"].as_array().unwrap() {
                let number = part["partNumber"].as_u64().unwrap() as usize;
                let bytes = &state.parts[&(oid.to_owned(), number)];
                let tag = part["etag"].as_str().unwrap().trim_matches('"');
                assert_eq!(tag, git_blob(bytes));
                whole.extend(bytes);
            }
            assert_eq!(sha256(&whole), oid);
            state.objects.insert(oid.to_owned(), whole);
            Answer::json(&json!({}))
        }
        ("POST", ["verify"]) if state.objects.contains_key(oid) => Answer::json(&json!({})),
        _ => Answer::status(404, "no such object"),
    }
}

fn resolve(
    request: &Request,
    state: &mut State,
    (repository, revision): (&str, &str),
    path: &str,
) -> Answer {
    let found = state.repositories.iter().find(|((of, name), files)| {
        of == repository && (*name == revision || commit_of(files) == revision)
    });
    let Some((_, files)) = found else { return Answer::status(404, "Repository not found") };
    let commit = commit_of(files);
    let Some((bytes, is_large)) = files.get(path) else {
        return Answer::status(404, "Entry not found")
            .header("x-error-code", "EntryNotFound".to_owned());
    };
    let tag = if *is_large { sha256(bytes) } else { git_blob(bytes) };
    let mut bytes = bytes.clone();
    if state.damages {
        bytes[0] ^= 1;
    }
    bytes.resize(bytes.len() + state.lengthens, b'x');
    let range = request.headers.get("range").cloned();
    let first = range
        .as_ref()
        .and_then(|range| range.strip_prefix("bytes=")?.split('-').next()?.parse::<usize>().ok());
    let whole = bytes.len();
    state.ranges.extend(range);
    let mut answer = match first {
        Some(first) if first < whole => {
            let range = format!("bytes {first}-{}/{whole}", whole - 1);
            let body = bytes.split_off(first);
            Answer { status: 206, headers: Vec::new(), body, breaks_after: None }
                .header("Content-Range", range)
        }
        _ => Answer { status: 200, headers: Vec::new(), body: bytes, breaks_after: None },
    };
    answer = answer.header("ETag", format!("\"{tag}\"")).header("x-repo-commit", commit);
    if state.breaks_after.is_some_and(|most| most < answer.body.len()) && request.query.is_empty() {
        answer.breaks_after = state.breaks_after.take();
    }
    answer
}
