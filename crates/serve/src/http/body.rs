//! Bodies of requests, within bounds of size and time.

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, TRANSFER_ENCODING};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use crate::error::Refusal;
use crate::settings::Limits;

/// Media type of a request, in lower case and without parameters.
pub(super) fn media_type(request: &Request) -> String {
    let header = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = header.unwrap_or_default().split(';').next().unwrap_or_default();
    kind.trim().to_ascii_lowercase()
}

/// Reads the bytes of a body, at most `most`. If the headers announce more bytes or a compression,
/// the request is refused before any byte of the body is read. A client that waits for `100
/// Continue` is then not told to send the body. No compression is allowed, because a small
/// compressed body may expand to any size.
pub(super) async fn bytes_of(
    request: Request,
    most: usize,
    limits: &Limits,
) -> Result<Vec<u8>, Refusal> {
    let too_large = || Refusal::Large(format!("the body must have at most {most} bytes"));
    if is_encoded(request.headers()) {
        return Err(Refusal::MediaType("sent unencoded, without Content-Encoding"));
    }
    if request.body().size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let body = Limited::new(request.into_body(), most).collect();
    match tokio::time::timeout(limits.transfer, body).await {
        Err(_) => Err(Refusal::Slow),
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(Refusal::Malformed(format!("the body cannot be read: {error}"))),
    }
}

/// Whether a body is compressed or otherwise encoded.
fn is_encoded(headers: &HeaderMap) -> bool {
    let has_other = |name, plain: &str| {
        headers.get_all(name).iter().any(|value| {
            value.to_str().map_or(true, |value| {
                value.split(',').any(|one| !one.trim().eq_ignore_ascii_case(plain))
            })
        })
    };
    has_other(CONTENT_ENCODING, "identity") || has_other(TRANSFER_ENCODING, "chunked")
}

/// Parses the JSON of a body.
///
/// # Errors
/// When the body is not JSON of the type `T`.
pub(crate) async fn json_of<T: DeserializeOwned>(
    request: Request,
    limits: &Limits,
) -> Result<T, Refusal> {
    // This check also protects against pages of other sites: a browser sends this media type for
    // them only after the server has permitted it (CORS preflight).
    if media_type(&request) != "application/json" {
        return Err(Refusal::MediaType("application/json"));
    }
    let bytes = bytes_of(request, limits.body_bytes, limits).await?;
    parse(&bytes)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes).map_err(|error| Refusal::Malformed(format!("JSON: {error}")))
}

/// Parses a body as JSON of the type `T`, or as a form of the type `F`.
///
/// # Errors
/// When the body is neither, or does not have the fields of its type.
pub(crate) async fn form_or_json_of<T: DeserializeOwned, F: DeserializeOwned + Into<T>>(
    request: Request,
    limits: &Limits,
) -> Result<T, Refusal> {
    let is_form = match media_type(&request).as_str() {
        "application/json" => false,
        "application/x-www-form-urlencoded" => true,
        _ => {
            return Err(Refusal::MediaType(
                "application/json or application/x-www-form-urlencoded",
            ));
        }
    };
    let bytes = bytes_of(request, limits.body_bytes, limits).await?;
    if !is_form {
        return parse(&bytes);
    }
    require_utf8(&bytes)?;
    let form = serde_urlencoded::from_bytes::<F>(&bytes);
    form.map(Into::into).map_err(|error| Refusal::Malformed(format!("the form: {error}")))
}

/// Refuses a form with bytes that are not UTF-8; the library `serde_urlencoded` would replace such
/// bytes by U+FFFD.
///
/// # Errors
/// [`Refusal::Malformed`] if a field is not UTF-8. The error names the field.
fn require_utf8(form: &[u8]) -> Result<(), Refusal> {
    for field in form.split(|&byte| byte == b'&') {
        let (mut decoded, mut rest) = (Vec::with_capacity(field.len()), field);
        while let [first, after @ ..] = rest {
            let hex = after.get(..2).filter(|_| *first == b'%');
            let value = hex
                .and_then(|hex| std::str::from_utf8(hex).ok())
                .and_then(|hex| u8::from_str_radix(hex, 16).ok());
            decoded.push(value.unwrap_or(*first));
            rest = if value.is_some() { &after[2..] } else { after };
        }
        if std::str::from_utf8(&decoded).is_err() {
            let name = field.split(|&byte| byte == b'=').next().unwrap_or_default();
            let name = String::from_utf8_lossy(name);
            return Err(Refusal::Malformed(format!("the form: {name:?} is not UTF-8")));
        }
    }
    Ok(())
}

/// Reads a body that is a picture, as PNG or JPEG.
///
/// # Errors
/// When the media type is neither PNG nor JPEG, or the body is too large.
pub(crate) async fn file_of(request: Request, limits: &Limits) -> Result<Vec<u8>, Refusal> {
    if !matches!(media_type(&request).as_str(), "image/png" | "image/jpeg") {
        return Err(Refusal::MediaType("image/png or image/jpeg"));
    }
    bytes_of(request, limits.image_bytes, limits).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_utf8() {
        for good in ["", "q=a+b&source=en", "q=%E6%88%91%e7%88%b1", "q=100%&x=%zz", "q=我"] {
            assert!(require_utf8(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in [&b"source=en&q=%ff"[..], b"q=\xff", b"q=%E6%88", b"q=%E6&b=%88%91"] {
            assert!(require_utf8(bad).is_err(), "{bad:?}");
        }
    }
}
