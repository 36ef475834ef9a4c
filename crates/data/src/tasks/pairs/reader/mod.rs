//! Streams the sentence pairs of a split from files of any format, in the order of the files.

mod bilingual;
mod header;
pub(crate) mod held_out;
mod linked;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::corpora::{NO_MATCH, is_pattern};
use crate::file_names::{COMPRESSED_IN_WORDS, names_of};
use crate::files::not_a_file;
use crate::tables::Table;
use crate::tasks::pairs::reader::bilingual::Bilingual;
use crate::tasks::pairs::reader::held_out::{fingerprint, held_out_sentences};
use crate::tasks::pairs::reader::linked::LinkReader;
use crate::text::archive::open_sides;
use crate::text::hub::hub_files;
use crate::{Corpora, Corpus, DataConfig, Direction, Error, Format, LineReader, Result, WordLink};

/// A pair as it is in the corpus, neither cleaned nor normalised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPair {
    /// Number of the pair in its split, counted from 1 through all files. In a file, pairs are the
    /// lines, or the rows of a table without its header.
    pub line: u64,
    /// The sentence to translate.
    pub source: String,
    /// Translation.
    pub target: String,
    /// Links between words of source and target; empty if the corpus has no file of links.
    pub links: Vec<WordLink>,
}

/// Files of a corpus that are read together: the files of its two sides or one file with both
/// sides, and the file of word links, if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PairFiles {
    /// Index of the corpus in the split.
    pub(crate) corpus: usize,
    /// Files of source and target, or a single file with both sides.
    sides: Vec<PathBuf>,
    links: Option<PathBuf>,
}

impl PairFiles {
    /// Paths of all these files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.sides.iter().chain(&self.links)
    }
}

/// Streams the pairs of files that are read together. The only change to a pair is the tag of the
/// corpus before its source.
pub(crate) struct FileReader {
    sides: Sides,
    /// Word links, if there are any.
    links: Option<LinkReader>,
    /// Tag before each source sentence.
    tag: String,
    line: u64,
}

enum Sides {
    Text { source: LineReader, target: LineReader },
    Table(Table),
    Bilingual(Bilingual),
}

impl Sides {
    fn open(config: &DataConfig, corpus: &Corpus, files: &PairFiles) -> Result<Self> {
        let format = corpus.format(config)?;
        let languages = [config.source_language.as_str(), config.target_language.as_str()];
        Ok(match (format, files.sides.as_slice()) {
            (Format::Text, [source, target]) => {
                Self::Text { source: LineReader::open(source)?, target: LineReader::open(target)? }
            }
            (Format::Zip, [archive]) => {
                let [source, target] = open_sides(archive, languages)?
                    .map(|(path, (stream, count))| LineReader::counted(&path, stream, count));
                Self::Text { source, target }
            }
            (format, [file]) if format.is_bilingual() => {
                Self::Bilingual(Bilingual::open(file, format, languages)?)
            }
            (format, files) => Self::Table(header::open(config, corpus, format, files)?),
        })
    }

    fn next_sides(&mut self) -> Result<Option<(String, String)>> {
        match self {
            Self::Text { source, target } => next_lines(source, target),
            Self::Bilingual(file) => file.next_pair(),
            Self::Table(table) => {
                let record = table.next_record()?;
                Ok(record
                    .and_then(|texts| texts.try_into().ok())
                    .map(|[source, target]: [_; 2]| (source, target)))
            }
        }
    }

    /// Skips a pair. Returns `false` if no pair is left. The text of lines is not checked.
    fn skip(&mut self) -> Result<bool> {
        match self {
            Self::Text { source, target } => match (source.skip_line()?, target.skip_line()?) {
                (true, true) => Ok(true),
                (false, false) => Ok(false),
                _ => Err(unequal_lines(source, target)?),
            },
            other => Ok(other.next_sides()?.is_some()),
        }
    }
}

impl FileReader {
    /// Opens the files `files` of `corpus`.
    ///
    /// # Errors
    ///
    /// If a file cannot be opened, or lacks the columns that the configuration names.
    pub(crate) fn open(config: &DataConfig, corpus: &Corpus, files: &PairFiles) -> Result<Self> {
        let links = files.links.as_deref();
        let config = &config.in_languages(&config.direction_of(corpus));
        Ok(Self {
            sides: Sides::open(config, corpus, files)?,
            links: links.map(|path| LinkReader::open(path, corpus.name())).transpose()?,
            tag: corpus.tag.clone(),
            line: 0,
        })
    }

