//! Reads the records of a file of comma-separated values (RFC 4180). A field in quotes may contain
//! commas, quotes and line breaks.

use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Columns, Wanted};
use crate::text::lines::{LONGEST_LINE, open_text};
use crate::{Error, Result};

/// Reads records from a CSV file.
pub(crate) struct CsvRecords {
    path: PathBuf,
    reader: csv::Reader<Bounded>,
    read_since: Arc<AtomicU64>,
    columns: Columns,
    /// The first row, if it is a record (and not a header) that has not been returned yet.
    first: Option<csv::StringRecord>,
    row: csv::StringRecord,
}

impl CsvRecords {
    /// Opens the file and looks at its first row.
    pub(super) fn open(path: &Path, wanted: &Wanted<'_>) -> Result<Self> {
        let read_since = Arc::new(AtomicU64::new(0));
        let bounded = Bounded { inner: open_text(path)?, read_since: Arc::clone(&read_since) };
        let mut reader =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bounded);
        let mut first = csv::StringRecord::new();
        let has_record = reader.read_record(&mut first).map_err(|error| fault(path, error))?;
        let cells: Vec<&str> = first.iter().collect();
        let (columns, is_header) = (wanted.columns)(&cells)?;
        Ok(Self {
            path: path.to_owned(),
            reader,
            read_since,
            columns,
            first: (has_record && !is_header).then_some(first),
            row: csv::StringRecord::new(),
        })
    }

    /// Texts of the wanted columns of the next row; `None` after the last row.
    pub(super) fn next_record(&mut self) -> Result<Option<Vec<String>>> {
        match self.first.take() {
            Some(first) => self.row = first,
            None => {
                self.read_since.store(0, Ordering::Relaxed);
                let read = self.reader.read_record(&mut self.row);
                if !read.map_err(|error| fault(&self.path, error))? {
                    return Ok(None);
                }
            }
        }
        let cells: Vec<&str> = self.row.iter().collect();
        self.columns.texts_in(&cells, "comma").map(Some).map_err(|message| Error::Record {
            path: self.path.clone(),
            unit: "line",
            line: self.row.position().map_or(1, csv::Position::line),
            message,
        })
    }
}

/// Adds the file and the line to an error of the `csv` library.
fn fault(path: &Path, error: csv::Error) -> Error {
    let line = error.position().map_or(1, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(error) => Error::io(path, error),
        csv::ErrorKind::Utf8 { .. } => Error::InvalidUtf8 { path: path.to_owned(), line },
        kind => Error::Record {
            path: path.to_owned(),
            unit: "line",
            line,
            message: format!("not CSV ({kind:?})"),
        },
    }
}

/// Reader that returns an error if a row is longer than about [`LONGEST_LINE`] bytes. Without this
/// limit, a quote that is never closed would make the rest of the file a single row.
struct Bounded {
    inner: Box<dyn BufRead + Send>,
    read_since: Arc<AtomicU64>,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if self.read_since.fetch_add(count as u64, Ordering::Relaxed) > LONGEST_LINE {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a row of more than {LONGEST_LINE} bytes; is a quote left open?"),
            ));
        }
        Ok(count)
    }
}
