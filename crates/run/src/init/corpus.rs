//! The text that a recipe is to be written for, as a user names it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};
use taper_data::{Corpora, DataConfig, FieldsConfig, Format, LineReader, PairReader, split_files};

/// What the validation split is called beside a training split, by most who publish corpora.
const VALIDATION_NAMES: [&str; 4] = ["val", "valid", "validation", "dev"];

/// Sentence pairs in the files that a user names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Corpus {
    /// Two files of text, one sentence a line.
    Files {
        /// The sentences to translate.
        source: PathBuf,
        /// Their translations.
        target: PathBuf,
    },
    /// One file with both sides in each record.
    Table {
        /// The file.
        file: PathBuf,
        /// Its format, by its name.
        format: Format,
        /// Which columns or fields hold the two sides.
        columns: FieldsConfig,
    },
}

/// What a look at all of a corpus tells.
#[derive(Debug, Clone, Default)]
pub struct CorpusFacts {
    /// Pairs.
    pub pairs: u64,
    /// Pairs of which a side is blank.
    pub blank: u64,
    /// Characters of all sources.
    pub source_characters: u64,
    /// Characters of all targets.
    pub target_characters: u64,
    /// Different characters.
    pub alphabet: usize,
    /// A number for each source that occurs, in ascending order.
    pub(super) sources: Vec<u64>,
}

impl Corpus {
    /// The corpus in `files`: two of text, or a table alone, with both sides in `columns`.
    ///
    /// # Errors
    /// When they are neither.
    pub fn of(files: &[PathBuf], columns: FieldsConfig) -> Result<Self> {
        match files {
            [source, target] if columns == FieldsConfig::default() => {
                Ok(Self::Files { source: source.clone(), target: target.clone() })
            }
            [_, _] => bail!("columns are for one table, and two files of text have none"),
            [file] => match table_format(file) {
                Some(format) => Ok(Self::Table { file: file.clone(), format, columns }),
                None => bail!(
                    "{}: one file has to be a table: .tsv, .csv, .jsonl or .parquet; of text, \
                     name two, the sentences and their translations",
                    file.display()
                ),
            },
            _ => bail!("name two files of text, or one table: .tsv, .csv, .jsonl or .parquet"),
        }
    }

    /// The languages, where the files are named by them, as in `train.en` and `train.de`.
    #[must_use]
    pub fn languages(&self) -> Option<[String; 2]> {
        let Self::Files { source, target } = self else { return None };
        let languages = [ending(source)?.to_owned(), ending(target)?.to_owned()];
        let is_code = |text: &String| {
            let letters = text.split(['-', '_']).next().unwrap_or_default();
            (2..=3).contains(&letters.len())
                && letters.bytes().all(|byte| byte.is_ascii_lowercase())
        };
        (languages.iter().all(is_code) && languages[0] != languages[1]).then_some(languages)
    }

    /// What a recipe says to read these files as they lie; nothing where they have other names than
    /// a recipe can tell. Validation and test sets beside them are taken up.
    #[must_use]
    pub fn as_it_lies(&self, languages: &[String; 2]) -> Option<DataConfig> {
        let mut config = DataConfig {
            source_language: languages[0].clone(),
            target_language: languages[1].clone(),
            validation: Corpora::default(),
            test: Corpora::default(),
            ..DataConfig::default()
        };
        match self {
            Self::Files { source, target } => {
                let stems = [source, target].map(|file| stem(file));
                let is_named = ending(source)? == languages[0] && ending(target)? == languages[1];
                if !is_named || stems[0]? != stems[1]? || source.parent() != target.parent() {
                    return None;
                }
                config.train = stems[0]?.into();
                config.dir = folder(source);
            }
            Self::Table { file, format, columns } => {
                config.train = stem(file)?.into();
                config.dir = folder(file);
                config.format = *format;
                config.fields = columns.clone();
            }
        }
        let exists = |config: &DataConfig, split: &str| {
            split != config.train.name() && split_files(config, split).is_ok()
        };
        if let Some(name) = VALIDATION_NAMES.into_iter().find(|name| exists(&config, name)) {
            config.validation = name.into();
        }
        if exists(&config, "test") {
            config.test = "test".into();
        }
        Some(config)
    }

