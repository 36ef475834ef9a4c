//! Requests from web pages of other sites: refusal, permission, and the headers that tell a browser
//! about the permission (CORS).
//!
//! A browser lets any page send a form, or a request without special headers, to any address that
//! the reader of the page can reach, including the loopback address. The browser describes the
//! sender in the headers `Sec-Fetch-Site` and `Origin`. A request from a page is refused unless the
//! page belongs to this server or to an allowed origin (`--cors`). If a reader follows a link to
//! the server, this counts as the reader's own request.

use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HOST,
    HeaderValue, ORIGIN, VARY,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;

use super::respond::text;
use crate::settings::ServeSettings;

/// Sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sender {
    /// Page of this server, a reader who has typed an address or followed a link, or a program that
    /// is not a browser.
    Own,
    /// Page of an allowed origin. The value is that of the answer's header
    /// `Access-Control-Allow-Origin`.
    Allowed(HeaderValue),
    /// Page of another site.
    Foreign,
}

/// Determines the sender of a request.
pub(super) fn sender(settings: &ServeSettings, request: &Request) -> Sender {
    let headers = request.headers();
    let origins: Vec<&HeaderValue> = headers.get_all(ORIGIN).iter().collect();
    if let [origin] = origins[..]
        && let Some(allowed) = allowed(settings, origin)
    {
        return Sender::Allowed(allowed);
    }
    let header_text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let sites: Vec<&HeaderValue> = headers.get_all("sec-fetch-site").iter().collect();
    let site = match sites[..] {
        [] => None,
        [site] => Some(site.to_str().unwrap_or("cross-site")),
        // No browser sends several such headers.
        _ => Some("cross-site"),
    };
    let is_foreign = match site {
        // `Origin` is not compared with the server's name here: a proxy may have changed the name.
        Some("same-origin") => false,
        site => {
            let is_link = matches!(*request.method(), Method::GET | Method::HEAD)
                && header_text("sec-fetch-mode") == Some("navigate");
            let is_of_another = site.is_some_and(|site| site != "none") && !is_link;
            is_of_another || origins.iter().any(|origin| !is_own(settings, headers, origin))
        }
    };
    if is_foreign { Sender::Foreign } else { Sender::Own }
}

/// Returns the header value for an allowed origin; `None` if the origin is not allowed.
fn allowed(settings: &ServeSettings, origin: &HeaderValue) -> Option<HeaderValue> {
    if settings.origins.iter().any(|allowed_origin| allowed_origin == "*") {
        return Some(HeaderValue::from_static("*"));
    }
    let sender = without_default_port(origin.to_str().ok()?);
    let is_named =
        |allowed_origin: &String| sender.eq_ignore_ascii_case(without_default_port(allowed_origin));
    settings.origins.iter().any(is_named).then(|| origin.clone())
}

/// Returns an origin without the port if this is the default of its scheme. Browsers leave out such
/// a port.
fn without_default_port(origin: &str) -> &str {
    let scheme = origin.split_once("://").map_or("", |(scheme, _)| scheme);
    let port = match scheme.to_ascii_lowercase().as_str() {
        "https" => ":443",
        "http" => ":80",
        _ => return origin,
    };
    origin.strip_suffix(port).unwrap_or(origin)
}

/// Whether an origin is the server itself: it has the name and port in the request's header `Host`,
/// or one of the names in `settings.hosts`.
fn is_own(settings: &ServeSettings, headers: &HeaderMap, origin: &HeaderValue) -> bool {
    let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
    let Some((scheme, authority)) =
        origin.as_ref().and_then(|origin| Some((origin.scheme_str()?, origin.authority()?)))
    else {
        return false;
    };
    let port = |authority: &Authority| {
        authority.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 })
    };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let is_host = host.and_then(|host| host.parse::<Authority>().ok()).is_some_and(|host| {
        host.host().eq_ignore_ascii_case(authority.host()) && port(&host) == port(authority)
    });
    is_host || settings.hosts.iter().any(|own| authority.host().eq_ignore_ascii_case(own))
}

