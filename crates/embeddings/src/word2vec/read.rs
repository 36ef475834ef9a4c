//! Reading of vector files. The files can be damaged or malicious, so sizes in them are not
//! trusted.

use std::io::{BufRead, Read};
use std::path::Path;

use taper_data::{not_a_file, open_text};

use crate::{Error, Format, Result, WordVectors};

/// Largest number of bytes of a line. Without a limit, a line without an end would fill the memory.
const LONGEST_LINE: u64 = 1 << 24;
/// Largest number of bytes of a word. Without a limit, a word without an end would fill the memory.
const LONGEST_WORD: u64 = 1 << 16;
/// Largest accepted number of dimensions. It is far above the number that any known vectors have.
const MOST_DIMENSIONS: usize = 1 << 16;
/// Number of bytes of a number.
const NUMBER: usize = size_of::<f32>();

impl WordVectors {
    /// Reads a file of vectors, or the vectors in the folder of a training.
    ///
    /// # Errors
    /// Errors of [`WordVectors::read`], and when the training is not complete.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            return Self::read(path);
        }
        let files = [Format::Binary, Format::Text].map(|format| path.join(format.file_name()));
        let file = files.iter().find(|file| file.exists()).ok_or_else(|| {
            let message = "it has no vectors.bin or vectors.txt; if a training in it was \
                           interrupted, resume it";
            Error::malformed(path, "", message)
        })?;
        Self::read(file)
    }

    /// Reads a file of vectors, text or binary; `.gz` and `.zst` are decompressed.
    ///
    /// # Errors
    /// When the file is missing or damaged, ends early, or continues after its last vector.
    pub fn read(path: &Path) -> Result<Self> {
        Ok(Self::read_with_format(path)?.0)
    }

    /// Reads a file like [`WordVectors::read`], and also returns the format of the file.
    ///
    /// # Errors
    /// See [`WordVectors::read`].
    pub fn read_with_format(path: &Path) -> Result<(Self, Format)> {
        if let Some(kind) = not_a_file(path) {
            return Err(Error::malformed(path, "", format!("{kind}, where a file is expected")));
        }
        let mut file = VectorFile { path, stream: open_text(path)?, line: 0 };
        let first = file.line()?;
        let mut rows = Rows::default();
        let Some((words, dimensions)) = head(&first) else {
            file.without_head(&first, &mut rows)?;
            return Ok((file.vectors(rows)?, Format::Text));
        };
        if dimensions == 0 || dimensions > MOST_DIMENSIONS {
            let message = format!(
                "the header gives {dimensions} dimensions: 1 to {MOST_DIMENSIONS} are possible"
            );
            return Err(file.fault(", line 1", message));
        }
        rows.dimensions = dimensions;
        // The header may be wrong, so no memory is reserved for the number of words that it gives.
        let format = file.body(words, &mut rows)?;
        Ok((file.vectors(rows)?, format))
    }
}

/// Words and numbers read so far.
#[derive(Default)]
struct Rows {
    words: Vec<String>,
    values: Vec<f32>,
    dimensions: usize,
}

/// A file that is being read.
struct VectorFile<'a> {
    path: &'a Path,
    stream: Box<dyn BufRead + Send>,
    /// Number of lines read so far.
    line: u64,
}

/// Parses the two numbers of a header; `None` if the line is no header.
fn head(line: &[u8]) -> Option<(usize, usize)> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let both = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    fields.next().is_none().then_some(both)
}

/// Parses a word and its numbers in a line of text. A word may contain spaces, but it must not end
/// in a space and a number: such a line would have one number too many.
fn row_of_text(line: &[u8], dimensions: usize) -> Option<(&str, Vec<f32>)> {
    let line = std::str::from_utf8(line).ok()?.trim_end();
    let mut fields = line.rsplitn(dimensions + 1, ' ');
    let mut numbers = Vec::with_capacity(dimensions.min(line.len()));
    for _ in 0..dimensions {
        numbers.push(fields.next()?.parse().ok()?);
    }
    numbers.reverse();
    let word = fields.next().filter(|word| !word.is_empty())?;
    let ends_in_number = word.rsplit_once(' ').is_some_and(|(_, end)| end.parse::<f32>().is_ok());
    (!ends_in_number).then_some((word, numbers))
}

/// True if a line is a row of text, but an invalid one; false if it is the beginning of binary
/// numbers. The bytes of binary numbers can look like text that ends with a line end. So a line
/// only counts as text if the first field after the word is a number, and if there are at least
/// half as many fields as dimensions.
fn is_faulty_text(line: &[u8], dimensions: usize) -> bool {
    let Ok(text) = std::str::from_utf8(line) else { return false };
    let fields: Vec<&str> = text.trim_end().split(' ').skip(1).collect();
    let is_number = |field: &&str| field.parse::<f32>().is_ok();
    fields.first().is_some_and(is_number) && 2 * fields.len() >= dimensions
}

