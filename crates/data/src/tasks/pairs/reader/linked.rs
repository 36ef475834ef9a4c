//! Reads files of word links, which have one line for each pair of a corpus.

use std::path::Path;

use crate::{Error, LineReader, Result, WordLink, check_links, parse_links};

/// Reads the links of one pair after the other.
pub(crate) struct LinkReader {
    lines: LineReader,
    corpus: String,
}

impl LinkReader {
    /// Opens a file of links for the corpus with the name `corpus`.
    ///
    /// # Errors
    ///
    /// If the file is missing or cannot be opened.
    pub(crate) fn open(path: &Path, corpus: String) -> Result<Self> {
        Ok(Self { lines: LineReader::open(path)?, corpus })
    }

    /// Reads the links of the next pair, whose texts are `source` and `target`.
    ///
    /// # Errors
    ///
    /// If there is no line for the pair, or the line contains anything other than links between
    /// words of the pair.
    pub(crate) fn next_links(&mut self, source: &str, target: &str) -> Result<Vec<WordLink>> {
        let Some(line) = self.lines.next_line()? else {
            return Err(self.unequal("fewer"));
        };
        let wrong = |message: String| Error::Record {
            path: self.lines.path().to_owned(),
            unit: "line",
            line: self.lines.line(),
            message,
        };
        let links = parse_links(&line).map_err(wrong)?;
        check_links(&links, source, target).map_err(wrong)?;
        Ok(links)
    }

    /// Skips the links of the next pair.
    ///
    /// # Errors
    ///
    /// If there is no line for the pair.
    pub(crate) fn skip(&mut self) -> Result<()> {
        if self.lines.skip_line()? { Ok(()) } else { Err(self.unequal("fewer")) }
    }

    /// Refuses lines after the last pair.
    ///
    /// # Errors
    ///
    /// If there are lines left, or the file cannot be read.
    pub(crate) fn require_end(&mut self) -> Result<()> {
        match self.lines.next_line()? {
            Some(_) => Err(self.unequal("more")),
            None => Ok(()),
        }
    }

    fn unequal(&self, how: &str) -> Error {
        let message = format!(
            "has {how} lines than the corpus {:?} has pairs; line i has the links of pair i, and \
             is empty if there are none",
            self.corpus
        );
        Error::Malformed { path: self.lines.path().to_owned(), message }
    }
}