/// Whether this is a preflight request of a browser (Fetch standard, CORS-preflight request).
pub(super) fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Makes the answer to a preflight request. The answer lists the methods and headers that a page of
/// an allowed origin may send.
pub(super) fn preflight() -> Response {
    let mut response = text(204, "text/plain", "");
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type"),
        (ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Adds the headers with which a browser lets a page of an allowed origin read the answer.
pub(super) fn allow(origin: HeaderValue, headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Retry-After"));
    headers.append(VARY, HeaderValue::from_static("Origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(settings: &ServeSettings, method: &str, headers: &[(&str, &str)]) -> Sender {
        let mut request = axum::http::Request::builder().method(method).uri("/translate");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        sender(settings, &request.body(axum::body::Body::empty()).expect("a request"))
    }

    #[test]
    fn pages_of_other_sites_are_told_from_ones_own() {
        use Sender::{Foreign, Own};
        let mut settings = ServeSettings::new(Vec::new());
        settings.hosts = vec!["own.example".to_owned()];
        let host = ("host", "127.0.0.1:7878");
        let (site, mode, origin) = ("sec-fetch-site", "sec-fetch-mode", "origin");
        for (method, headers, expected) in [
            ("POST", vec![], Own),
            ("POST", vec![(site, "same-origin"), (origin, "http://127.0.0.1:7878")], Own),
            ("POST", vec![(origin, "http://127.0.0.1:7878")], Own),
            ("POST", vec![(origin, "https://own.example")], Own),
            ("POST", vec![(site, "same-origin"), (origin, "https://proxy.example")], Own),
            ("POST", vec![(site, "none")], Own),
            ("GET", vec![(site, "cross-site"), (mode, "navigate")], Own),
            ("POST", vec![(site, "cross-site"), (mode, "navigate")], Foreign),
            ("POST", vec![(site, "same-site")], Foreign),
            ("POST", vec![(site, "anything")], Foreign),
            ("POST", vec![(site, "same-origin"), (site, "cross-site")], Foreign),
            ("GET", vec![(site, "cross-site"), (mode, "no-cors")], Foreign),
            ("POST", vec![(origin, "https://evil.example")], Foreign),
            ("POST", vec![(site, "none"), (origin, "https://evil.example")], Foreign),
            ("POST", vec![(origin, "http://127.0.0.1:8000")], Foreign),
            ("POST", vec![(origin, "https://127.0.0.1:7878.evil.example")], Foreign),
            ("POST", vec![(origin, "null")], Foreign),
            ("POST", vec![(origin, "http://127.0.0.1:7878"), (origin, "https://a.b")], Foreign),
        ] {
            let headers = [&[host], headers.as_slice()].concat();
            assert_eq!(sent(&settings, method, &headers), expected, "{method} {headers:?}");
        }
        // A default port may be written or left out.
        let headers = [("host", "a.example"), (origin, "https://a.example:443")];
        assert_eq!(sent(&settings, "POST", &headers), Own);
        settings.origins = vec!["https://friend.example".to_owned()];
        let sender_for = |origin: &str| {
            sent(&settings, "POST", &[host, (site, "cross-site"), ("origin", origin)])
        };
        let friend = HeaderValue::from_static("https://friend.example");
        assert_eq!(sender_for("https://friend.example"), Sender::Allowed(friend));
        assert_eq!(sender_for("https://friend.example.evil.example"), Foreign);
        // Browsers leave out the default port, which may be written after --cors.
        for (written, sent_origin, is_allowed) in [
            ("https://friend.example:443", "https://friend.example", true),
            ("HTTP://friend.example:80", "http://friend.example", true),
            ("https://friend.example", "https://friend.example:443", true),
            ("https://friend.example:80", "https://friend.example", false),
            ("https://friend.example:4430", "https://friend.example", false),
        ] {
            settings.origins = vec![written.to_owned()];
            let headers = [host, (site, "cross-site"), (origin, sent_origin)];
            let is_friend = matches!(sent(&settings, "POST", &headers), Sender::Allowed(_));
            assert_eq!(is_friend, is_allowed, "{written} {sent_origin}");
        }
        settings.origins = vec!["*".to_owned()];
        let any = sent(&settings, "POST", &[host, (origin, "null")]);
        assert_eq!(any, Sender::Allowed(HeaderValue::from_static("*")));
    }
}
