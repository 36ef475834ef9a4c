//! A text as a stream of sentences of words.
//!
//! A line is a sentence, and words are separated by ASCII whitespace. A sentence is divided after
//! every ten thousand words, as in word2vec and gensim. So a text without line ends can also be
//! learned from.

use std::io::{BufRead, Read};
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use taper_data::{hexadecimal, not_a_file, open_text, require_plain_text};

use crate::{Error, Result};

/// Largest number of words of a sentence.
pub(super) const LONGEST_SENTENCE: usize = 10_000;
/// Largest number of bytes of a word. A longer run of bytes without spaces is probably not text,
/// but part of a binary file.
const LONGEST_WORD: usize = 1 << 16;

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Place {
    /// Index of the file.
    pub(super) file: usize,
    /// Number of bytes of the file read so far, after decompression and without a byte-order mark.
    pub(super) bytes: u64,
    /// Number of lines of the file read so far.
    pub(super) lines: u64,
}

/// Sentences of files, one after another.
pub(super) struct Sentences<'a> {
    files: &'a [PathBuf],
    lowercase: bool,
    /// Stream of the current file.
    stream: Box<dyn BufRead + Send>,
    place: Place,
    /// Word that is not complete yet.
    word: Vec<u8>,
    lowered: String,
    /// Hash of the text read so far; `None` if no hash was requested.
    hash: Option<Sha256>,
}

impl<'a> Sentences<'a> {
    /// Opens the sentences of `files` from `place` on.
    ///
    /// # Errors
    /// When a file cannot be opened, or ends before `place`.
    pub(super) fn open(files: &'a [PathBuf], lowercase: bool, place: Place) -> Result<Self> {
        let mut sentences = Self {
            files,
            lowercase,
            stream: Box::new(std::io::empty()),
            place: Place::default(),
            word: Vec::new(),
            lowered: String::new(),
            hash: None,
        };
        sentences.enter(place.file)?;
        let (path, mut left) = (&files[place.file.min(files.len() - 1)], place.bytes);
        while left > 0 {
            let buffer = sentences.stream.fill_buf().map_err(Error::io(path))?;
            let count = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if count == 0 {
                let message = "it has become shorter since training began";
                return Err(Error::malformed(path, "", message));
            }
            sentences.stream.consume(count);
            left -= count as u64;
        }
        sentences.place = place;
        Ok(sentences)
    }

    /// Opens the sentences of `files` from the beginning, and computes a hash of the text while it
    /// is read.
    ///
    /// # Errors
    /// When a file cannot be opened.
    pub(super) fn hashed(files: &'a [PathBuf], lowercase: bool) -> Result<Self> {
        let mut sentences = Self::open(files, lowercase, Place::default())?;
        sentences.hash = Some(Sha256::new());
        Ok(sentences)
    }

    /// Returns the place where the next sentence begins.
    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Returns the SHA-256 of all text read since [`Sentences::hashed`].
    pub(super) fn hash(self) -> String {
        hexadecimal(&self.hash.unwrap_or_default().finalize())
    }

    /// Moves to the beginning of a file; after the last file, the stream is empty.
    fn enter(&mut self, file: usize) -> Result<()> {
        self.place = Place { file, bytes: 0, lines: 0 };
        self.stream = match self.files.get(file) {
            None => Box::new(std::io::empty()),
            Some(path) => match not_a_file(path) {
                Some(kind) => {
                    let message = format!("{kind}, where a text file is expected");
                    return Err(Error::malformed(path, "", message));
                }
                None => {
                    require_plain_text(path)?;
                    open_text(path)?
                }
            },
        };
        Ok(())
    }