    /// Next pair, with the tag before its source. `line` is counted from 1 at the beginning of
    /// these files.
    pub(crate) fn next_pair(&mut self) -> Result<Option<RawPair>> {
        let Some((source, target)) = self.sides.next_sides()? else {
            if let Some(links) = &mut self.links {
                links.require_end()?;
            }
            return Ok(None);
        };
        self.line += 1;
        let mut links = match &mut self.links {
            Some(links) => links.next_links(&source, &target)?,
            None => Vec::new(),
        };
        // A blank source stays blank, so that cleaning drops it.
        let is_tagged = !self.tag.is_empty() && !source.trim().is_empty();
        if !is_tagged {
            return Ok(Some(RawPair { line: self.line, source, target, links }));
        }
        // The tag is the first word of the source, so the other words have higher indices.
        links.iter_mut().for_each(|link| link.source += 1);
        let source = format!("{} {source}", self.tag);
        Ok(Some(RawPair { line: self.line, source, target, links }))
    }

    /// Skips a pair and its links. Returns `false` if no pair is left.
    pub(crate) fn skip_pair(&mut self) -> Result<bool> {
        let is_one = self.sides.skip()?;
        self.line += u64::from(is_one);
        match &mut self.links {
            Some(links) if is_one => links.skip()?,
            Some(links) => links.require_end()?,
            None => {}
        }
        Ok(is_one)
    }

    /// Number of bytes of the files that have been read so far; 0 for CSV and Parquet.
    pub(crate) fn bytes_read(&self) -> u64 {
        match &self.sides {
            Sides::Text { source, target } => source.bytes_read() + target.bytes_read(),
            Sides::Table(table) => table.bytes_read(),
            Sides::Bilingual(file) => file.bytes_read(),
        }
    }
}

/// Streams the pairs of a split, corpus after corpus. Stops after the first error.
///
/// Pairs held out for validation are omitted from the training text.
pub struct PairReader {
    config: DataConfig,
    split: Corpora,
    /// Remaining files.
    files: std::vec::IntoIter<PairFiles>,
    current: Option<FileReader>,
    with_tags: bool,
    /// Index of the corpus that is being read.
    corpus: usize,
    /// Total number of lines in the files that were read completely.
    before: u64,
    held_out: HashSet<u128>,
    failed: bool,
}

impl PairReader {
    /// Opens a split.
    ///
    /// # Errors
    ///
    /// If a file is missing, cannot be opened, or lacks the columns that the configuration names.
    pub fn open(config: &DataConfig, split: impl Into<Corpora>) -> Result<Self> {
        let split: Corpora = split.into();
        let held_out =
            if split == config.train { held_out_sentences(config)? } else { HashSet::new() };
        let mut reader = Self {
            files: pair_files(config, &split)?.into_iter(),
            config: config.clone(),
            split,
            current: None,
            with_tags: true,
            corpus: 0,
            before: 0,
            held_out,
            failed: false,
        };
        reader.open_next()?;
        Ok(reader)
    }

    /// Makes the reader return sources without the tags of their corpora.
    pub(crate) fn without_tags(self) -> Self {
        Self { with_tags: false, ..self }
    }

    /// Opens the next files, if there are any.
    fn open_next(&mut self) -> Result<()> {
        self.before += self.current.take().map_or(0, |files| files.line);
        if let Some(files) = self.files.next() {
            self.corpus = files.corpus;
            let corpus = &self.split[files.corpus];
            self.current = Some(FileReader::open(&self.config, corpus, &files)?);
        }
        Ok(())
    }

