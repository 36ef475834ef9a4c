//! Reading of text files line by line, and printing of lines and messages.

use std::io::{BufReader, Stdout, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use taper_data::LineReader;
use taper_ops::standard_output::was_closed_at_start;
pub(crate) use taper_run::folder::{quoted, visible, visible_json};

/// Reads all lines of a file, plain or compressed, or of standard input if `path` is `-`.
///
/// # Errors
/// When the file is missing, unreadable or not UTF-8.
pub(crate) fn read_lines(path: &Path) -> Result<Vec<String>> {
    let lines = if is_standard_stream(path) { standard_input() } else { LineReader::open(path)? };
    Ok(lines.collect::<Result<_, _>>()?)
}

/// Returns true if `path` is `-`, which means standard input, or standard output for an output.
pub(crate) fn is_standard_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Returns the name of a file in messages.
pub(crate) fn name_of(path: &Path) -> String {
    if is_standard_stream(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Returns a reader of the lines of standard input.
pub(crate) fn standard_input() -> LineReader {
    LineReader::new(BufReader::new(std::io::stdin()), "standard input")
}

/// Prints a line on standard error. An error is ignored, so that the work continues even if nobody
/// reads the line any more, for example because the terminal was closed.
pub(crate) fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "{}", visible_lines(message));
}

/// Escapes a message, so that names of files and folders cannot control the terminal; line breaks
/// are kept.
fn visible_lines(message: &str) -> String {
    message.split('\n').map(visible).collect::<Vec<_>>().join("\n")
}

/// Opens standard output for writing.
///
/// # Errors
/// When the process was started without standard output (`>&-`).
pub(crate) fn standard_output() -> Result<Stdout> {
    ensure!(!was_closed_at_start(), "cannot write to standard output: it is closed");
    Ok(std::io::stdout())
}

/// Prints one line on standard output; if the reader is gone, returns an error of kind `BrokenPipe`
/// instead of panicking.
///
/// # Errors
/// When standard output cannot be written, or is closed.
pub(crate) fn print_line(line: &str) -> Result<()> {
    let mut output = standard_output()?.lock();
    writeln!(output, "{line}").context("cannot write to standard output")
}

/// Prints text on standard output without ending the line, and makes it visible at once.
///
/// # Errors
/// See [`print_line`].
pub(crate) fn print_piece(text: &str) -> Result<()> {
    let mut output = standard_output()?.lock();
    let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    written.context("cannot write to standard output")
}

/// Whether [`report_line`] could not print a line, and has said so.
static REPORTS_LOST: AtomicBool = AtomicBool::new(false);

/// Makes sure that everything printed has reached standard output. Lines of which [`report_line`]
/// has said that they cannot be printed do not count.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn flush() -> Result<()> {
    match std::io::stdout().flush() {
        Err(_) if REPORTS_LOST.load(Ordering::Relaxed) => Ok(()),
        flushed => flushed.context("cannot write to standard output"),
    }
}

/// Prints a line as [`print_line`] does, for work that must go on even if nobody reads the output
/// (`taper train … | head`) or the disk of the output is full. The first line that cannot be
/// printed is replaced by a warning on standard error, and later lines are not printed.
pub(crate) fn report_line(line: &str) {
    if REPORTS_LOST.load(Ordering::Relaxed) {
        return;
    }
    if let Err(error) = print_line(&visible_lines(line)) {
        REPORTS_LOST.store(true, Ordering::Relaxed);
        say(&format!("warning: {error:#}; training goes on, and metrics.jsonl has its record"));
    }
}
