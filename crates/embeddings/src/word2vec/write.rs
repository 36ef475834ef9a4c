//! Writing of vector files.

use std::io::{self, Write};
use std::path::Path;

use taper_data::write_whole;

use super::numbers::write_number;
use crate::{Format, Result, WordVectors};

impl WordVectors {
    /// Writes the vectors to a file, which is identical byte for byte to a file that gensim writes.
    /// The file appears only when it is complete.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path, format: Format) -> Result<()> {
        let rows = (0..self.words().len()).map(|row| (self.words()[row].as_str(), self.row(row)));
        Ok(write_whole(path, |out| {
            write_head(out, self.words().len(), self.dimensions())?;
            for (word, row) in rows {
                write_row(out, word, row.iter().copied(), format)?;
            }
            Ok(())
        })?)
    }
}

/// Writes the header: the numbers of words and of dimensions.
pub(crate) fn write_head(out: &mut impl Write, words: usize, dimensions: usize) -> io::Result<()> {
    writeln!(out, "{words} {dimensions}")
}

/// Writes a word and its vector.
pub(crate) fn write_row(
    out: &mut impl Write,
    word: &str,
    numbers: impl Iterator<Item = f32>,
    format: Format,
) -> io::Result<()> {
    write!(out, "{word}")?;
    if format == Format::Binary {
        out.write_all(b" ")?;
        for number in numbers {
            out.write_all(&number.to_le_bytes())?;
        }
        return Ok(());
    }
    for number in numbers {
        out.write_all(b" ")?;
        write_number(out, number)?;
    }
    out.write_all(b"\n")
}
