//! Lines and their ends, in files and in complete texts.
//!
//! | | ends a line | is text |
//! |---|---|---|
//! | [`LineReader`]: files and streams, plain or compressed | `\n`, `\r\n` | a lone `\r` |
//! | [`split_lines`]: requests, forms, prompts | `\n`, `\r\n`, a lone `\r` | |
//!
//! Lines of files are identified by their numbers. If a lone `\r` ended a line, as in some
//! libraries, the two sides of a parallel corpus could be misaligned without an error, and the
//! numbers would differ from those of `wc`, `paste` and sacreBLEU. A text that somebody types or
//! sends has no line numbers, and in such a text `\r` is a line break, as in HTML and Markdown. In
//! files and in complete texts, U+2028, U+2029, U+0085, `\x0b` and `\x0c` do not end a line, and a
//! byte-order mark before the first line is dropped.

use std::io::{BufRead, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::file_names::{is_archive, is_compressed};
use crate::text::archive::open_only;
use crate::text::compression::{Method, Stream, open_file};
use crate::text::encoding::without_mark;
use crate::{Error, Result};

/// Largest number of bytes of a line, without its line end. Without this limit, a line without an
/// end could fill the memory, and even a small compressed file can contain such a line.
pub(crate) const LONGEST_LINE: u64 = 1 << 26;

/// Opens the file at `path` for reading. It is decompressed while it is read if its name ends in
/// `.gz`, `.zst`, `.xz`, `.bz2` or `.zip`.
///
/// # Errors
///
/// If the file is missing or cannot be opened.
pub fn open_stream(path: &Path) -> Result<Box<dyn BufRead + Send>> {
    open_counted(path).map(|(stream, _)| stream)
}

/// Opens a text like [`open_stream`], and skips its byte-order mark.
///
/// # Errors
///
/// Errors of [`open_stream`], and if the mark belongs to another encoding than UTF-8.
pub fn open_text(path: &Path) -> Result<Box<dyn BufRead + Send>> {
    let mut stream = open_stream(path)?;
    let mut begin = Vec::new();
    stream.by_ref().take(4).read_to_end(&mut begin).map_err(|error| Error::io(path, error))?;
    let begin = without_mark(&begin, path)?.to_vec();
    Ok(Box::new(Cursor::new(begin).chain(stream)))
}

/// Opens a file like [`open_stream`], with a counter of the bytes that have been read from the file
/// on disk.
pub(crate) fn open_counted(path: &Path) -> Result<Stream> {
    if is_archive(path) {
        return open_only(path);
    }
    let method = Method::by_ending(path.extension().and_then(|extension| extension.to_str()));
    method.decode(open_file(path)?).map_err(|source| Error::io(path, source))
}

/// Largest number of decompressed bytes that [`text_size`] reads.
const MEASURED: u64 = 1 << 26;

/// Returns the number of bytes of the file at `path` after decompression. If a compressed file has
/// more than 64 MiB, the number is estimated from the compression of the first 64 MiB.
///
/// # Errors
///
/// Errors of [`open_stream`], and if the file cannot be decompressed.
pub fn text_size(path: &Path) -> Result<u64> {
    measured_size(path, MEASURED)
}

/// Returns the size like [`text_size`], from the first `most` decompressed bytes.
fn measured_size(path: &Path, most: u64) -> Result<u64> {
    let io = |error| Error::io(path, error);
    let (stream, count) = open_counted(path)?;
    let on_disk = std::fs::metadata(path).map_err(io)?.len();
    if !is_compressed(path) {
        return Ok(on_disk);
    }
    let read = std::io::copy(&mut stream.take(most), &mut std::io::sink()).map_err(io)?;
    let compressed = count.load(Ordering::Relaxed).max(1);
    match read < most {
        true => Ok(read),
        false => Ok((read as f64 * on_disk.max(compressed) as f64 / compressed as f64) as u64),
    }
}

/// Splits a complete text into lines, without line ends. There is one more line than there are line
/// ends, so the last line is empty if the text ends with a line end.
///
/// ```
/// use taper_data::split_lines;
///
/// assert_eq!(split_lines("one\r\ntwo\rthree\n"), ["one", "two", "three", ""]);
/// ```
pub fn split_lines(text: &str) -> Vec<&str> {
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = Vec::new();
    while let Some(at) = rest.find(['\n', '\r']) {
        lines.push(&rest[..at]);
        let end = if rest[at..].starts_with("\r\n") { 2 } else { 1 };
        rest = &rest[at + end..];
    }
    lines.push(rest);
    lines
}

/// Replaces each line end of a complete text by `\n`.
pub fn with_newlines(text: &str) -> String {
    split_lines(text).join("\n")
}

/// Longest line end of a file.
const LINE_END: &[u8] = b"\r\n";

/// Returns a line of a file without its line end, if it has one.
fn without_end(line: &[u8]) -> &[u8] {
    let bare = line.strip_suffix(LINE_END).or_else(|| line.strip_suffix(b"\n"));
    bare.unwrap_or(line)
}

/// Reads a stream or a file line by line. A file is decompressed if [`open_stream`] would do so.
pub struct LineReader {
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    /// Number of bytes of the file that have been read.
    count: Arc<AtomicU64>,
    buffer: Vec<u8>,
    line: u64,
}

impl LineReader {
    /// Opens `path`.
    ///
    /// # Errors
    ///
    /// If the file is missing or cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let (reader, count) = open_counted(path)?;
        Ok(Self::counted(path, reader, count))
    }

    /// Reads `reader`, a stream of the file at `path`. Errors name `path`. `count` is the number of
    /// bytes of the file that have been read.
    pub(crate) fn counted(
        path: &Path,
        reader: Box<dyn BufRead + Send>,
        count: Arc<AtomicU64>,
    ) -> Self {
        Self { path: path.to_owned(), reader, count, buffer: Vec::new(), line: 0 }
    }

    /// Reads a stream without a path, which errors call `name`.
    pub fn new(stream: impl BufRead + Send + 'static, name: &str) -> Self {
        let (path, reader, count) = (name.into(), Box::new(stream), Arc::default());
        Self { path, reader, count, buffer: Vec::new(), line: 0 }
    }

    /// Path of the file, or name of the stream.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of lines that have been read so far. This is also the number of the last of these
    /// lines.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Next line without its line end; `None` after the last line. A byte-order mark before the
    /// first line is dropped.
    ///
    /// # Errors
    ///
    /// If the line is not UTF-8 or longer than 64 MiB, the first line begins with the mark of
    /// another encoding, or the file cannot be read or decompressed.
    pub fn next_line(&mut self) -> Result<Option<String>> {
        if !self.fill()? {
            return Ok(None);
        }
        let mut bytes = without_end(&self.buffer);
        if self.line == 1 {
            bytes = without_mark(bytes, &self.path)?;
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err(Error::not_text(&self.path, self.line)),
        }
    }

    /// Number of bytes of the file on disk that have been read so far; 0 for a stream.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Skips a line without examining it. Returns `false` if no line is left.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or decompressed, or the line is longer than 64 MiB.
    pub(crate) fn skip_line(&mut self) -> Result<bool> {
        self.fill()
    }

    /// Counts the remaining lines, without examining them, and returns the total number of lines.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or decompressed, or a line is longer than 64 MiB.
    pub fn count_rest(&mut self) -> Result<u64> {
        while self.fill()? {}
        Ok(self.line)
    }

    /// Reads one line into the buffer. Returns `false` at the end of the file.
    fn fill(&mut self) -> Result<bool> {
        self.buffer.clear();
        let mut limited = self.reader.by_ref().take(LONGEST_LINE + LINE_END.len() as u64);
        let read = limited
            .read_until(b'\n', &mut self.buffer)
            .map_err(|source| Error::io(&self.path, source))?;
        self.line += u64::from(read > 0);
        if without_end(&self.buffer).len() as u64 > LONGEST_LINE {
            return Err(Error::Record {
                path: self.path.clone(),
                unit: "line",
                line: self.line,
                message: format!(
                    "is longer than {LONGEST_LINE} bytes; is this a text file with one sentence a line?"
                ),
            });
        }
        Ok(read > 0)
    }
}

