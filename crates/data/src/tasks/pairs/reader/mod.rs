//! Sentence pairs of a split, streamed in file order from whichever format holds them.

pub(crate) mod csv;
pub(crate) mod header;
pub(crate) mod linked;
pub(crate) mod parquet;
pub(crate) mod records;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::files::not_a_file;
use crate::tasks::pairs::hold_out::{fingerprint, held_out_sentences};
use crate::tasks::pairs::reader::csv::CsvPairs;
use crate::tasks::pairs::reader::linked::LinkReader;
use crate::tasks::pairs::reader::parquet::ParquetPairs;
use crate::tasks::pairs::reader::records::RecordPairs;
use crate::text::hub::hub_files;
use crate::{Corpora, Corpus, DataConfig, Error, Format, LineReader, Result, Side, WordLink};

/// A pair as it stands in the corpus: not cleaned, not normalised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPair {
    /// Its place in the split, counted from 1: the line, or the row among those with data.
    pub line: u64,
    /// The sentence to translate.
    pub source: String,
    /// Its translation.
    pub target: String,
    /// The links of their words, where the corpus names a file of them.
    pub links: Vec<WordLink>,
}

/// What a file about a split is called, without its extension: a stem may lie in a subfolder, or
/// anywhere.
#[must_use]
pub fn split_name(split: &str) -> String {
    split.replace(['/', '\\'], "_")
}

/// Streams the pairs of a split, corpus after corpus; stops after the first error.
///
/// What is held out for validation is left out of the training text.
pub struct PairReader {
    config: DataConfig,
    /// The corpora still to read, the next one last.
    corpora: Vec<Corpus>,
    current: Inner,
    /// The word links of the current corpus, where it has any.
    links: Option<LinkReader>,
    /// Stands before each source sentence of the current corpus.
    tag: String,
    with_tags: bool,
    /// How many corpora are behind.
    corpus: usize,
    line: u64,
    held_out: HashSet<u128>,
    /// How many pairs were left out because they are held out.
    left_out: u64,
    failed: bool,
}

enum Inner {
    Text { source: LineReader, target: LineReader },
    Records(RecordPairs),
    Csv(CsvPairs),
    Parquet(ParquetPairs),
}

impl Inner {
    fn open(config: &DataConfig, corpus: &Corpus) -> Result<Self> {
        let files = corpus_files(config, corpus)?;
        let format = corpus.format(config)?;
        Ok(match (format, files.as_slice()) {
            (Format::Text, [source, target]) => {
                Self::Text { source: LineReader::open(source)?, target: LineReader::open(target)? }
            }
            (Format::Csv, [file]) => Self::Csv(CsvPairs::open(config, corpus, file)?),
            (Format::Tsv | Format::Jsonl, [file]) => {
                Self::Records(RecordPairs::open(config, corpus, format, file)?)
            }
            _ => Self::Parquet(ParquetPairs::new(config, corpus, files)),
        })
    }

    fn next_sides(&mut self) -> Result<Option<(String, String)>> {
        match self {
            Self::Text { source, target } => next_lines(source, target),
            Self::Records(records) => records.next_sides(),
            Self::Csv(rows) => rows.next_sides(),
            Self::Parquet(rows) => rows.next_sides(),
        }
    }
}

impl PairReader {
    /// Opens a split.
    ///
    /// # Errors
    ///
    /// If a file is missing, cannot be opened, or lacks the columns that the configuration names.
    pub fn open(config: &DataConfig, split: impl Into<Corpora>) -> Result<Self> {
        let split: Corpora = split.into();
        split_files(config, &split)?;
        let held_out =
            if split == config.train { held_out_sentences(config)? } else { HashSet::new() };
        let mut corpora = split.0;
        corpora.reverse();
        let first = corpora.pop().unwrap_or_default();
        Ok(Self {
            current: Inner::open(config, &first)?,
            links: LinkReader::open(config, &first)?,
            tag: first.tag,
            with_tags: true,
            corpora,
            config: config.clone(),
            corpus: 0,
            line: 0,
            held_out,
            left_out: 0,
            failed: false,
        })
    }

    /// The same pairs without the tags of their corpora.
    pub(crate) fn without_tags(self) -> Self {
        Self { with_tags: false, ..self }
    }

    /// Which corpus of the split the last pair was of, counted from 0.
    pub(crate) fn corpus(&self) -> usize {
        self.corpus
    }

