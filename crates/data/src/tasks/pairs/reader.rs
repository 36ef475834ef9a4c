//! Sentence pairs of a split, streamed in file order from whichever format holds them.

use std::path::{Path, PathBuf};

use crate::tasks::pairs::parquet_reader::ParquetPairs;
use crate::tasks::pairs::records::RecordPairs;
use crate::text::hub::hub_files;
use crate::{DataConfig, Error, Format, LineReader, Result, Side};

/// A pair as it stands in the corpus: not cleaned, not normalised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPair {
    /// Its place in the split, counted from 1: the line, or the row among those with data.
    pub line: u64,
    /// The sentence to translate.
    pub source: String,
    /// Its translation.
    pub target: String,
}

/// What a file about a split is called, without its extension: a stem may lie in a subfolder, or
/// anywhere.
#[must_use]
pub fn split_name(split: &str) -> String {
    split.replace(['/', '\\'], "_")
}

/// Streams the pairs of a split; stops after the first error.
pub struct PairReader {
    inner: Inner,
    line: u64,
    failed: bool,
}

enum Inner {
    Text { source: LineReader, target: LineReader },
    Records(RecordPairs),
    Parquet(ParquetPairs),
}

impl PairReader {
    /// Opens a split.
    ///
    /// # Errors
    ///
    /// If a file is missing, cannot be opened, or lacks the columns that the configuration names.
    pub fn open(config: &DataConfig, split: &str) -> Result<Self> {
        let files = split_files(config, split)?;
        let inner = match (config.format, files.as_slice()) {
            (Format::Text, [source, target]) => {
                Inner::Text { source: LineReader::open(source)?, target: LineReader::open(target)? }
            }
            (Format::Tsv | Format::Jsonl, [file]) => {
                Inner::Records(RecordPairs::open(config, file)?)
            }
            _ => Inner::Parquet(ParquetPairs::new(config, files)),
        };
        Ok(Self { inner, line: 0, failed: false })
    }

    fn next_pair(&mut self) -> Result<Option<RawPair>> {
        let sides = match &mut self.inner {
            Inner::Text { source, target } => next_lines(source, target)?,
            Inner::Records(records) => records.next_sides()?,
            Inner::Parquet(rows) => rows.next_sides()?,
        };
        Ok(sides.map(|(source, target)| {
            self.line += 1;
            RawPair { line: self.line, source, target }
        }))
    }
}

impl Iterator for PairReader {
    type Item = Result<RawPair>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = self.next_pair().transpose();
        self.failed = matches!(item, Some(Err(_)));
        item
    }
}

/// One line of each file, or nothing where both end.
fn next_lines(
    source: &mut LineReader,
    target: &mut LineReader,
) -> Result<Option<(String, String)>> {
    match (source.next_line()?, target.next_line()?) {
        (Some(source), Some(target)) => Ok(Some((source, target))),
        (None, None) => Ok(None),
        // Count what is left, so that the message gives both totals.
        _ => Err(Error::UnequalLines {
            source_path: source.path().to_owned(),
            source_lines: source.count_rest()?,
            target_path: target.path().to_owned(),
            target_lines: target.count_rest()?,
        }),
    }
}

/// Reads a whole split into memory, every pair in its place. For test sets, whose lines must all be
/// scored.
///
/// # Errors
///
/// As for [`PairReader`], and if the split is empty.
pub fn read_pairs(config: &DataConfig, split: &str) -> Result<Vec<RawPair>> {
    let pairs: Vec<RawPair> = PairReader::open(config, split)?.collect::<Result<_>>()?;
    if pairs.is_empty() {
        return Err(empty_corpus(config, split));
    }
    Ok(pairs)
}

/// The error for a split without pairs.
pub(crate) fn empty_corpus(config: &DataConfig, split: &str) -> Error {
    let files = split_files(config, split).unwrap_or_default();
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    Error::EmptyCorpus { split: split.to_owned(), files: names.join(" and ") }
}

/// The files of a split that exist: source and target in text format, one file or more in the
/// others. A hub data set is fetched into the local hub cache.
///
/// # Errors
///
/// [`Error::Missing`] with the names that were tried, or [`Error::Hub`].
pub fn split_files(config: &DataConfig, split: &str) -> Result<Vec<PathBuf>> {
    let single =
        |extension: &str| Ok(vec![find(config, &config.dir.join(format!("{split}.{extension}")))?]);
    match config.format {
        Format::Text => [Side::Source, Side::Target]
            .into_iter()
            .map(|side| {
                let name = format!("{split}.{}", config.language(side));
                find(config, &config.dir.join(name))
            })
            .collect(),
        Format::Tsv => single("tsv"),
        Format::Jsonl => single("jsonl"),
        Format::Parquet => single("parquet"),
        Format::Hub => hub_files(config, split),
    }
}

/// `path` itself, or its compressed form where only that exists.
fn find(config: &DataConfig, path: &Path) -> Result<PathBuf> {
    // Parquet compresses inside the file.
    let endings: &[&str] = match config.format {
        Format::Parquet => &[""],
        _ => &["", ".gz", ".zst"],
    };
    for ending in endings {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        let candidate = PathBuf::from(name);
        if candidate.is_file() {
            return Ok(candidate);
        }
    }
    let tried = match endings.len() {
        1 => "",
        _ => " (nor the same with .gz or .zst)",
    };
    let hint = if config.dir.is_dir() {
        "set data.train, data.validation, data.test and the languages to the names of the files there"
    } else {
        "that folder does not exist: set data.dir, or fetch the corpus with one of scripts/fetch/*.sh"
    };
    Err(Error::Missing { path: path.to_owned(), tried: tried.to_owned(), hint: hint.to_owned() })
}
