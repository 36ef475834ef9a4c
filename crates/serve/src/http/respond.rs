//! HTTP answers, and the headers that every answer has to restrict what a browser does with it.

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    RETRY_AFTER, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;

use crate::error::Refusal;

/// Content Security Policy for answers that are not pages: nothing is allowed.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// Makes an answer from its status, media type and body.
pub(crate) fn text(status: u16, media_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Makes an answer in JSON.
pub(crate) fn json(status: u16, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => text(status, "application/json", bytes),
        // Serialization fails only for maps whose keys are not strings, and no answer has such a
        // map.
        Err(error) => text(500, "text/plain; charset=utf-8", error.to_string()),
    }
}

/// Makes an answer with a page and its Content Security Policy.
pub(crate) fn html(page: String, policy: &str) -> Response {
    let mut response = text(200, "text/html; charset=utf-8", page);
    if let Ok(policy) = HeaderValue::from_str(&format!("{policy}; frame-ancestors 'none'")) {
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Adds the headers that every answer has. Headers that are already set are not changed.
pub(super) fn secure(headers: &mut HeaderMap) {
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, NOTHING),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

/// Makes the answer for a refusal in the form of OpenAI's API.
pub(crate) fn openai_refusal(refusal: &Refusal) -> Response {
    let kind = match refusal.status() {
        401 => "authentication_error",
        404 => "not_found_error",
        503 => "overloaded_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    let body = json!({
        "error": { "message": refusal.message(), "type": kind, "param": null, "code": null }
    });
    let mut response = json(refusal.status(), &body);
    refused(refusal, response.headers_mut());
    response
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = json(self.status(), &json!({ "error": self.message() }));
        refused(&self, response.headers_mut());
        response
    }
}

/// Adds the headers that belong to a refusal: when to try again, or that a key is needed.
fn refused(refusal: &Refusal, headers: &mut HeaderMap) {
    match refusal {
        Refusal::Busy(wait) | Refusal::Down(_, wait) => {
            let seconds = wait.as_secs_f64().ceil().clamp(1.0, 60.0) as u64;
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        Refusal::Key => {
            let value = HeaderValue::from_static("Bearer");
            headers.insert(axum::http::header::WWW_AUTHENTICATE, value);
        }
        _ => {}
    }
}