    /// Passes the words of the next sentence to `take`; returns `false` after the last sentence.
    ///
    /// # Errors
    /// When a file cannot be read, is not UTF-8, or has a word of more than 64 KiB.
    pub(super) fn next(&mut self, mut take: impl FnMut(&str)) -> Result<bool> {
        let mut words = 0;
        while self.place.file < self.files.len() {
            let path = &self.files[self.place.file];
            let buffer = self.stream.fill_buf().map_err(Error::io(path))?;
            let is_end = buffer.is_empty();
            let (mut read, mut ends_sentence) = (0, false);
            while read < buffer.len() && !ends_sentence {
                let rest = &buffer[read..];
                let length = rest.iter().position(u8::is_ascii_whitespace);
                let part = &rest[..length.unwrap_or(rest.len())];
                let whole = match (length, self.word.is_empty()) {
                    (Some(_), true) => part,
                    _ => {
                        self.word.extend_from_slice(part);
                        &self.word
                    }
                };
                if whole.len() > LONGEST_WORD {
                    let place = format!(", line {}", self.place.lines + 1);
                    let message = "a word has more than 65536 bytes; is this a text?";
                    return Err(Error::malformed(path, &place, message));
                }
                read += part.len();
                let Some(length) = length else { break };
                words += usize::from(!whole.is_empty());
                give(whole, self.lowercase, &mut self.lowered, &mut take)
                    .ok_or_else(|| invalid(path, self.place.lines))?;
                self.word.clear();
                read += 1;
                let is_line = rest[length] == b'\n';
                self.place.lines += u64::from(is_line);
                ends_sentence = is_line || words == LONGEST_SENTENCE;
            }
            if let Some(hash) = &mut self.hash {
                hash.update(&buffer[..read]);
            }
            self.stream.consume(read);
            self.place.bytes += read as u64;
            if is_end {
                // The last line need not have a line end.
                give(&self.word, self.lowercase, &mut self.lowered, &mut take)
                    .ok_or_else(|| invalid(path, self.place.lines))?;
                words += usize::from(!self.word.is_empty());
                self.word.clear();
                if let Some(hash) = &mut self.hash {
                    // The hash includes a separator after each file, so that it changes if text is
                    // moved from one file to the next.
                    hash.update([0]);
                }
                self.enter(self.place.file + 1)?;
            }
            if ends_sentence || is_end && words > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Passes a word to `take` unless it is empty; returns `None` if the word is not UTF-8.
fn give(
    word: &[u8],
    lowercase: bool,
    lowered: &mut String,
    take: &mut impl FnMut(&str),
) -> Option<()> {
    let text = std::str::from_utf8(word).ok()?;
    if text.is_empty() {
        return Some(());
    }
    if lowercase && !word.iter().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        lowered.clear();
        lowered.extend(text.chars().flat_map(char::to_lowercase));
        take(lowered);
    } else {
        take(text);
    }
    Some(())
}

fn invalid(path: &std::path::Path, lines: u64) -> Error {
    taper_data::Error::not_text(path, lines + 1).into()
}

/// Computes the SHA-256 of the bytes of a stream.
pub(super) fn hash_of(mut stream: impl Read) -> std::io::Result<String> {
    let (mut hash, mut piece) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match stream.read(&mut piece)? {
            0 => return Ok(hexadecimal(&hash.finalize())),
            count => hash.update(&piece[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(files: &[PathBuf], place: Place) -> Vec<(Vec<String>, Place)> {
        let mut reader = Sentences::open(files, true, place).expect("files");
        let mut all = Vec::new();
        loop {
            let mut words = Vec::new();
            if !reader.next(|word| words.push(word.to_owned())).expect("text") {
                return all;
            }
            all.push((words, reader.place()));
        }
    }

    #[test]
    fn lines_are_sentences_from_any_place() {
        let folder = tempfile::tempdir().expect("folder");
        let files = [folder.path().join("a"), folder.path().join("b")];
        std::fs::write(&files[0], "The  Red\tÄpfel \r\n\nand").expect("write");
        std::fs::write(&files[1], "more\n").expect("write");
        let all = sentences(&files, Place::default());
        let words: Vec<Vec<String>> = all.iter().map(|(words, _)| words.clone()).collect();
        let expected: [&[&str]; 4] = [&["the", "red", "äpfel"], &[], &["and"], &["more"]];
        assert_eq!(words, expected);
        for (index, (_, place)) in all.iter().enumerate() {
            assert_eq!(sentences(&files, *place), all[index + 1..], "from {place:?}");
        }
    }

    #[test]
    fn a_text_without_line_ends_is_cut() {
        let folder = tempfile::tempdir().expect("folder");
        let files = [folder.path().join("a")];
        std::fs::write(&files[0], "word ".repeat(25_000)).expect("write");
        let all = sentences(&files, Place::default());
        let lengths: Vec<usize> = all.iter().map(|(words, _)| words.len()).collect();
        assert_eq!(lengths, [10_000, 10_000, 5_000]);
        assert_eq!(sentences(&files, all[0].1), all[1..]);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let files = [folder.path().join("a")];
        let error = |bytes: &[u8]| {
            std::fs::write(&files[0], bytes).expect("write");
            let mut reader = Sentences::open(&files, false, Place::default()).expect("file");
            loop {
                match reader.next(|_| {}) {
                    Ok(more) => assert!(more, "no error"),
                    Err(error) => return error.to_string(),
                }
            }
        };
        assert!(error(b"fine\n\xff\n").contains("line 2: not valid UTF-8"));
        assert!(error(&[b'x'; 1 << 17]).contains("is this a text?"));
    }
}
