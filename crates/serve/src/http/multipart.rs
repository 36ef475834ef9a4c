//! Forms with files: `multipart/form-data` (RFC 7578).

use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;

use super::body::{bytes_of, media_type};
use crate::error::Refusal;
use crate::settings::Limits;

/// Largest number of parts of a form.
const PARTS: usize = 16;

/// Field of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// Name of the field.
    pub(crate) name: String,
    /// Name of the file; `None` if the field is not a file.
    pub(crate) file: Option<String>,
    /// Content.
    pub(crate) bytes: Vec<u8>,
}

impl Part {
    /// Whether the field is a file, or a text in UTF-8.
    fn is_readable(&self) -> bool {
        self.file.is_some() || std::str::from_utf8(&self.bytes).is_ok()
    }
}

/// Fields of a form. If several fields have the same name, the first one counts.
#[derive(Debug)]
pub(crate) struct Form(Vec<Part>);

impl Form {
    /// Names of the fields.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|part| part.name.as_str())
    }

    /// Returns the text of the field `name`; `None` if there is no such field, or it is a file.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let part = self.0.iter().find(|part| part.name == name && part.file.is_none())?;
        std::str::from_utf8(&part.bytes).ok()
    }

    /// Removes the file in the field `name` from the form, and returns it.
    ///
    /// # Errors
    /// When there is no such field.
    pub(crate) fn take_file(&mut self, name: &str) -> Result<Part, Refusal> {
        let is_it = |part: &Part| part.name == name && part.file.is_some();
        let at = self.0.iter().position(is_it);
        let at = at.ok_or_else(|| Refusal::Malformed(format!("the form has no {name}")))?;
        Ok(self.0.remove(at))
    }
}

/// Reads the fields of a body of at most `most` bytes.
///
/// # Errors
/// When the body has another media type, or is too large or malformed.
pub(crate) async fn multipart_of(
    request: Request,
    most: usize,
    limits: &Limits,
) -> Result<Form, Refusal> {
    if media_type(&request) != "multipart/form-data" {
        return Err(Refusal::MediaType("multipart/form-data"));
    }
    let header = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let boundary = parameter(header.unwrap_or_default(), "boundary");
    let bytes = bytes_of(request, most, limits).await?;
    let parts = boundary.filter(|boundary| !boundary.is_empty()).and_then(|boundary| {
        // Every boundary follows a line break. A line break is added here, because the first
        // boundary may be at the beginning of the body.
        parts(&[b"\r\n", bytes.as_slice()].concat(), &format!("\r\n--{boundary}"))
    });
    let malformed = || Refusal::Malformed("the form is not multipart/form-data".to_owned());
    let form = parts.map(Form).ok_or_else(malformed)?;
    match form.0.iter().find(|part| !part.is_readable()) {
        Some(part) => Err(Refusal::Malformed(format!("the form: {:?} is not UTF-8", part.name))),
        None => Ok(form),
    }
}

/// Returns the parts between boundaries; `None` if the form is malformed.
fn parts(bytes: &[u8], boundary: &str) -> Option<Vec<Part>> {
    let mut rest = after(bytes, boundary.as_bytes())?.1;
    let mut all = Vec::new();
    while !rest.starts_with(b"--") {
        let (padding, of_part) = after(rest, b"\r\n")?;
        if all.len() == PARTS || !padding.iter().all(|byte| b" \t".contains(byte)) {
            return None;
        }
        let (part, behind) = after(of_part, boundary.as_bytes())?;
        // A part without headers has no name, so the form is malformed.
        let (head, content) = after(part, b"\r\n\r\n")?;
        let head = std::str::from_utf8(head).ok()?;
        let disposition = head.split("\r\n").find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("content-disposition").then_some(value.trim())
        })?;
        all.push(Part {
            name: parameter(disposition, "name")?,
            file: parameter(disposition, "filename"),
            bytes: content.to_vec(),
        });
        rest = behind;
    }
    Some(all)
}

/// Returns the bytes before and after the first `mark`; `None` if there is no `mark`.
fn after<'b>(bytes: &'b [u8], mark: &[u8]) -> Option<(&'b [u8], &'b [u8])> {
    let at = bytes.windows(mark.len()).position(|window| window == mark)?;
    Some((&bytes[..at], &bytes[at + mark.len()..]))
}

/// Returns the parameter `name` of a header's value, which may be in quotes; `None` if there is
/// none.
fn parameter(value: &str, name: &str) -> Option<String> {
    let mut rest = value.split_once(';')?.1;
    loop {
        let (key, behind) = rest.split_once('=')?;
        let behind = behind.trim_start();
        let (value, behind) = match behind.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = behind.find(';').unwrap_or(behind.len());
                (behind[..end].trim().to_owned(), &behind[end..])
            }
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = behind.split_once(';')?.1;
    }
}

