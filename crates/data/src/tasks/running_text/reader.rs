//! Streams running text in passages: pieces of text that are tokenised separately.

use std::io::{BufRead, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::corpora::{NO_MATCH, is_pattern};
use crate::file_names::{COMPRESSED_IN_WORDS, names_of};
use crate::tables::{Table, is_json, table_format};
use crate::tasks::running_text::config::Documents;
use crate::text::encoding::without_mark;
use crate::text::lines::open_counted;
use crate::{Corpora, Corpus, DataConfig, Error, FieldsConfig, Format, LineReader, Result};

/// Endings that the configured name of a file of running text may omit.
pub(crate) const ENDINGS: [&str; 2] = ["", ".txt"];

/// Approximate number of bytes of a passage.
const PASSAGE: usize = 1 << 16;

/// Piece of text that is tokenised separately.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Passage {
    pub(crate) text: String,
    pub(crate) begins_document: bool,
}

/// Portion of a split: the characters from the first index up to, but not including, the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Portion(pub(crate) u64, pub(crate) u64);

impl Portion {
    pub(crate) const WHOLE: Self = Self(0, u64::MAX);
}

/// Files of a split, found by the rules of [`RunningTextConfig`](crate::RunningTextConfig), corpus
/// by corpus.
///
/// # Errors
///
/// [`Error::Missing`], with the names that were tried, if there are no such files.
pub(crate) fn files(config: &DataConfig, split: &Corpora) -> Result<Vec<PathBuf>> {
    files_ending(config, split, &ENDINGS)
}

/// Lists files like [`files`]. `endings` are the endings that a configured name may omit.
pub(crate) fn files_ending(
    config: &DataConfig,
    split: &Corpora,
    endings: &[&str],
) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for corpus in split.iter() {
        files.extend(corpus_files(config, corpus, endings)?);
    }
    Ok(files)
}

pub(crate) fn corpus_files(
    config: &DataConfig,
    corpus: &Corpus,
    endings: &[&str],
) -> Result<Vec<PathBuf>> {
    if !corpus.stem.is_empty() {
        return files_at(config, corpus, config.dir.join(&corpus.stem), endings);
    }
    let mut files = Vec::new();
    for path in corpus.file.iter() {
        files.extend(files_at(config, corpus, path.clone(), endings)?);
    }
    Ok(files)
}

/// The file at `path`, perhaps with one of `endings`, or the files in the folder at `path`.
fn files_at(
    config: &DataConfig,
    corpus: &Corpus,
    path: PathBuf,
    endings: &[&str],
) -> Result<Vec<PathBuf>> {
    if path.is_dir() {
        let failed = |error| Error::io(&path, error);
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(failed)? {
            let file = entry.map_err(failed)?.path();
            let hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
            if file.is_file() && !hidden {
                files.push(file);
            }
        }
        files.sort();
        if !files.is_empty() {
            return Ok(files);
        }
    }
    if let Some(found) = names_of(&path, endings).into_iter().find(|name| name.is_file()) {
        return Ok(vec![found]);
    }
    let hint = if is_pattern(&path) {
        NO_MATCH
    } else if corpus.stem.is_empty() {
        "check the path; one in a recipe is relative to the recipe"
    } else if config.dir.is_dir() {
        "set data.train, data.validation and data.test to the names of files or folders there"
    } else {
        "that folder does not exist: set data.dir, or fetch the text with one of scripts/fetch"
    };
    Err(Error::Missing {
        path,
        tried: match endings {
            [_, endings @ ..] => format!(
                " (nor the same with {}, nor with {COMPRESSED_IN_WORDS} behind that, nor a folder \
                 with files)",
                endings.join(" or ")
            ),
            [] => String::new(),
        },
        hint: hint.to_owned(),
    })
}

/// Refuses a file whose name indicates a single JSON value or a bilingual format, because its
/// syntax would be read as text.
///
/// # Errors
///
/// [`Error::Malformed`], with advice.
pub(crate) fn refuse_json(path: &Path) -> Result<()> {
    if Format::by_name(path).is_some_and(Format::is_bilingual) {
        let message = "has texts in two languages, by its name, but texts in one language are \
                       expected; write them into a file of lines, and call it .txt";
        return Err(Error::Malformed { path: path.to_owned(), message: message.to_owned() });
    }
    if !is_json(path) {
        return Ok(());
    }
    let message = "is JSON, and its braces and names would be learned as text; write one object \
                   per line and call it .jsonl, so that data.fields.text is read, or call it .txt \
                   if it should be learned as it is";
    Err(Error::Malformed { path: path.to_owned(), message: message.to_owned() })
}

/// Streams the passages of a portion of a split. Stops after the first error.
pub(crate) struct TextReader {
    files: std::vec::IntoIter<PathBuf>,
    documents: Documents,
    /// Configured names of fields, for files that are tables.
    fields: FieldsConfig,
    current: Option<Current>,
    portion: Portion,
    /// Number of bytes of the files that have been read completely.
    behind: u64,
    /// Number of characters that have been read, including characters before the portion.
    at: u64,
    failed: bool,
}

