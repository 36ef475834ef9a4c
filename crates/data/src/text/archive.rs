//! Reads texts in ZIP archives: a single text, or the two sides of a corpus. OPUS ships corpora as
//! archives, with additional files such as `README` and `LICENSE`.
//!
//! The crate `zip` reads the directory of an archive. The bytes of members are decompressed here,
//! with the same decoders as other files. Encrypted members are refused. Members that share bytes
//! are refused too, because such archives can decompress to far more bytes than they have.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use taper_documents::is_language;
use zip::{CompressionMethod, ZipArchive};

use super::compression::{Method, Stream, open_file};
use crate::{Error, Result};

/// Number of names that an error lists.
const LISTED: usize = 10;

/// Names of members with information about a corpus.
const ABOUT: [&str; 5] = ["readme", "license", "licence", "info", "copying"];

/// File within an archive.
#[derive(Debug, Clone)]
struct Member {
    name: String,
    method: CompressionMethod,
    is_encrypted: bool,
    /// Place of the first compressed byte in the archive.
    start: u64,
    compressed: u64,
    /// Checksum of the decompressed bytes.
    crc: u32,
    /// Number of decompressed bytes.
    size: u64,
}

/// Members that may be text, in the order of their places in the archive.
fn members(path: &Path) -> Result<Vec<Member>> {
    let damaged = |error: &dyn std::fmt::Display| {
        let message = format!("not a readable ZIP archive ({error}); fetch it again");
        Error::Malformed { path: path.to_owned(), message }
    };
    let mut archive = ZipArchive::new(open_file(path)?).map_err(|error| damaged(&error))?;
    let mut members = Vec::new();
    for index in 0..archive.len() {
        let file = archive.by_index_raw(index).map_err(|error| damaged(&error))?;
        let name = file.name().map_err(|error| damaged(&error))?.into_owned();
        let start = file.data_start().ok_or_else(|| damaged(&"a member has no place"))?;
        if file.is_dir() {
            continue;
        }
        members.push(Member {
            name,
            method: file.compression(),
            is_encrypted: file.encrypted(),
            start,
            compressed: file.compressed_size(),
            crc: file.crc32(),
            size: file.size(),
        });
    }
    members.sort_by_key(|member| member.start);
    let shares = |pair: &&[Member]| {
        pair[0].start.saturating_add(pair[0].compressed) > pair[1].start && pair[0].compressed > 0
    };
    if let Some(pair) = members.windows(2).find(shares) {
        return Err(damaged(&format_args!("{} and {} share bytes", pair[0].name, pair[1].name)));
    }
    members.retain(|member| is_text(&member.name));
    Ok(members)
}

/// True if a member can be a text of a corpus: its name is not hidden, and is not that of a file
/// about the corpus or of macOS.
fn is_text(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    let stem = file.split('.').next().unwrap_or(file).to_lowercase();
    !file.starts_with('.') && !name.starts_with("__MACOSX/") && !ABOUT.contains(&stem.as_str())
}

/// Opens the only text of an archive.
///
/// # Errors
///
/// If the archive is damaged, or has no text or several.
pub(super) fn open_only(path: &Path) -> Result<Stream> {
    match members(path)?.as_slice() {
        [only] => open(path, only),
        others => Err(Error::Malformed {
            path: path.to_owned(),
            message: format!(
                "is an archive with {}, but a single text is expected; unpack it, or name it as \
                 the file of a corpus if it has both sides",
                listed(others)
            ),
        }),
    }
}

/// Opens the two sides of a corpus in an archive: the members whose names end in the two languages.
/// For each side, returns a path, which is the path of the archive followed by the name of the
/// member, and the stream of the member.
///
/// # Errors
///
/// If the archive is damaged, or a side is missing or occurs twice.
pub(crate) fn open_sides(path: &Path, languages: [&str; 2]) -> Result<[(PathBuf, Stream); 2]> {
    let members = members(path)?;
    let side = |language: &str| {
        let is_side = |member: &&Member| {
            member.name.rsplit_once('.').is_some_and(|(_, ending)| is_language(ending, language))
        };
        let of_side: Vec<&Member> = members.iter().filter(is_side).collect();
        let [member] = of_side.as_slice() else {
            let message = format!(
                "has {} whose name ends in .{language}, but one is expected; it is an archive \
                 with {}",
                match of_side.len() {
                    0 => "no text".to_owned(),
                    count => format!("{count} texts"),
                },
                listed(&members)
            );
            return Err(Error::Malformed { path: path.to_owned(), message });
        };
        Ok((path.join(&member.name), open(path, member)?))
    };
    Ok([side(languages[0])?, side(languages[1])?])
}

fn listed(members: &[Member]) -> String {
    let names: Vec<&str> = members.iter().take(LISTED).map(|member| member.name.as_str()).collect();
    match members.len() {
        0 => "no text".to_owned(),
        count if count > LISTED => format!("{count} files ({}, …)", names.join(", ")),
        _ => format!("the files {}", names.join(", ")),
    }
}

fn open(path: &Path, member: &Member) -> Result<Stream> {
    let inside: PathBuf = path.join(&member.name);
    let refused = |message: String| Error::Malformed { path: inside.clone(), message };
    if member.is_encrypted {
        return Err(refused("is encrypted; unpack the archive".to_owned()));
    }
    let method = match member.method {
        CompressionMethod::STORE => Method::Plain,
        CompressionMethod::DEFLATE => Method::Deflate,
        CompressionMethod::BZIP2 => Method::Bzip2,
        CompressionMethod::ZSTD => Method::Zstandard,
        CompressionMethod::XZ => Method::Xz,
        other => {
            return Err(refused(format!("is compressed by {other}, which is not read; unpack it")));
        }
    };
    let mut file = open_file(path)?;
    file.seek(SeekFrom::Start(member.start)).map_err(|error| Error::io(path, error))?;
    let bytes = file.take(member.compressed);
    let (stream, count) = method.decode(bytes).map_err(|error| Error::io(&inside, error))?;
    let checked =
        Checked { inner: stream, crc: flate2::Crc::new(), expected: member.crc, size: member.size };
    Ok((Box::new(io::BufReader::with_capacity(1 << 16, checked)), count))
}

/// Reader that compares the checksum of its bytes with the expected one when they end.
struct Checked<R> {
    inner: R,
    crc: flate2::Crc,
    expected: u32,
    size: u64,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.crc.update(&buffer[..count]);
        // The library `flate2` counts the bytes modulo 2^32.
        let is_whole = self.crc.sum() == self.expected && self.crc.amount() == self.size as u32;
        if count == 0 && !buffer.is_empty() && !is_whole {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "is damaged: its checksum is another; fetch the archive again",
            ));
        }
        Ok(count)
    }
}