    /// The pairs, one after another.
    ///
    /// # Errors
    /// When a file cannot be opened; each pair that cannot be read is one.
    pub fn pairs(
        &self,
        languages: &[String; 2],
    ) -> Result<Box<dyn Iterator<Item = Result<[String; 2]>>>> {
        match self {
            Self::Files { source, target } => {
                let (mut sources, mut targets) =
                    (LineReader::open(source)?, LineReader::open(target)?);
                Ok(Box::new(std::iter::from_fn(move || {
                    next_lines(&mut sources, &mut targets).transpose()
                })))
            }
            Self::Table { .. } => {
                let Some(config) = self.as_it_lies(languages) else {
                    bail!("the name of the table is not text");
                };
                let pairs = PairReader::open(&config, &config.train)?;
                Ok(Box::new(
                    pairs.map(|pair| {
                        pair.map(|pair| [pair.source, pair.target]).map_err(Into::into)
                    }),
                ))
            }
        }
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// For the first fault, with its file and line.
    pub fn look(&self, languages: &[String; 2]) -> Result<CorpusFacts> {
        let mut facts = CorpusFacts::default();
        let (mut sources, mut alphabet) = (BTreeSet::new(), BTreeSet::new());
        for pair in self.pairs(languages)? {
            let [source, target] = pair?;
            facts.pairs += 1;
            facts.blank += u64::from(source.trim().is_empty() || target.trim().is_empty());
            facts.source_characters += source.chars().count() as u64;
            facts.target_characters += target.chars().count() as u64;
            alphabet.extend(source.chars().chain(target.chars()));
            sources.insert(number_of(&source));
        }
        facts.alphabet = alphabet.len();
        facts.sources = sources.into_iter().collect();
        Ok(facts)
    }

    /// A name for a recipe about it: that of its folder or file, and the languages.
    #[must_use]
    pub fn name(&self, languages: &[String; 2]) -> String {
        let file = match self {
            Self::Files { source, .. } => source,
            Self::Table { file, .. } => file,
        };
        let folder = file.parent().and_then(Path::file_name).map(|name| name.to_string_lossy());
        let usual = ["train", "data", "corpus"];
        let name = match (stem(file), folder) {
            (Some(stem), _) if !usual.contains(&stem) => stem.to_owned(),
            (_, Some(folder)) => folder.into_owned(),
            (stem, None) => stem.unwrap_or("corpus").to_owned(),
        };
        let languages = languages.join("-");
        if name.ends_with(&languages) { name } else { format!("{name}-{languages}") }
    }
}

impl CorpusFacts {
    /// The mean number of characters of a sentence, on either side.
    #[must_use]
    pub fn mean_characters(&self) -> [f64; 2] {
        let pairs = self.pairs.max(1) as f64;
        [self.source_characters, self.target_characters].map(|sum| sum as f64 / pairs)
    }
}

/// The next line of both; nothing after the last.
fn next_lines(sources: &mut LineReader, targets: &mut LineReader) -> Result<Option<[String; 2]>> {
    match (sources.next_line()?, targets.next_line()?) {
        (Some(source), Some(target)) => Ok(Some([source, target])),
        (None, None) => Ok(None),
        _ => {
            let counts = [sources.count_rest()?, targets.count_rest()?];
            bail!(
                "{} has {} lines, but {} has {}: line i of one must be the translation of line i \
                 of the other",
                sources.path().display(),
                counts[0],
                targets.path().display(),
                counts[1]
            )
        }
    }
}

/// A number for a sentence, the same for the same sentence.
pub(super) fn number_of(sentence: &str) -> u64 {
    let digest = Sha256::digest(sentence.trim().as_bytes());
    digest.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The format of a table, by its name.
fn table_format(file: &Path) -> Option<Format> {
    match ending(file)? {
        "tsv" => Some(Format::Tsv),
        "csv" => Some(Format::Csv),
        "jsonl" => Some(Format::Jsonl),
        "parquet" => Some(Format::Parquet),
        _ => None,
    }
}

/// The name of a file without `.gz` or `.zst`, divided at its last dot.
fn parts(file: &Path) -> Option<(&str, &str)> {
    let name = file.file_name()?.to_str()?;
    let name = [".gz", ".zst"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    name.rsplit_once('.').filter(|(stem, ending)| !stem.is_empty() && !ending.is_empty())
}

fn stem(file: &Path) -> Option<&str> {
    Some(parts(file)?.0)
}

fn ending(file: &Path) -> Option<&str> {
    Some(parts(file)?.1)
}

/// The folder that a file lies in.
fn folder(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: [&str; 2]) -> Corpus {
        Corpus::of(&names.map(PathBuf::from), FieldsConfig::default()).expect("two files")
    }

    #[test]
    fn languages_and_names_are_told_by_the_files() {
        let languages = |names| files(names).languages().map(|two| two.join(" "));
        assert_eq!(languages(["d/train.en", "d/train.de.gz"]).as_deref(), Some("en de"));
        assert_eq!(languages(["a.zh-Hans", "a.pt_BR"]).as_deref(), Some("zh-Hans pt_BR"));
        for names in [["src.txt", "tgt.txt"], ["a.en", "b.en"], ["source", "target"]] {
            assert_eq!(languages(names), None, "{names:?}");
        }
        let languages = ["en", "de"].map(str::to_owned);
        assert_eq!(files(["d/train.en", "d/train.de"]).name(&languages), "d-en-de");
        assert_eq!(files(["d-en-de/train.en", "d-en-de/train.de"]).name(&languages), "d-en-de");
        assert_eq!(files(["news.en", "news.de"]).name(&languages), "news-en-de");
        assert!(Corpus::of(&["a.txt".into()], FieldsConfig::default()).is_err());
        assert!(Corpus::of(&[], FieldsConfig::default()).is_err());
    }
}
