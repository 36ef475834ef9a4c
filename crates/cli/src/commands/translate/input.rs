//! Reads the text to translate, one window of consecutive lines at a time. If there is a file of
//! prefixes, also reads the prefix of each line: the beginning that its translation must have.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use sha2::{Digest, Sha256};
use taper_data::{LineReader, hexadecimal};

use super::is_stream;
use crate::arguments::TextArguments;
use crate::text::{is_standard_stream, standard_input};

/// Default number of lines of a window, which are translated together before they are written. A
/// window is divided into dozens of batches, each with lines of similar lengths. So it costs little
/// that the last batch is not full. A window takes seconds or minutes; an interruption loses no
/// more work than one window.
const WINDOW: usize = 4096;

/// Number of lines of the first window. Each following window has twice as many, up to [`WINDOW`],
/// so that the first translations are soon visible and safe.
const FIRST_WINDOW: usize = 128;

/// Number of bytes after which a window ends early. It limits memory, because lines may be long and
/// a whole window is in memory.
const WINDOW_BYTES: usize = 1 << 24;

/// Consecutive lines of the text.
#[derive(Debug)]
pub(super) struct Window {
    /// Number of the first line, counted from 1.
    pub(super) first: usize,
    /// Lines, at least one.
    pub(super) lines: Vec<String>,
    /// Prefix of the translation of each line; empty if there is no file of prefixes.
    pub(super) prefixes: Vec<String>,
}

/// The text, together with the file of prefixes.
pub(super) struct Input {
    text: Source,
    prefixes: Option<Source>,
    /// Largest number of lines of the next window.
    most: usize,
    /// Largest number of lines of any window.
    limit: usize,
}

impl Input {
    /// Opens the files that the arguments name and checks them, so that errors in them are found
    /// before the model is loaded.
    ///
    /// # Errors
    /// When a file cannot be read, or the text and the file of prefixes have different numbers of
    /// lines.
    pub(super) fn open(arguments: &TextArguments) -> Result<Self> {
        let text = match &arguments.input {
            Some(path) if !is_standard_stream(path) => Source::open(path)?,
            _ => Source::stream(standard_input()),
        };
        if arguments.prefix.as_deref().is_some_and(is_standard_stream) {
            bail!("--prefix -: standard input is for the text; name a file");
        }
        let prefixes = arguments.prefix.as_deref().map(Source::open).transpose()?;
        if let Some(prefixes) = &prefixes
            && let (Some(prefix_lines), Some(wanted)) = (prefixes.total, text.total)
            && prefix_lines != wanted
        {
            let (prefixes, text) = (prefixes.lines.path().display(), text.lines.path().display());
            bail!(
                "{prefixes} has {prefix_lines} lines, but {text} has {wanted}; give each line its \
                 prefix, or an empty line"
            );
        }
        let (most, limit) =
            arguments.window.map_or((FIRST_WINDOW, WINDOW), |lines| (lines.get(), lines.get()));
        Ok(Self { text, prefixes, most, limit })
    }

    /// Skips `count` lines that are translated already.
    ///
    /// # Errors
    /// When a line cannot be read, or there are fewer lines.
    pub(super) fn skip(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let line = self.text.next_line()?;
            let prefix = match &mut self.prefixes {
                Some(prefixes) => prefixes.next_line()?,
                None => Some(String::new()),
            };
            if line.is_none() || prefix.is_none() {
                bail!("--continue: {count} lines are translated, but the text has fewer");
            }
        }
        Ok(())
    }

    /// Returns the SHA-256 of the text and, if there are prefixes, that of the prefixes. The hash
    /// of a stream is an empty string.
    pub(super) fn hashes(&self) -> Vec<String> {
        let sources = [Some(&self.text), self.prefixes.as_ref()];
        sources.into_iter().flatten().map(|source| source.hash.clone()).collect()
    }

    /// Returns the number of lines to translate, if known.
    pub(super) fn total(&self) -> Option<u64> {
        self.text.total
    }

    /// Returns the next lines; `None` after the last.
    ///
    /// # Errors
    /// When a line is not UTF-8, the number of prefixes differs from the number of lines, or, after
    /// the last line, the text or the prefixes are not those that were opened.
    pub(super) fn next_window(&mut self) -> Result<Option<Window>> {
        let text = &mut self.text;
        let first = text.lines.line() as usize + 1;
        let mut window = Window { first, lines: Vec::new(), prefixes: Vec::new() };
        let mut bytes = 0;
        while window.lines.len() < self.most && bytes < WINDOW_BYTES {
            match (text.next_line()?, &mut self.prefixes) {
                (Some(line), Some(prefixes)) => {
                    let Some(prefix) = prefixes.next_line()? else {
                        return Err(uneven(&prefixes.lines, &text.lines));
                    };
                    bytes += line.len() + prefix.len();
                    window.lines.push(line);
                    window.prefixes.push(prefix);
                }
                (Some(line), None) => {
                    bytes += line.len();
                    window.lines.push(line);
                }
                (None, Some(prefixes)) => {
                    if prefixes.next_line()?.is_some() {
                        return Err(uneven(&text.lines, &prefixes.lines));
                    }
                    break;
                }
                (None, None) => break,
            }
        }
        self.most = self.limit.min(self.most.saturating_mul(2));
        if !window.lines.is_empty() {
            return Ok(Some(window));
        }
        [Some(&self.text), self.prefixes.as_ref()]
            .into_iter()
            .flatten()
            .try_for_each(Source::unchanged)?;
        Ok(None)
    }
}