    /// How many pairs have been left out so far because their source is held out.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    fn next_pair(&mut self) -> Result<Option<RawPair>> {
        loop {
            let Some((source, target)) = self.current.next_sides()? else {
                if let Some(links) = &mut self.links {
                    links.require_end()?;
                }
                let Some(next) = self.corpora.pop() else {
                    return Ok(None);
                };
                self.current = Inner::open(&self.config, &next)?;
                self.links = LinkReader::open(&self.config, &next)?;
                self.tag = next.tag;
                self.corpus += 1;
                continue;
            };
            self.line += 1;
            let mut links = match &mut self.links {
                Some(links) => links.next_links(&source, &target)?,
                None => Vec::new(),
            };
            // A blank source stays blank, for cleaning to drop.
            let is_tagged = !self.tag.is_empty() && !source.trim().is_empty();
            let tagged = if is_tagged { format!("{} {source}", self.tag) } else { source };
            if !self.held_out.is_empty() && self.held_out.contains(&fingerprint(&tagged)) {
                self.left_out += 1;
                continue;
            }
            let source = match is_tagged && !self.with_tags {
                true => tagged[self.tag.len() + 1..].to_owned(),
                false => tagged,
            };
            if is_tagged && self.with_tags {
                // The tag is a word too.
                links.iter_mut().for_each(|link| link.source += 1);
            }
            return Ok(Some(RawPair { line: self.line, source, target, links }));
        }
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
pub fn read_pairs(config: &DataConfig, split: impl Into<Corpora>) -> Result<Vec<RawPair>> {
    let split = split.into();
    let pairs: Vec<RawPair> = PairReader::open(config, &split)?.collect::<Result<_>>()?;
    if pairs.is_empty() {
        return Err(empty_corpus(config, &split));
    }
    Ok(pairs)
}

/// The error for a split without pairs.
pub(crate) fn empty_corpus(config: &DataConfig, split: &Corpora) -> Error {
    let files = split_files(config, split).unwrap_or_default();
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    Error::EmptyCorpus { split: split.name(), files: names.join(" and ") }
}

/// The files of a split that exist: of each corpus source and target in text format, one file or
/// more in the others, and that of its word links where it has them. A hub data set is fetched into the local hub cache.
///
/// # Errors
///
/// [`Error::Missing`] with the names that were tried, or [`Error::Hub`].
pub fn split_files(config: &DataConfig, split: impl Into<Corpora>) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for corpus in split.into().iter() {
        files.extend(corpus_files(config, corpus)?);
        files.extend(links_file(config, corpus)?);
    }
    Ok(files)
}

/// The file of the word links of a corpus, where it names one.
fn links_file(config: &DataConfig, corpus: &Corpus) -> Result<Option<PathBuf>> {
    let named = Corpus { stem: String::new(), ..corpus.clone() };
    let find = || find(config, &named, Format::Text, &corpus.links);
    corpus.has_links().then(find).transpose()
}

fn corpus_files(config: &DataConfig, corpus: &Corpus) -> Result<Vec<PathBuf>> {
    let format = corpus.format(config)?;
    let find = |path: &Path| find(config, corpus, format, path);
    let stem = &corpus.stem;
    if stem.is_empty() {
        return match format {
            Format::Text => Ok(vec![find(&corpus.source)?, find(&corpus.target)?]),
            _ => Ok(vec![find(&corpus.file)?]),
        };
    }
    let single = |extension: &str| Ok(vec![find(&config.dir.join(format!("{stem}.{extension}")))?]);
    match format {
        Format::Text => [Side::Source, Side::Target]
            .into_iter()
            .map(|side| find(&config.dir.join(format!("{stem}.{}", config.language(side)))))
            .collect(),
        Format::Tsv => single("tsv"),
        Format::Csv => single("csv"),
        Format::Jsonl => single("jsonl"),
        Format::Parquet => single("parquet"),
        Format::Hub => hub_files(config, stem),
    }
}

/// `path` itself, or its compressed form where only that exists.
fn find(config: &DataConfig, corpus: &Corpus, format: Format, path: &Path) -> Result<PathBuf> {
    // Parquet compresses inside the file.
    let endings: &[&str] = match format {
        Format::Parquet => &[""],
        _ => &["", ".gz", ".zst"],
    };
    let mut other = None;
    for ending in endings {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        let candidate = PathBuf::from(name);
        if candidate.is_file() {
            return Ok(candidate);
        }
        other = other.or_else(|| not_a_file(&candidate).map(|kind| (candidate, kind)));
    }
    if let Some((path, kind)) = other {
        let message = format!(
            "{kind}, where text is expected; it is read more than once, so it has to be a \
             regular file"
        );
        return Err(Error::Malformed { path, message });
    }
    let tried = match endings.len() {
        1 => "",
        _ => " (nor the same with .gz or .zst)",
    };
    let hint = if corpus.stem.is_empty() {
        "check the path; one in a recipe is relative to the recipe"
    } else if config.dir.is_dir() {
        "set data.train, data.validation, data.test and the languages to the names of the files \
         there"
    } else {
        "that folder does not exist: set data.dir, or fetch the corpus with one of \
         scripts/fetch/*.sh"
    };
    Err(Error::Missing { path: path.to_owned(), tried: tried.to_owned(), hint: hint.to_owned() })
}
