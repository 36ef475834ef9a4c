//! Reads files that contain both sides of each pair, in the formats of translation tools: TMX,
//! XLIFF and PO.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use taper_documents::{Error as Fault, Tmx, po_pairs, utf8_of, xliff_pairs};

use crate::text::lines::open_counted;
use crate::{Error, Format, Result, text_of};

/// Largest number of bytes of an XLIFF or PO file, which is read as a whole. TMX files are streamed
/// and may have any size.
const LARGEST: u64 = 1 << 29;

/// Reader of the pairs of one file.
pub(crate) struct Bilingual {
    path: PathBuf,
    pairs: Pairs,
    count: Arc<AtomicU64>,
}

enum Pairs {
    Memory(Box<Tmx<Box<dyn BufRead + Send>>>),
    Whole(std::vec::IntoIter<(u64, [String; 2])>),
}

impl Bilingual {
    /// Opens a file. `languages` are the source and the target language of the pairs to read.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or does not have the format. For XLIFF and PO, this includes
    /// errors in any line.
    pub(crate) fn open(path: &Path, format: Format, languages: [&str; 2]) -> Result<Self> {
        let (mut stream, count) = open_counted(path)?;
        let failed = |error| fault(path, error);
        let pairs = if format == Format::Tmx {
            Pairs::Memory(Box::new(Tmx::new(stream, languages).map_err(failed)?))
        } else {
            let mut bytes = Vec::new();
            let read = stream.by_ref().take(LARGEST + 1).read_to_end(&mut bytes);
            read.map_err(|error| Error::io(path, error))?;
            if bytes.len() as u64 > LARGEST {
                let message = format!("is larger than {LARGEST} bytes: divide it into several");
                return Err(Error::Malformed { path: path.to_owned(), message });
            }
            let pairs = match format {
                Format::Po => po_pairs(&text_of(&bytes, path)?, languages),
                _ => utf8_of(&bytes).and_then(|text| xliff_pairs(&text, languages)),
            };
            Pairs::Whole(pairs.map_err(failed)?.into_iter())
        };
        Ok(Self { path: path.to_owned(), pairs, count })
    }

    /// Source and target of the next pair; `None` after the last pair.
    ///
    /// # Errors
    ///
    /// If the file is damaged. The error contains the line number.
    pub(crate) fn next_pair(&mut self) -> Result<Option<(String, String)>> {
        let pair = match &mut self.pairs {
            Pairs::Memory(memory) => {
                memory.next_pair().map_err(|error| fault(&self.path, error))?
            }
            Pairs::Whole(pairs) => pairs.next().map(|(_, pair)| pair),
        };
        Ok(pair.map(|[source, target]| (source, target)))
    }

    /// Bytes of the file that have been read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

fn fault(path: &Path, error: Fault) -> Error {
    let path = path.to_owned();
    match error {
        Fault::Line { line, message } => Error::Record { path, unit: "line", line, message },
        Fault::Io(source) => Error::Io { path, source },
        other => Error::Malformed { path, message: other.to_string() },
    }
}
