//! Connection to a hub: its address, the user's access token, and requests to its API. A request
//! that is not successful is an error.

use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::redirect::Policy;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{HubError, Result};

/// Address of the hub.
const ENDPOINT: &str = "https://huggingface.co";
/// Time limit for a connection, and for a request that transfers no file.
const PATIENCE: Duration = Duration::from_secs(60);
/// Lowest mean rate of a transfer, in bytes per second. A slower transfer is given up.
const SLOWEST: u64 = 10_000;
/// Largest number of bytes of an answer in JSON.
const MOST_BYTES: u64 = 1 << 26;
/// Largest number of bytes that are read of the answer to a failed request.
const MOST_OF_ERROR: u64 = 1 << 16;
/// Largest number of characters of an error's message that are shown.
const MOST_SHOWN: usize = 200;

/// Connection to a hub.
#[derive(Clone)]
pub struct Hub {
    /// Address to which requests are sent. It can contain a user name and a password.
    endpoint: String,
    token: Option<String>,
    client: Client,
}

impl std::fmt::Debug for Hub {
    /// Writes the address. The token and a password in the address are left out.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Hub").field("endpoint", &self.endpoint()).finish_non_exhaustive()
    }
}

impl Hub {
    /// Makes a connection with the settings in the environment variables.
    ///
    /// - The hub's address is the value of `HF_ENDPOINT`, by default huggingface.co.
    /// - The token is the value of `HF_TOKEN`. If this is not set, it is the content of the file
    ///   `HF_TOKEN_PATH`, by default the file `token` in the folder `HF_HOME`. This folder is by
    ///   default `~/.cache/huggingface`. If there is no such file, the connection has no token.
    ///
    /// # Errors
    /// When the file of the token cannot be read.
    pub fn from_environment() -> Result<Self> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let token = match set("HF_TOKEN") {
            Some(token) => Some(token),
            None => token_of_file(set)?,
        };
        Self::new(&endpoint, token)
    }

    /// Makes a connection to the hub at the address `endpoint`.
    ///
    /// # Errors
    /// When this process cannot make connections.
    pub fn new(endpoint: &str, token: Option<String>) -> Result<Self> {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let client = Client::builder()
            .user_agent(concat!("taper/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(PATIENCE)
            .timeout(None)
            .redirect(Policy::limited(10))
            // By default, the client would send the previous address when it follows a redirection.
            // This address can contain a signature that gives access to a file.
            .referer(false)
            .build();
        let client = client.map_err(|error| HubError::Network {
            subject: "connection".to_owned(),
            endpoint: without_credentials(&endpoint),
            message: whole(&error),
        })?;
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        Ok(Self { endpoint, token, client })
    }

    /// Address for messages, without a slash at its end, and without a user name and a password.
    #[must_use]
    pub fn endpoint(&self) -> String {
        without_credentials(&self.endpoint)
    }

    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Makes a request to the path `place` of the hub, with the token if there is one.
    pub(crate) fn request(&self, method: reqwest::Method, place: &str) -> RequestBuilder {
        self.signed(self.client.request(method, format!("{}{place}", self.endpoint)))
    }

    /// Makes a POST request to a complete address that the hub has named. The token is sent only
    /// if the address has the hub's own scheme, host and port.
    pub(crate) fn post_to(&self, address: &str) -> RequestBuilder {
        let request = self.client.post(address);
        match (Url::parse(address), Url::parse(&self.endpoint)) {
            (Ok(address), Ok(hub)) if address.origin() == hub.origin() => self.signed(request),
            _ => request,
        }
    }

    /// Adds the token to a request if there is one.
    fn signed(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(crate) fn get(&self, place: &str) -> RequestBuilder {
        self.request(reqwest::Method::GET, place)
    }

    pub(crate) fn post(&self, place: &str) -> RequestBuilder {
        self.request(reqwest::Method::POST, place)
    }

    /// Sends a request that transfers `bytes` bytes, and waits for the headers of the answer.
    ///
    /// # Errors
    /// When there is no answer, or its status is neither a success nor in `accepted`. `subject`
    /// names the request in the error.
    pub(crate) fn send(
        &self,
        subject: &str,
        request: RequestBuilder,
        bytes: u64,
        accepted: &[u16],
    ) -> Result<Response> {
        let patience = PATIENCE + Duration::from_secs(bytes / SLOWEST);
        let answer = request.timeout(patience).send();
        let answer = answer.map_err(|error| self.unreachable(subject, &error))?;
        let status = answer.status().as_u16();
        if answer.status().is_success() || accepted.contains(&status) {
            return Ok(answer);
        }
        let said = answer.headers().get("x-error-message").and_then(|said| said.to_str().ok());
        let message = match said {
            Some(said) => said.to_owned(),
            None => message_of(&start_of(answer, MOST_OF_ERROR).unwrap_or_default()),
        };
        let message: String = message.chars().take(MOST_SHOWN).collect();
        Err(HubError::status(subject, status, &message, self.has_token()))
    }

    /// Sends a request and reads the JSON of its answer.
    ///
    /// # Errors
    /// Errors of [`Self::send`], and an error if the answer is larger than 64 MiB, or is not JSON of
    /// the type `T`.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        subject: &str,
        request: RequestBuilder,
        bytes: u64,
    ) -> Result<T> {
        let answer = self.send(subject, request, bytes, &[])?;
        let refused = |message: String| HubError::Answer { subject: subject.to_owned(), message };
        let body = start_of(answer, MOST_BYTES + 1).map_err(|error| HubError::Network {
            subject: subject.to_owned(),
            endpoint: self.endpoint(),
            message: error.to_string(),
        })?;
        if body.len() as u64 > MOST_BYTES {
            return Err(refused(format!("larger than {MOST_BYTES} bytes")));
        }
        serde_json::from_slice(&body).map_err(|error| refused(error.to_string()))
    }

    pub(crate) fn unreachable(&self, subject: &str, error: &reqwest::Error) -> HubError {
        HubError::Network {
            subject: subject.to_owned(),
            endpoint: self.endpoint(),
            message: whole(error),
        }
    }
}

/// Returns an address without its secret parts: the user name and the password before the host, and
/// everything after the path.
fn without_credentials(address: &str) -> String {
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), address),
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest.split_at(rest.find(['/', '\\']).unwrap_or(rest.len()));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}{host}{path}")
}