impl VectorFile<'_> {
    fn fault(&self, place: &str, message: impl Into<String>) -> Error {
        Error::malformed(self.path, place, message)
    }

    /// Reads the next line with its line end; the result is empty at the end of the file.
    fn line(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self.stream.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes);
        read.map_err(Error::io(self.path))?;
        self.line += 1;
        Ok(bytes)
    }

    /// Reads a text file without a header, whose first line is already a vector.
    fn without_head(&mut self, first: &[u8], rows: &mut Rows) -> Result<()> {
        let text = std::str::from_utf8(first).unwrap_or_default();
        rows.dimensions = text.trim_end().split(' ').count() - 1;
        let Some((word, numbers)) =
            row_of_text(first, rows.dimensions).filter(|_| rows.dimensions > 0)
        else {
            let message = "neither a head, the numbers of words and of dimensions, nor a word \
                           with its vector; files of word2vec, text or binary, and of GloVe can \
                           be read";
            return Err(self.fault(", line 1", message));
        };
        rows.push(word, &numbers).map_err(|message| self.fault(", line 1", message))?;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(());
            }
            self.text_row(&line, rows)?;
        }
    }

    fn text_row(&self, line: &[u8], rows: &mut Rows) -> Result<()> {
        let place = format!(", line {}", self.line);
        let Some((word, numbers)) = row_of_text(line, rows.dimensions) else {
            let message = format!(
                "a word and {} numbers are expected, with one space between them",
                rows.dimensions
            );
            return Err(self.fault(&place, message));
        };
        rows.push(word, &numbers).map_err(|message| self.fault(&place, message))
    }

    /// Reads the vectors after a header; detects and returns their format.
    fn body(&mut self, words: usize, rows: &mut Rows) -> Result<Format> {
        if words == 0 {
            return Err(self.fault(", line 1", "the header announces no vector"));
        }
        let first = self.line()?;
        if row_of_text(&first, rows.dimensions).is_some() || is_faulty_text(&first, rows.dimensions)
        {
            self.text_row(&first, rows)?;
            for row in 1..words {
                let line = self.line()?;
                if line.is_empty() {
                    return Err(self.ends_early(row, words));
                }
                self.text_row(&line, rows)?;
            }
            self.expect_end(words)?;
            return Ok(Format::Text);
        }
        let rest = std::mem::replace(&mut self.stream, Box::new(std::io::empty()));
        self.stream = Box::new(std::io::Cursor::new(first).chain(rest));
        for row in 0..words {
            self.binary_row(row, words, rows)?;
        }
        self.expect_end(words)?;
        Ok(Format::Binary)
    }

    fn binary_row(&mut self, row: usize, words: usize, rows: &mut Rows) -> Result<()> {
        let place = format!(", vector {}", row + 1);
        let mut word = Vec::new();
        let read = self.stream.by_ref().take(LONGEST_WORD).read_until(b' ', &mut word);
        read.map_err(Error::io(self.path))?;
        if word.pop_if(|last| *last == b' ').is_none() {
            return Err(match word.len() as u64 {
                LONGEST_WORD => self.fault(&place, "there is no space after the word"),
                _ => self.ends_early(row, words),
            });
        }
        // In files of word2vec, a line end follows each vector.
        let word = word.strip_prefix(b"\n").unwrap_or(&word);
        let word = std::str::from_utf8(word).map_err(|_| {
            self.fault(&place, "its word is not valid UTF-8; is the file damaged before it?")
        })?;
        let mut bytes = vec![0; NUMBER * rows.dimensions];
        self.stream.read_exact(&mut bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.ends_early(row, words),
            _ => Error::io(self.path)(error),
        })?;
        let (quads, _) = bytes.as_chunks::<NUMBER>();
        let numbers: Vec<f32> = quads.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        rows.push(word, &numbers).map_err(|message| self.fault(&place, message))
    }

    fn ends_early(&self, row: usize, words: usize) -> Error {
        let message = format!(
            "the file ends in vector {} of the {words} in its header: it is incomplete",
            row + 1
        );
        self.fault("", message)
    }

    /// Checks that only whitespace follows the last vector.
    fn expect_end(&mut self, words: usize) -> Result<()> {
        loop {
            let rest = self.line()?;
            if rest.is_empty() {
                return Ok(());
            }
            if !rest.iter().all(u8::is_ascii_whitespace) {
                let message = format!("more follows after the {words} vectors of the header");
                return Err(self.fault("", message));
            }
        }
    }

    fn vectors(&self, rows: Rows) -> Result<WordVectors> {
        WordVectors::new(rows.words, rows.values, rows.dimensions).map_err(|error| match error {
            Error::Text { message } => self.fault("", message),
            error => error,
        })
    }
}

impl Rows {
    /// Adds a vector, or returns the reason why it is refused.
    fn push(&mut self, word: &str, numbers: &[f32]) -> Result<(), String> {
        if word.is_empty() {
            return Err("the word is empty".to_owned());
        }
        if let Some(number) = numbers.iter().find(|number| !number.is_finite()) {
            return Err(format!("the vector of {word:?} has the number {number}"));
        }
        self.words.push(word.to_owned());
        self.values.extend_from_slice(numbers);
        Ok(())
    }
}
