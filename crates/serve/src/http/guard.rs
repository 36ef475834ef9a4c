//! Checks of every request (host name, sender, key), headers of every answer, and counters.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::Client;
use super::origin::{Sender, allow, is_preflight, preflight, sender};
use super::respond::{openai_refusal, secure};
use crate::app::App;
use crate::error::Refusal;
use crate::event::{ServeEvent, tell};

/// Paths that need no key: the page, which asks the user for the key, the health of the server, and
/// the description of the API. Clients of LibreTranslate request the last path before they know
/// that there is a key.
const OPEN: [&str; 4] = ["/", "/health", "/openapi.json", "/languages"];
/// Paths of requests that may have the key in their body. Their handlers check the key.
const OWN_CHECK: [&str; 3] = ["/translate", "/detect", "/translate_file"];
/// Prefix of paths that need no key, because they contain a secret.
const SECRET: &str = "/download_file/";

/// Checks a request, passes it on, and records the answer.
pub(crate) async fn guard(
    State(app): State<Arc<App>>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let client = request.extensions().get::<Client>().map(|client| client.0);
    let sender = sender(&app.settings, &request);
    let mut response = match refused(&app, &sender, &request) {
        // A preflight request of a browser carries no key.
        None | Some(Refusal::Key)
            if matches!(sender, Sender::Allowed(_)) && is_preflight(&request) =>
        {
            preflight()
        }
        Some(refusal) if uri.path().starts_with("/v1/") => openai_refusal(&refusal),
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    secure(response.headers_mut());
    if let Sender::Allowed(origin) = sender {
        allow(origin, response.headers_mut());
    }
    let (time, status) = (begun.elapsed(), response.status().as_u16());
    // Unknown paths share one counter. Otherwise clients could create any number of counters.
    app.metrics.answered(route.as_ref().map_or("other", MatchedPath::as_str), status, time);
    let answered = ServeEvent::Answered {
        client,
        method: method.as_str(),
        path: uri.path(),
        status,
        milliseconds: time.as_secs_f64() * 1e3,
    };
    tell(&app.observer, &answered);
    response
}

fn refused(app: &App, sender: &Sender, request: &Request) -> Option<Refusal> {
    if !app.is_own_name(request.headers()) {
        return Some(Refusal::Host);
    }
    if *sender == Sender::Foreign {
        return Some(Refusal::Origin);
    }
    let path = request.uri().path();
    let is_open = OPEN.contains(&path) || OWN_CHECK.contains(&path) || path.starts_with(SECRET);
    (!is_open && !has_key(app, request.headers())).then_some(Refusal::Key)
}

/// Whether the headers contain the server's key; `true` if the server has no key.
fn has_key(app: &App, headers: &HeaderMap) -> bool {
    let Some(_) = &app.settings.api_key else { return true };
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = bearer.and_then(|value| value.strip_prefix("Bearer "));
    key.is_some_and(|key| is_key(app, headers, Some(key)))
}

/// Whether `key` is the server's key. If `key` is `None`, whether the headers contain the server's
/// key. `true` if the server has no key. The time of the comparison does not depend on where two
/// keys differ.
pub(crate) fn is_key(app: &App, headers: &HeaderMap, key: Option<&str>) -> bool {
    let Some(own_key) = &app.settings.api_key else { return true };
    match key {
        Some(key) => bool::from(own_key.as_bytes().ct_eq(key.trim().as_bytes())),
        None => has_key(app, headers),
    }
}

impl App {
    /// Whether the client calls the server by one of the server's own names.
    ///
    /// The owner of another site can make the site's name lead to the loopback address (DNS
    /// rebinding). A page of that site could then read the answers of this server as if they came
    /// from its own site.
    fn is_own_name(&self, headers: &HeaderMap) -> bool {
        if !self.settings.address.ip().is_loopback() {
            return true;
        }
        let host = headers.get(HOST).and_then(|value| value.to_str().ok());
        let authority = host.and_then(|host| host.parse::<Authority>().ok());
        let Some(authority) = authority else { return false };
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            || self.settings.hosts.iter().any(|own| name.eq_ignore_ascii_case(own))
    }
}