/// Returns the message of the innermost cause of an error. Outer messages contain the address,
/// which must not be shown: the address of a large file can contain a signature that gives access
/// to it.
fn whole(error: &reqwest::Error) -> String {
    let mut causes = std::iter::successors(std::error::Error::source(error), |one| one.source());
    let last = causes.by_ref().last().map(ToString::to_string);
    last.unwrap_or_else(|| if error.is_timeout() { "too slow" } else { "it failed" }.to_owned())
}

/// Reads the first `most` bytes of a body, or fewer if it is shorter.
fn start_of(body: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    body.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the message in the answer to a failed request; empty if there is none.
fn message_of(answer: &[u8]) -> String {
    let read: Value = serde_json::from_slice(answer).unwrap_or_default();
    let said = read["error"].as_str().or(read["message"].as_str()).unwrap_or_default();
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reads the token from the file that Hugging Face's own programs write; `None` if there is no such
/// file. `set` returns the value of an environment variable.
fn token_of_file(set: impl Fn(&str) -> Option<String>) -> Result<Option<String>> {
    let home = || {
        let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")));
        set("HF_HOME").map(PathBuf::from).or_else(|| Some(cache?.join("huggingface")))
    };
    let path = set("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(home()?.join("token")));
    let Some(path) = path else { return Ok(None) };
    match std::fs::read_to_string(&path) {
        Ok(token) => Ok(Some(token)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(HubError::file(&path, format!("cannot read the token: {error}"))),
    }
}

/// Splits the name of a repository into owner and name.
///
/// # Errors
/// When `repository` is not `owner/name`.
pub(crate) fn owner_and_name(repository: &str) -> Result<(&str, &str)> {
    let is_name = |name: &str| {
        let is_allowed = |one: char| one.is_ascii_alphanumeric() || "-_.".contains(one);
        !name.is_empty() && !name.starts_with('.') && name.chars().all(is_allowed)
    };
    match repository.split_once('/') {
        Some((owner, name)) if is_name(owner) && is_name(name) => Ok((owner, name)),
        _ => Err(HubError::Repository(repository.to_owned())),
    }
}

/// Escapes a text for an address. Letters, digits and `-_.~` are kept. If `is_whole` is true,
/// `text` is a single part of a path, so slashes are escaped. If it is false, `text` is a path with
/// several parts, so slashes are kept.
pub(crate) fn escaped(text: &str, is_whole: bool) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        match is_plain || (byte == b'/' && !is_whole) {
            true => escaped.push(byte.into()),
            false => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_an_address_is_never_shown() {
        for (address, shown) in [
            ("https://hub.example", "https://hub.example"),
            ("http://me:secret@hub.example:8080/hf", "http://hub.example:8080/hf"),
            ("https://me:sec@ret@hub.example/a@b?token=secret", "https://hub.example/a@b"),
            ("me:secret@hub.example", "hub.example"),
            ("https://secret@hub.example#secret", "https://hub.example"),
        ] {
            assert_eq!(without_credentials(address), shown);
            let hub = Hub::new(address, Some("secret".to_owned())).expect("a connection");
            assert_eq!(hub.endpoint(), shown);
            assert!(!format!("{hub:?}").contains("secret"), "{hub:?}");
        }
        // Nothing listens at this port.
        let hub = Hub::new("http://me:secret@127.0.0.1:9", None).expect("a connection");
        let error = hub.send("file", hub.get("/x"), 0, &[]).expect_err("no answer").to_string();
        assert!(error.contains("http://127.0.0.1:9 ") && !error.contains("secret"), "{error}");
    }
}
