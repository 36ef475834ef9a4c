//! Text files in and out: one sentence a line.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use taper_data::LineReader;

/// All lines of a file, plain, `.gz` or `.zst`.
///
/// # Errors
/// When the file is missing, unreadable or not UTF-8 (with the line's number).
pub(crate) fn read_lines(path: &Path) -> Result<Vec<String>> {
    let mut reader = LineReader::open(path)?;
    let mut lines = Vec::new();
    while let Some(line) = reader.next_line()? {
        lines.push(line);
    }
    Ok(lines)
}

/// The next line of a stream without its end, or `None` at its end. Only `\n`
/// ends a line; one `\r` before it goes too.
///
/// # Errors
/// When the stream fails or the line, `number` counted from 1, is not UTF-8.
pub(crate) fn next_line(stream: &mut impl BufRead, number: usize) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    if stream.read_until(b'\n', &mut bytes).context("cannot read standard input")? == 0 {
        return Ok(None);
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    match String::from_utf8(bytes) {
        Ok(line) => Ok(Some(line)),
        Err(_) => bail!("standard input:{number}: not valid UTF-8"),
    }
}

/// All lines of standard input.
///
/// # Errors
/// As [`next_line`].
pub(crate) fn read_standard_input() -> Result<Vec<String>> {
    let mut stream = std::io::stdin().lock();
    let mut lines = Vec::new();
    while let Some(line) = next_line(&mut stream, lines.len() + 1)? {
        lines.push(line);
    }
    Ok(lines)
}

/// Prints one line on standard output; a reader that went away is an error of
/// kind `BrokenPipe`, not a panic.
///
/// # Errors
/// When standard output refuses.
pub(crate) fn print_line(line: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").context("cannot write to standard output")
}

/// As [`print_line`], from what must not end because nobody reads along (`taper train … | head`) or the disk that the output goes to
/// is full: the first line that cannot be printed is a warning on standard error, the rest is not printed.
pub(crate) fn report_line(line: &str) {
    static FAILED: AtomicBool = AtomicBool::new(false);
    if FAILED.load(Ordering::Relaxed) {
        return;
    }
    if let Err(error) = print_line(line) {
        FAILED.store(true, Ordering::Relaxed);
        // Standard error may be gone as well.
        let _ = writeln!(std::io::stderr(), "warning: {error:#}; training goes on, and metrics.jsonl has its record");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_newline_ends_a_line() {
        let mut stream = "a\u{2028}b\r\n\n\x0bc\u{85}".as_bytes();
        assert_eq!(next_line(&mut stream, 1).expect("line").as_deref(), Some("a\u{2028}b"));
        assert_eq!(next_line(&mut stream, 2).expect("line").as_deref(), Some(""));
        assert_eq!(next_line(&mut stream, 3).expect("line").as_deref(), Some("\x0bc\u{85}"));
        assert_eq!(next_line(&mut stream, 4).expect("end"), None);
    }

    #[test]
    fn invalid_utf8_names_the_line() {
        let error = next_line(&mut &b"\xff\n"[..], 7).expect_err("invalid");
        assert!(error.to_string().contains(":7:"), "{error}");
    }
}