/// Returns a value in quotes, which begins after the first quote, and the text after it; `None` if
/// there is no last quote.
///
/// Browsers write a quote within a name as `%22` (HTML standard, section 4.10.22.8). Other clients
/// write a backslash before quotes and backslashes (RFC 5322, section 3.2.4). Before other
/// characters a backslash is text, because browsers do not write two for one.
fn unquoted(quoted: &str) -> Option<(String, &str)> {
    let (mut value, mut characters) = (String::new(), quoted.char_indices().peekable());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value.replace("%22", "\""), &quoted[at + 1..])),
            '\\' => {
                let escaped = characters.next_if(|(_, next)| matches!(next, '"' | '\\'));
                value.push(escaped.map_or('\\', |(_, escaped)| escaped));
            }
            _ => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &[u8] =
        b"\r\n--xYz\r\nContent-Disposition: form-data; name=\"source\"\r\n\r\nen\r\n\
        --xYz  \r\ncontent-disposition: form-data; filename=\"a; b%22.txt\"; name=file\r\n\
        Content-Type: text/plain\r\n\r\none\r\n\r\n--xY\n\xff\r\n--xYz--\r\nafter";

    #[test]
    fn fields_and_files_come_as_they_were_sent() {
        let part = |name: &str, file: Option<&str>, bytes: &[u8]| Part {
            name: name.to_owned(),
            file: file.map(str::to_owned),
            bytes: bytes.to_vec(),
        };
        let expected = [
            part("source", None, b"en"),
            part("file", Some("a; b\".txt"), b"one\r\n\r\n--xY\n\xff"),
        ];
        assert_eq!(parts(FORM, "\r\n--xYz").expect("a form"), expected);
        assert_eq!(parts(b"\r\n--xYz--", "\r\n--xYz").expect("a form"), []);
        // A form that is truncated anywhere is malformed.
        let whole = FORM.len() - b"--\r\nafter".len();
        for end in 0..whole {
            assert!(parts(&FORM[..end], "\r\n--xYz").is_none(), "{end}");
        }
        let many = b"\r\n--b\r\nContent-Disposition: form-data; name=a\r\n\r\n".repeat(PARTS + 1);
        assert!(parts(&[&many, b"\r\n--b--".as_slice()].concat(), "\r\n--b").is_none());
    }

    #[test]
    fn the_first_of_several_fields_with_the_same_name_counts() {
        let file = Some("a.txt".to_owned());
        let part = |name: &str, file, text: &str| Part {
            name: name.to_owned(),
            file,
            bytes: text.as_bytes().to_vec(),
        };
        let mut form = Form(vec![
            part("file", file.clone(), "1"),
            part("to", None, "de"),
            part("to", None, "fr"),
            part("file", file, "2"),
        ]);
        assert_eq!(form.take_file("file").expect("a file").bytes, b"1");
        assert_eq!(form.text("to"), Some("de"));
        assert_eq!(form.take_file("file").expect("a file").bytes, b"2");
        assert!(form.take_file("file").is_err());
    }

    #[test]
    fn texts_of_a_form_are_utf8() {
        let part = |file: Option<&str>, bytes: &[u8]| {
            let file = file.map(str::to_owned);
            Part { name: "terms".to_owned(), file, bytes: bytes.to_vec() }
        };
        assert!(part(None, "我".as_bytes()).is_readable());
        assert!(!part(None, b"\xff").is_readable());
        assert!(part(Some("a.txt"), b"\xff").is_readable());
    }

    #[test]
    fn parameters_are_read_with_and_without_quotes() {
        let value = "multipart/form-data; charset=utf-8; boundary=\"a b\"";
        assert_eq!(parameter(value, "boundary").as_deref(), Some("a b"));
        assert_eq!(parameter(value, "Charset").as_deref(), Some("utf-8"));
        assert_eq!(parameter("a; name=\"x", "name"), None);
        let value = r#"form-data; filename="a\"; \\ C:\b.txt"; name="file""#;
        assert_eq!(parameter(value, "filename").as_deref(), Some(r#"a"; \ C:\b.txt"#));
        assert_eq!(parameter(value, "name").as_deref(), Some("file"));
        assert_eq!(parameter(r#"a; name="x\""#, "name"), None);
        assert_eq!(parameter("a; b", "b"), None);
        assert_eq!(parameter("a", "b"), None);
    }
}
