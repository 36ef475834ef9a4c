//! An XML document in UTF-8 or UTF-16 as a stream of UTF-8. The stream counts lines, and limits the
//! number of bytes of a token.

use std::io::{self, BufRead, Chain, Cursor, Read};

/// Largest number of bytes of a tag, a comment or a text between two tags.
pub(crate) const LONGEST: u64 = 1 << 26;

/// Number of bytes that are decoded at a time.
const CHUNK: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Utf8,
    /// UTF-16. `little` is true if the less significant byte comes first.
    Utf16 {
        little: bool,
    },
}

/// A stream that is decoded to UTF-8.
pub(crate) struct Input<R> {
    inner: Chain<Cursor<Vec<u8>>, R>,
    encoding: Encoding,
    /// UTF-8 bytes that were decoded from UTF-16.
    decoded: Vec<u8>,
    /// Number of bytes of `decoded` that have been read.
    read: usize,
    /// First half of a surrogate pair whose second half has not been read yet.
    surrogate: Option<u16>,
    /// Number of line ends that have been read.
    lines: u64,
    /// Number of bytes of the current token that have been read.
    since: u64,
}

impl<R: BufRead> Input<R> {
    /// Makes a stream, whose encoding is determined by its first bytes.
    ///
    /// # Errors
    ///
    /// If the stream is in UTF-32, or cannot be read.
    pub(crate) fn new(mut inner: R) -> io::Result<Self> {
        let mut begin = Vec::new();
        inner.by_ref().take(4).read_to_end(&mut begin)?;
        let (encoding, mark) = match begin.as_slice() {
            [0xFF, 0xFE, 0, 0] | [0, 0, 0xFE, 0xFF] => {
                return Err(invalid("is UTF-32; convert it, for example with iconv -t UTF-8"));
            }
            [0xFF, 0xFE, ..] => (Encoding::Utf16 { little: true }, 2),
            [0xFE, 0xFF, ..] => (Encoding::Utf16 { little: false }, 2),
            [b'<', 0, _, 0] => (Encoding::Utf16 { little: true }, 0),
            [0, b'<', 0, _] => (Encoding::Utf16 { little: false }, 0),
            [0xEF, 0xBB, 0xBF, ..] => (Encoding::Utf8, 3),
            _ => (Encoding::Utf8, 0),
        };
        begin.drain(..mark);
        Ok(Self {
            inner: Cursor::new(begin).chain(inner),
            encoding,
            decoded: Vec::new(),
            read: 0,
            surrogate: None,
            lines: 0,
            since: 0,
        })
    }

    /// Number of the current line, counted from 1.
    pub(crate) fn line(&self) -> u64 {
        self.lines + 1
    }

    /// Begins a token, which can have at most [`LONGEST`] bytes.
    pub(crate) fn begin(&mut self) {
        self.since = 0;
    }

    /// Decodes the next bytes of UTF-16.
    fn decode(&mut self, little: bool) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(CHUNK);
        self.inner.by_ref().take(CHUNK as u64).read_to_end(&mut bytes)?;
        if bytes.len() % 2 == 1 {
            return Err(invalid("ends within a character of UTF-16; is it whole?"));
        }
        self.decoded.clear();
        self.read = 0;
        let units = bytes.chunks_exact(2).map(|pair| match little {
            true => u16::from_le_bytes([pair[0], pair[1]]),
            false => u16::from_be_bytes([pair[0], pair[1]]),
        });
        let mut text = String::with_capacity(bytes.len());
        let all: Vec<u16> = self.surrogate.take().into_iter().chain(units).collect();
        let is_last_half = all.last().is_some_and(|unit| (0xD800..0xDC00).contains(unit));
        // The second half of the surrogate pair can be at the beginning of the next chunk.
        let cut = is_last_half && bytes.len() == CHUNK;
        let whole = &all[..all.len() - usize::from(cut)];
        for character in char::decode_utf16(whole.iter().copied()) {
            text.push(character.map_err(|_| invalid("is not valid UTF-16"))?);
        }
        self.surrogate = if cut { all.last().copied() } else { None };
        self.decoded = text.into_bytes();
        Ok(())
    }
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

impl<R: BufRead> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Input<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.since > LONGEST {
            return Err(invalid("a tag or a text of more than 64 MiB; is a tag left open?"));
        }
        match self.encoding {
            Encoding::Utf8 => self.inner.fill_buf(),
            Encoding::Utf16 { little } => {
                if self.read == self.decoded.len() {
                    self.decode(little)?;
                }
                Ok(&self.decoded[self.read..])
            }
        }
    }

    fn consume(&mut self, count: usize) {
        let count_lines = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.since += count as u64;
        match self.encoding {
            Encoding::Utf8 => {
                // The buffer has unread bytes, so this call reads nothing from the stream.
                let lines = self.inner.fill_buf().map_or(0, |bytes| count_lines(&bytes[..count]));
                self.lines += lines;
                self.inner.consume(count);
            }
            Encoding::Utf16 { .. } => {
                self.lines += count_lines(&self.decoded[self.read..self.read + count]);
                self.read += count;
            }
        }
    }
}