enum Current {
    Whole(Chunks),
    Lines(LineReader),
    Table(Table),
}

impl TextReader {
    /// Reads `files` by the settings of `config`.
    pub(crate) fn new(files: &[PathBuf], config: &DataConfig, portion: Portion) -> Self {
        Self {
            files: Vec::from(files).into_iter(),
            documents: config.text.documents,
            fields: config.fields.clone(),
            current: None,
            portion,
            behind: 0,
            at: 0,
            failed: false,
        }
    }

    /// Number of bytes of the files on disk that have been read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        let current = match &self.current {
            Some(Current::Whole(chunks)) => chunks.count.load(Ordering::Relaxed),
            Some(Current::Lines(lines)) => lines.bytes_read(),
            Some(Current::Table(table)) => table.bytes_read(),
            None => 0,
        };
        self.behind + current
    }

    /// Reads the whole portion, and returns the number of its characters.
    pub(crate) fn characters(self) -> Result<u64> {
        self.map(|passage| Ok(passage?.text.chars().count() as u64)).sum()
    }

    /// Next passage, inside or outside the portion.
    fn passage(&mut self) -> Result<Option<Passage>> {
        loop {
            match &mut self.current {
                None => {
                    let Some(path) = self.files.next() else { return Ok(None) };
                    self.current = Some(self.open(&path)?);
                }
                Some(Current::Whole(chunks)) => {
                    let begins_document = chunks.lines == 0 && chunks.is_at_start;
                    if let Some(text) = chunks.next_chunk()? {
                        return Ok(Some(Passage { text, begins_document }));
                    }
                    self.behind = self.bytes_read();
                    self.current = None;
                }
                Some(Current::Lines(lines)) => match lines.next_line()? {
                    Some(line) if line.trim().is_empty() => {}
                    Some(text) => return Ok(Some(Passage { text, begins_document: true })),
                    None => {
                        self.behind = self.bytes_read();
                        self.current = None;
                    }
                },
                // A record is a document, even if it has several lines.
                Some(Current::Table(table)) => {
                    match table.next_record()?.map(|cells| cells.concat()) {
                        Some(text) if text.trim().is_empty() => {}
                        Some(text) => return Ok(Some(Passage { text, begins_document: true })),
                        None => {
                            self.behind = self.bytes_read();
                            self.current = None;
                        }
                    }
                }
            }
        }
    }

    fn open(&self, path: &Path) -> Result<Current> {
        refuse_json(path)?;
        Ok(match (table_format(path), self.documents) {
            (Some(format), _) => {
                Current::Table(Table::open_named(path, format, &[self.fields.text()])?)
            }
            (None, Documents::Files) => Current::Whole(Chunks::open(path)?),
            (None, Documents::Lines) => Current::Lines(LineReader::open(path)?),
        })
    }

    fn next_passage(&mut self) -> Result<Option<Passage>> {
        let Portion(from, to) = self.portion;
        while self.at < to
            && let Some(Passage { text, begins_document }) = self.passage()?
        {
            let start = self.at;
            let count = text.chars().count() as u64;
            self.at += count;
            if start >= from && self.at <= to {
                return Ok(Some(Passage { text, begins_document }));
            }
            if self.at > from {
                let skipped = from.saturating_sub(start);
                let kept = to.min(self.at) - start - skipped;
                // Both numbers are at most the number of characters of the passage, so they fit
                // `usize`.
                let text = text.chars().skip(skipped as usize).take(kept as usize).collect();
                return Ok(Some(Passage {
                    text,
                    begins_document: begins_document && skipped == 0,
                }));
            }
        }
        Ok(None)
    }
}

impl Iterator for TextReader {
    type Item = Result<Passage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = self.next_passage().transpose();
        self.failed = matches!(item, Some(Err(_)));
        item
    }
}

/// Reads a file in pieces of about [`PASSAGE`] bytes, whatever the length of its lines.
struct Chunks {
    path: PathBuf,
    stream: Box<dyn BufRead + Send>,
    /// Number of bytes of the file that have been read.
    count: Arc<AtomicU64>,
    /// Bytes that have been read but are not in a piece yet.
    pending: Vec<u8>,
    /// Number of line ends so far.
    lines: u64,
    is_at_start: bool,
}

impl Chunks {
    fn open(path: &Path) -> Result<Self> {
        let (stream, count) = open_counted(path)?;
        let pending = Vec::with_capacity(2 * PASSAGE);
        Ok(Self { path: path.to_owned(), stream, count, pending, lines: 0, is_at_start: true })
    }