/// Returns the error for two files if `ended` ends before `longer`.
fn uneven(ended: &LineReader, longer: &LineReader) -> anyhow::Error {
    let (shorter, end, path, line) =
        (ended.path().display(), ended.line(), longer.path().display(), longer.line());
    anyhow!(
        "{shorter} ends after line {end}, but {path} has a line {line}; give each line its \
         prefix, or an empty line"
    )
}

/// Lines of a file or of a stream.
struct Source {
    lines: LineReader,
    /// Number of the lines; `None` for a stream.
    total: Option<u64>,
    /// SHA-256 of the lines; empty for a stream.
    hash: String,
    /// SHA-256 of the lines that have been read; `None` for a stream.
    read: Option<Sha256>,
}

impl Source {
    fn open(path: &Path) -> Result<Self> {
        // A pipe can be read only once, so errors in it are found only while it is translated.
        if is_stream(path) {
            return Ok(Self::stream(LineReader::open(path)?));
        }
        let (total, hash) = check(path)?;
        let (lines, read) = (LineReader::open(path)?, Some(Sha256::new()));
        Ok(Self { lines, total: Some(total), hash, read })
    }

    fn stream(lines: LineReader) -> Self {
        Self { lines, total: None, hash: String::new(), read: None }
    }

    /// Returns the next line; `None` after the last.
    fn next_line(&mut self) -> Result<Option<String>> {
        let line = self.lines.next_line()?;
        if let (Some(hash), Some(line)) = (&mut self.read, &line) {
            add_line(hash, line);
        }
        Ok(line)
    }

    /// Checks after the last line that the lines are those that `open` read.
    fn unchanged(&self) -> Result<()> {
        let (path, lines_now) = (self.lines.path().display(), self.lines.line());
        let change = match (self.total, &self.read) {
            (Some(counted), _) if counted != lines_now => {
                format!("had {counted} lines and now has {lines_now}: it changed")
            }
            (_, Some(read)) if hexadecimal(&read.clone().finalize()) != self.hash => {
                "changed".to_owned()
            }
            _ => return Ok(()),
        };
        bail!("{path} {change} while it was read; repeat the command once it is complete")
    }
}

/// Reads a whole file to find errors in it; returns the number of its lines and their SHA-256.
fn check(path: &Path) -> Result<(u64, String)> {
    let (mut lines, mut hash) = (LineReader::open(path)?, Sha256::new());
    while let Some(line) = lines.next_line()? {
        add_line(&mut hash, &line);
    }
    Ok((lines.line(), hexadecimal(&hash.finalize())))
}

fn add_line(hash: &mut Sha256, line: &str) {
    hash.update(line.as_bytes());
    hash.update(b"\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changes_while_it_is_read_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let [text, prefixes] = ["text", "prefixes"].map(|name| folder.path().join(name));
        let reads = |path: &Path, changed: &str| {
            std::fs::write(&text, "one\ntwo\n").expect("written");
            std::fs::write(&prefixes, "\nzwei\n").expect("written");
            let (text, prefixes) = (Source::open(&text), Source::open(&prefixes));
            let mut input = Input {
                text: text.expect("a text"),
                prefixes: Some(prefixes.expect("prefixes")),
                most: 1,
                limit: 2,
            };
            // Nothing has been read since the file was checked.
            std::fs::write(path, changed).expect("written");
            input.skip(1).expect("a line");
            while input.next_window()?.is_some() {}
            Ok::<_, anyhow::Error>(())
        };
        reads(&text, "one\ntwo\n").expect("unchanged");
        for (path, changed) in [(&text, "one\nsix\n"), (&prefixes, "\ndrei\n")] {
            let error = reads(path, changed).expect_err("changed").to_string();
            let expected = format!("{} changed while it was read; repeat", path.display());
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