impl Iterator for LineReader {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_line().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_newline_ends_a_line_and_a_mark_before_the_first_goes() {
        let lines = LineReader::new(
            "\u{feff}a\u{2028}b\r\n\n\x0bc\u{85}\n\u{feff}d".as_bytes(),
            "a stream",
        );
        let lines: Vec<String> = lines.map(|line| line.expect("UTF-8")).collect();
        assert_eq!(lines, ["a\u{2028}b", "", "\x0bc\u{85}", "\u{feff}d"]);
    }

    #[test]
    fn the_size_of_a_compressed_text_is_that_of_its_content() {
        let folder = tempfile::tempdir().expect("folder");
        let size = |name: &str, lines: u64| {
            let path = folder.path().join(name);
            let file = std::fs::File::create(&path).expect("created");
            let mut out: Box<dyn Write> = match name.ends_with("gz") {
                true => Box::new(flate2::write::GzEncoder::new(file, Default::default())),
                false => Box::new(file),
            };
            for number in 0..lines {
                let number = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 4;
                writeln!(out, "{number:015x}").expect("written");
            }
            drop(out);
            measured_size(&path, 1 << 22).expect("measured")
        };
        assert_eq!(size("text", 1000), 16_000);
        assert_eq!(size("text.gz", 1000), 16_000);
        let (lines, bytes) = (9 << 16, 9 << 20);
        let estimated = size("long.gz", lines);
        assert!(estimated.abs_diff(bytes) < bytes / 5, "{estimated} instead of {bytes}");
        assert!(text_size(&folder.path().join("none.gz")).is_err());
    }

    #[test]
    fn a_text_is_cut_at_every_kind_of_line_end() {
        assert_eq!(split_lines(""), [""]);
        assert_eq!(split_lines("\u{feff}a\r\n\r\nb"), ["a", "", "b"]);
        assert_eq!(split_lines("a\n\rb\r\r\n"), ["a", "", "b", "", ""]);
        let text = "a\u{2028}b\u{2029}c\u{85}d\x0be\x0cf";
        assert_eq!(split_lines(text), [text]);
        assert_eq!(with_newlines("a\rb\r\n"), "a\nb\n");
    }

    #[test]
    fn faults_of_a_stream_name_it_and_the_line() {
        let mut lines = LineReader::new(&b"fine\n\xff\n"[..], "a stream");
        lines.next_line().expect("UTF-8");
        let error = lines.next_line().expect_err("not UTF-8");
        assert!(error.to_string().starts_with("a stream, line 2: not valid UTF-8"), "{error}");
        let endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let error = LineReader::new(endless, "a stream").next_line().expect_err("too long");
        assert!(
            error.to_string().starts_with("a stream, line 1: is longer than 67108864 bytes"),
            "{error}"
        );
    }

    #[test]
    fn the_limit_of_a_line_does_not_count_its_end() {
        let count = |length: u64, end: &'static [u8]| {
            let text = std::io::repeat(b'x').take(length).chain(end);
            LineReader::new(std::io::BufReader::new(text), "a stream").count_rest()
        };
        for end in [&b""[..], b"\r\n"] {
            assert_eq!(count(LONGEST_LINE, end).expect("not too long"), 1);
        }
        count(LONGEST_LINE + 1, b"\n").expect_err("too long");
    }
}
