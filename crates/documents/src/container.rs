//! Documents of word processors, which are ZIP archives of XML.

use std::io::{Cursor, Read, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::formats::BETWEEN;
use crate::{Error, Result};

/// Largest number of bytes of all text parts together.
const LARGEST: u64 = 1 << 28;

/// A DOCX file. The XML files in the archive that have text (its text parts) are read as one
/// [`Document`](crate::Document). All other files in the archive are copied unchanged.
#[derive(Debug, Clone)]
pub struct Docx {
    bytes: Vec<u8>,
    /// Indices of the text parts in the archive.
    parts: Vec<usize>,
}

impl Docx {
    /// Reads a file. Also returns its text, which a [`Document`](crate::Document) reads in the
    /// format [`DocumentFormat::Docx`](crate::DocumentFormat::Docx).
    ///
    /// # Errors
    ///
    /// If the file is not DOCX, is damaged, or has more than 256 MiB of text.
    pub fn read(bytes: Vec<u8>) -> Result<(Self, String)> {
        Self::read_within(bytes, LARGEST)
    }

    /// Reads a file like [`Self::read`], with at most `most` bytes in all text parts together.
    /// There must be a limit, because a small archive can expand to any size.
    ///
    /// # Errors
    ///
    /// If the file is not DOCX, is damaged, or has more than `most` bytes of text.
    pub fn read_within(bytes: Vec<u8>, most: u64) -> Result<(Self, String)> {
        let mut archive = ZipArchive::new(Cursor::new(&bytes)).map_err(damaged)?;
        let (mut parts, mut text, mut left) = (Vec::new(), String::new(), most);
        for number in 0..archive.len() {
            let file = archive.by_index_raw(number).map_err(damaged)?;
            let name = file.name().map_err(damaged)?.into_owned();
            if !is_text(&name) {
                continue;
            }
            let (method, crc, size) = (file.compression(), file.crc32(), file.size());
            let mut part = Vec::new();
            let read = match method {
                CompressionMethod::STORE => {
                    file.take(left.saturating_add(1)).read_to_end(&mut part)
                }
                CompressionMethod::DEFLATE => flate2::read::DeflateDecoder::new(file)
                    .take(left.saturating_add(1))
                    .read_to_end(&mut part),
                other => return Err(damaged(format!("{name} is compressed by {other}"))),
            };
            read.map_err(damaged)?;
            if part.len() as u64 > left {
                return Err(damaged(format!("its text is larger than {most} bytes")));
            }
            left -= part.len() as u64;
            let mut sum = flate2::Crc::new();
            sum.update(&part);
            if sum.sum() != crc || part.len() as u64 != size {
                return Err(damaged(format!("the checksum of {name} is another")));
            }
            let part = String::from_utf8(part)
                .ok()
                .filter(|part| !part.contains(BETWEEN))
                .ok_or_else(|| damaged(format!("{name} is not UTF-8")))?;
            if !parts.is_empty() {
                text.push(BETWEEN);
            }
            text.push_str(&part);
            parts.push(number);
        }
        drop(archive);
        if parts.is_empty() {
            return Err(Error::Document("has no word/document.xml: is this DOCX?".to_owned()));
        }
        Ok((Self { bytes, parts }, text))
    }

    /// Returns the file with its text replaced by `text`.
    ///
    /// # Errors
    ///
    /// If `text` does not have the same number of text parts.
    pub fn write(&self, text: &str) -> Result<Vec<u8>> {
        let texts: Vec<&str> = text.split(BETWEEN).collect();
        if texts.len() != self.parts.len() {
            return Err(Error::Document("has another number of parts".to_owned()));
        }
        let mut archive = ZipArchive::new(Cursor::new(&self.bytes)).map_err(damaged)?;
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for number in 0..archive.len() {
            let file = archive.by_index_raw(number).map_err(damaged)?;
            match self.parts.iter().position(|&part| part == number) {
                None => writer.raw_copy_file(file).map_err(damaged)?,
                Some(part) => {
                    let name = file.name().map_err(damaged)?.into_owned();
                    let mut options =
                        SimpleFileOptions::default().compression_method(CompressionMethod::STORE);
                    if let Some(time) = file.last_modified() {
                        options = options.last_modified_time(time);
                    }
                    writer.start_file(name, options).map_err(damaged)?;
                    writer.write_all(texts[part].as_bytes())?;
                }
            }
        }
        Ok(writer.finish().map_err(damaged)?.into_inner())
    }
}

/// True if a part of the archive has visible text.
fn is_text(name: &str) -> bool {
    let Some(name) = name.strip_prefix("word/").and_then(|name| name.strip_suffix(".xml")) else {
        return false;
    };
    let name = name.trim_end_matches(|last: char| last.is_ascii_digit());
    matches!(name, "document" | "header" | "footer" | "footnotes" | "endnotes")
}

fn damaged(reason: impl std::fmt::Display) -> Error {
    Error::Document(format!("not a readable DOCX file ({reason})"))
}