    /// Next piece, in which all lines end with `\n`; `None` at the end of the file.
    fn next_chunk(&mut self) -> Result<Option<String>> {
        let is_last = self.fill()?;
        if self.is_at_start {
            let text = without_mark(&self.pending, &self.path)?.len();
            self.pending.drain(..self.pending.len() - text);
        }
        self.is_at_start = false;
        if self.pending.is_empty() {
            return Ok(None);
        }
        let cut = if is_last { self.pending.len() } else { cut(&self.pending) };
        let rest = self.pending.split_off(cut);
        let bytes = std::mem::replace(&mut self.pending, rest);
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            Error::not_text(&self.path, self.lines + line_ends(valid) + 1)
        })?;
        self.lines += line_ends(text.as_bytes());
        Ok(Some(if text.contains("\r\n") { text.replace("\r\n", "\n") } else { text }))
    }

    /// Reads until `pending` has enough bytes for a piece. Returns `true` at the end of the file.
    fn fill(&mut self) -> Result<bool> {
        while self.pending.len() <= PASSAGE {
            match self.stream.fill_buf() {
                Ok([]) => return Ok(true),
                Ok(bytes) => {
                    let count = bytes.len().min(PASSAGE);
                    self.pending.extend_from_slice(&bytes[..count]);
                    self.stream.consume(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(&self.path, error)),
            }
        }
        Ok(false)
    }
}

fn line_ends(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// Index at which to divide bytes of a text that continues after them. This is the last line end
/// before a line that does not start with white space, because tokenizers divide words at such a
/// place, too. If there is no such line end, it is a place between two characters.
fn cut(bytes: &[u8]) -> usize {
    let line_end = (1..bytes.len() - 1)
        .rev()
        .find(|&at| bytes[at] == b'\n' && !bytes[at + 1].is_ascii_whitespace())
        .map(|at| if bytes[at - 1] == b'\r' { at - 1 } else { at })
        .filter(|&at| at > 0);
    let character = || {
        // The cut is at a byte that begins a character, and not before a `\n` that may follow `\r`.
        (1..bytes.len()).rev().find(|&at| bytes[at] & 0xC0 != 0x80 && bytes[at] != b'\n')
    };
    line_end.or_else(character).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(folder: &Path, texts: &[&str], documents: Documents, portion: Portion) -> Vec<Passage> {
        let files: Vec<PathBuf> = (0..texts.len()).map(|i| folder.join(i.to_string())).collect();
        for (file, text) in files.iter().zip(texts) {
            std::fs::write(file, text).expect("write");
        }
        let mut config = DataConfig::default();
        config.text.documents = documents;
        TextReader::new(&files, &config, portion).collect::<Result<_>>().expect("read")
    }

    fn texts(passages: &[Passage]) -> String {
        passages.iter().map(|passage| passage.text.as_str()).collect()
    }

    #[test]
    fn pieces_of_a_file_are_the_file_cut_where_words_begin() {
        let folder = tempfile::tempdir().expect("folder");
        let line = "a line, ends.\n\n Wörter\r\n";
        let text = line.repeat(10_000);
        let passages = read(folder.path(), &[&text], Documents::Files, Portion::WHOLE);
        assert!(passages.len() > 2, "{}", passages.len());
        assert_eq!(texts(&passages), text.replace("\r\n", "\n"));
        for (index, passage) in passages.iter().enumerate() {
            assert_eq!(passage.begins_document, index == 0);
            assert!(index == 0 || passage.text.starts_with("\na"), "{:?}", &passage.text[..9]);
        }
        // One line without an end, made of characters of three bytes.
        let endless = "€".repeat(100_000);
        assert_eq!(
            texts(&read(folder.path(), &[&endless], Documents::Files, Portion::WHOLE)),
            endless
        );
    }

    #[test]
    fn portions_divide_the_text_at_a_character() {
        let folder = tempfile::tempdir().expect("folder");
        let files = ["\u{feff}äbc\n", "", "def\n\nghi"];
        let read = |documents, portion| read(folder.path(), &files, documents, portion);
        assert_eq!(texts(&read(Documents::Files, Portion(0, 5))), "äbc\nd");
        let rest = read(Documents::Files, Portion(5, u64::MAX));
        assert_eq!(texts(&rest), "ef\n\nghi");
        assert!(!rest[0].begins_document, "the second file began before");
        let lines = read(Documents::Lines, Portion(2, 7));
        assert_eq!(
            lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(),
            ["c", "def", "g"]
        );
        assert_eq!(
            lines.iter().map(|line| line.begins_document).collect::<Vec<_>>(),
            [false, true, true]
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_named_by_file_and_line() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("text");
        let mut bytes = "fine\n".repeat(50_000).into_bytes();
        bytes.extend(b"b\xffd\n");
        std::fs::write(&path, bytes).expect("write");
        let error = TextReader::new(&[path], &DataConfig::default(), Portion::WHOLE)
            .collect::<Result<Vec<_>>>()
            .expect_err("not UTF-8")
            .to_string();
        assert!(error.contains("text, line 50001: not valid UTF-8"), "{error}");
    }
}