    fn next_pair(&mut self) -> Result<Option<RawPair>> {
        loop {
            let Some(current) = &mut self.current else { return Ok(None) };
            let Some(mut pair) = current.next_pair()? else {
                self.open_next()?;
                continue;
            };
            pair.line += self.before;
            if !self.held_out.is_empty() && self.held_out.contains(&fingerprint(&pair.source)) {
                continue;
            }
            let tag = &self.split[self.corpus].tag;
            if !self.with_tags
                && !tag.is_empty()
                && let Some(plain) =
                    pair.source.strip_prefix(tag).and_then(|rest| rest.strip_prefix(' '))
            {
                pair.source = plain.to_owned();
                pair.links.iter_mut().for_each(|link| link.source -= 1);
            }
            return Ok(Some(pair));
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

/// Reads one line of each file. `None` if both files have ended.
fn next_lines(
    source: &mut LineReader,
    target: &mut LineReader,
) -> Result<Option<(String, String)>> {
    match (source.next_line()?, target.next_line()?) {
        (Some(source), Some(target)) => Ok(Some((source, target))),
        (None, None) => Ok(None),
        _ => Err(unequal_lines(source, target)?),
    }
}

/// Error for two sides with different numbers of lines. Counts the remaining lines for the message,
/// which contains both totals.
fn unequal_lines(source: &mut LineReader, target: &mut LineReader) -> Result<Error> {
    Ok(Error::UnequalLines {
        source_path: source.path().to_owned(),
        source_lines: source.count_rest()?,
        target_path: target.path().to_owned(),
        target_lines: target.count_rest()?,
    })
}

/// Reads a complete split into memory. No pairs are dropped, because every line of a test set must
/// be scored.
///
/// # Errors
///
/// Errors of [`PairReader`], and an error if the split is empty.
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

/// Existing files of a split. For a corpus in text format, these are the files of source and
/// target; for other formats, the files with both sides. The files of word links follow, if there
/// are any. A hub data set is fetched into the local hub cache.
///
/// # Errors
///
/// [`Error::Missing`], with the names that were tried, if a file is missing, or [`Error::Hub`].
pub fn split_files(config: &DataConfig, split: impl Into<Corpora>) -> Result<Vec<PathBuf>> {
    let files = pair_files(config, &split.into())?;
    Ok(files.iter().flat_map(PairFiles::paths).cloned().collect())
}

/// The files of [`split_files`], in groups that are read together.
pub(crate) fn pair_files(config: &DataConfig, split: &Corpora) -> Result<Vec<PairFiles>> {
    let mut files = Vec::new();
    for (number, corpus) in split.iter().enumerate() {
        let links = link_files(config, corpus)?;
        let sides = corpus_files(config, corpus)?;
        if !links.is_empty() && links.len() != sides.len() {
            let message = format!(
                "is one of {} files of word links, but the corpus {:?} has {} files of pairs: the \
                 numbers must be equal",
                links.len(),
                corpus.name(),
                sides.len()
            );
            return Err(Error::Malformed { path: links[0].clone(), message });
        }
        let mut links = links.into_iter();
        let with_links = |sides| PairFiles { corpus: number, sides, links: links.next() };
        files.extend(sides.into_iter().map(with_links));
    }
    Ok(files)
}

/// Paths of the files of word links of a corpus.
fn link_files(config: &DataConfig, corpus: &Corpus) -> Result<Vec<PathBuf>> {
    let named = Corpus { stem: String::new(), ..corpus.clone() };
    corpus.links.iter().map(|path| find(config, &named, Format::Text, path)).collect()
}

/// Paths of the files of a corpus without its word links, in groups that are read together.
fn corpus_files(config: &DataConfig, corpus: &Corpus) -> Result<Vec<Vec<PathBuf>>> {
    let format = corpus.format(config)?;
    let find = |path: &Path| find(config, corpus, format, path);
    let both = |source: &Path, target: &Path| Ok(vec![find(source)?, find(target)?]);
    let stem = &corpus.stem;
    if stem.is_empty() {
        let sides = corpus.source.iter().zip(corpus.target.iter());
        return match format {
            Format::Text => sides.map(|(source, target)| both(source, target)).collect(),
            _ => corpus.file.iter().map(|path| Ok(vec![find(path)?])).collect(),
        };
    }
    let path = |ending: &str| config.dir.join(format!("{stem}.{ending}"));
    let single = |ending: &str| Ok(vec![vec![find(&path(ending))?]]);
    match format {
        Format::Text => {
            let Direction { from, to } = config.direction_of(corpus);
            let [source, target] = [from, to].map(|language| path(&language));
            Ok(vec![both(&source, &target)?])
        }
        format => match format.ending() {
            Some(ending) => single(ending),
            None => Ok(hub_files(config, stem)?.into_iter().map(|file| vec![file]).collect()),
        },
    }
}

/// Finds the file at `path`, or a compressed file with the same name and one more ending.
fn find(config: &DataConfig, corpus: &Corpus, format: Format, path: &Path) -> Result<PathBuf> {
    // Parquet and ZIP files are already compressed, so compressed variants of them are not looked
    // for.
    let is_compressed = matches!(format, Format::Parquet | Format::Zip);
    let names = if is_compressed { vec![path.to_owned()] } else { names_of(path, &[""]) };
    let mut other = None;
    for candidate in names {
        if candidate.is_file() {
            return Ok(candidate);
        }
        other = other.or_else(|| not_a_file(&candidate).map(|kind| (candidate, kind)));
    }
    if let Some((path, kind)) = other {
        let message = format!(
            "{kind}, but text is expected; it is read more than once, so it has to be a regular \
             file"
        );
        return Err(Error::Malformed { path, message });
    }
    let tried = match is_compressed {
        true => String::new(),
        false => format!(" (nor the same with {COMPRESSED_IN_WORDS})"),
    };
    let hint = if is_pattern(path) {
        NO_MATCH
    } else if corpus.stem.is_empty() {
        "check the path; one in a recipe is relative to the recipe"
    } else if config.dir.is_dir() {
        "set data.train, data.validation, data.test and the languages to the names of the files \
         there"
    } else {
        "that folder does not exist: set data.dir, or fetch the corpus with one of \
         scripts/fetch/*.sh"
    };
    Err(Error::Missing { path: path.to_owned(), tried, hint: hint.to_owned() })
}
