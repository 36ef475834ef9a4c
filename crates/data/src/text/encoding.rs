//! Byte-order marks at the beginning of a text. A mark of UTF-8 is removed. A text with the mark of
//! another encoding is refused.

use std::path::Path;

use crate::files::read_regular;
use crate::{Error, Result};

/// The byte-order mark in UTF-8.
pub(crate) const MARK: &[u8] = "\u{feff}".as_bytes();

/// Marks of other encodings, the longer marks first.
const OTHERS: [(&[u8], &str); 4] = [
    (&[0xFF, 0xFE, 0, 0], "UTF-32"),
    (&[0, 0, 0xFE, 0xFF], "UTF-32"),
    (&[0xFF, 0xFE], "UTF-16"),
    (&[0xFE, 0xFF], "UTF-16"),
];

/// Removes a byte-order mark from `begin`, the first bytes of the text at `path`.
///
/// # Errors
///
/// If the mark belongs to another encoding than UTF-8.
pub(crate) fn without_mark<'a>(begin: &'a [u8], path: &Path) -> Result<&'a [u8]> {
    if let Some((_, encoding)) = OTHERS.iter().find(|(mark, _)| begin.starts_with(mark)) {
        let message = format!(
            "is {encoding} by its byte-order mark, but UTF-8 is expected; convert it, for example \
             with iconv -f {encoding} -t UTF-8"
        );
        return Err(Error::Malformed { path: path.to_owned(), message });
    }
    Ok(begin.strip_prefix(MARK).unwrap_or(begin))
}

/// Decodes the bytes of a text file, without its byte-order mark. Errors name `path`.
///
/// # Errors
///
/// If the text is not UTF-8. The error contains the number of the first invalid line.
pub fn text_of(bytes: &[u8], path: &Path) -> Result<String> {
    let bytes = without_mark(bytes, path)?;
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = &bytes[..error.valid_up_to()];
        let line = 1 + valid.iter().filter(|&&byte| byte == b'\n').count() as u64;
        Error::not_text(path, line)
    })?;
    Ok(text.to_owned())
}

/// Reads a whole text file of at most `most` bytes.
///
/// # Errors
///
/// Errors of [`read_regular`] and [`text_of`].
pub fn read_text(path: &Path, most: u64) -> Result<String> {
    text_of(&read_regular(path, most).map_err(|error| Error::io(path, error))?, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_of_utf_8_is_dropped_and_others_are_refused() {
        let read = |bytes: &[u8]| text_of(bytes, Path::new("file"));
        assert_eq!(read(b"\xef\xbb\xbfa\n").expect("UTF-8"), "a\n");
        assert_eq!(read("a\u{feff}b".as_bytes()).expect("UTF-8"), "a\u{feff}b");
        for (bytes, encoding) in [
            (&b"\xff\xfea\0"[..], "UTF-16"),
            (b"\xfe\xff\0a", "UTF-16"),
            (b"\xff\xfe\0\0a\0\0\0", "UTF-32"),
            (b"\0\0\xfe\xff\0\0\0a", "UTF-32"),
        ] {
            let error = read(bytes).expect_err("refused").to_string();
            assert!(error.starts_with(&format!("file: is {encoding} ")), "{error}");
        }
        let error = read(b"fine\n\xff").expect_err("refused").to_string();
        assert!(error.starts_with("file, line 2: not valid UTF-8"), "{error}");
    }
}
