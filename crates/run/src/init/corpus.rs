//! Training text of a new recipe (TOML file with the settings of a training), in files that a user
//! names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};
use taper_data::{
    Corpora, Corpus as CorpusConfig, DataConfig, FieldsConfig, Format, LineReader, PairReader,
    is_compressed, split_files,
};

/// Usual names of the validation split that lies next to a training split.
const VALIDATION_NAMES: [&str; 4] = ["val", "valid", "validation", "dev"];

/// Sentence pairs in files that a user names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Corpus {
    /// Two files of text with one sentence on each line.
    Files {
        /// Sentences to translate.
        source: PathBuf,
        /// Translations.
        target: PathBuf,
    },
    /// One file in which each record has a source and a target.
    Table {
        /// Path of the file.
        file: PathBuf,
        /// Format, determined by the file's name.
        format: Format,
        /// Columns or fields that have source and target.
        columns: FieldsConfig,
    },
}

/// Counts over all pairs of a corpus.
#[derive(Debug, Clone, Default)]
pub struct CorpusFacts {
    /// Number of pairs.
    pub pairs: u64,
    /// Number of pairs with an empty source or target; spaces do not count.
    pub blank: u64,
    /// Number of characters of all sources.
    pub source_characters: u64,
    /// Number of characters of all targets.
    pub target_characters: u64,
    /// Number of different characters in all sources and targets.
    pub alphabet: usize,
    /// Hash of each distinct source, in ascending order.
    pub(super) sources: Vec<u64>,
}

impl Corpus {
    /// Corpus in `files`: two files of text, or one table. `columns` names the columns of the table
    /// that have source and target.
    ///
    /// # Errors
    /// If `files` are not two files of text or one table, or if columns are named for files of
    /// text.
    pub fn from_files(files: &[PathBuf], columns: FieldsConfig) -> Result<Self> {
        match files {
            [source, target] if columns == FieldsConfig::default() => {
                Ok(Self::Files { source: source.clone(), target: target.clone() })
            }
            [_, _] => bail!("two files of text have no columns: columns are for a table"),
            [file] => match table_format(file) {
                Some(format) => Ok(Self::Table { file: file.clone(), format, columns }),
                None => bail!(
                    "{}: one file has to have both sides: .tsv, .csv, .jsonl, .parquet, .tmx, .xlf \
                     or .po; of text, name two, the sentences and their translations",
                    file.display()
                ),
            },
            _ => bail!(
                "name two files of text, or one with both sides: .tsv, .csv, .jsonl, .parquet, \
                 .tmx, .xlf or .po"
            ),
        }
    }

    /// Languages of two files of text, if the extensions of the files are language codes, as in
    /// `train.en` and `train.de`; otherwise `None`.
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

    /// Part of a recipe that reads these files where they are, with the validation and test sets
    /// that lie next to them. Returns `None` if the recipe would not find the files by the names of
    /// splits. This is the case, for example, if an ending such as `.GZ` is in upper case.
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
                let [first, second] = [split_parts(source)?, split_parts(target)?];
                let is_named = first.1 == languages[0] && second.1 == languages[1];
                if !is_named || first.0 != second.0 || source.parent() != target.parent() {
                    return None;
                }
                config.train = first.0.into();
                config.dir = folder(source);
            }
            Self::Table { file, format, columns } => {
                let (stem, ending) = split_parts(file)?;
                if format.ending() != Some(ending) {
                    return None;
                }
                config.train = stem.into();
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

    /// Pairs in the order of the files.
    ///
    /// # Errors
    /// If a file cannot be opened. A pair that cannot be read becomes an error of the iterator.
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
            Self::Table { file, format, columns } => {
                let corpus = CorpusConfig { file: vec![file.clone()].into(), ..Default::default() };
                let config = DataConfig {
                    source_language: languages[0].clone(),
                    target_language: languages[1].clone(),
                    train: Corpora(vec![corpus]),
                    format: *format,
                    fields: columns.clone(),
                    ..DataConfig::default()
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

    /// Reads the whole corpus, and counts pairs and characters.
    ///
    /// # Errors
    /// If a pair cannot be read. The error has the file and line of the first such pair.
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

    /// Name for a recipe: the name of the corpus's file or folder, and the languages, as in
    /// `news-en-de`.
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
    /// Mean number of characters of a source, and of a target.
    #[must_use]
    pub fn mean_characters(&self) -> [f64; 2] {
        let pairs = self.pairs.max(1) as f64;
        [self.source_characters, self.target_characters].map(|sum| sum as f64 / pairs)
    }
}

/// Next line of each file; `None` after the last one.
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

/// First 64 bits of the SHA-256 of a sentence without surrounding spaces.
pub(super) fn number_of(sentence: &str) -> u64 {
    let digest = Sha256::digest(sentence.trim().as_bytes());
    digest.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Format of a table, which is a file with sources and targets. It is determined by the name of the
/// file. Returns `None` for other files.
fn table_format(file: &Path) -> Option<Format> {
    Format::by_name(file).filter(|&format| format != Format::Zip)
}

/// Stem and ending of a file's name, which is divided at the last dot; an ending for compression is
/// removed first.
fn parts(file: &Path) -> Option<(&str, &str)> {
    let name = file.file_name()?.to_str()?;
    let plain = if is_compressed(file) { name.rsplit_once('.')?.0 } else { name };
    plain.rsplit_once('.').filter(|(stem, ending)| !stem.is_empty() && !ending.is_empty())
}

/// Stem and ending of the name of a split's file. Returns `None` if the file is not found by this
/// name, because its ending for compression is not in lower case.
fn split_parts(file: &Path) -> Option<(&str, &str)> {
    let is_found = |ending: &str| !ending.contains(|letter: char| letter.is_ascii_uppercase());
    let last = file.extension()?.to_str()?;
    if is_compressed(file) && !is_found(last) { None } else { parts(file) }
}

fn stem(file: &Path) -> Option<&str> {
    Some(parts(file)?.0)
}

fn ending(file: &Path) -> Option<&str> {
    Some(parts(file)?.1)
}

/// Folder of a file.
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
        Corpus::from_files(&names.map(PathBuf::from), FieldsConfig::default()).expect("two files")
    }

    #[test]
    fn languages_and_names_are_told_by_the_files() {
        let languages = |names| files(names).languages().map(|two| two.join(" "));
        assert_eq!(languages(["d/train.en", "d/train.de.gz"]).as_deref(), Some("en de"));
        assert_eq!(languages(["a.zh-Hans", "a.pt_BR"]).as_deref(), Some("zh-Hans pt_BR"));
        // Readers ignore the case of an ending for compression.
        assert_eq!(languages(["d/train.en.GZ", "d/train.de.Xz"]).as_deref(), Some("en de"));
        for names in [["src.txt", "tgt.txt"], ["a.en", "b.en"], ["source", "target"]] {
            assert_eq!(languages(names), None, "{names:?}");
        }
        let languages = ["en", "de"].map(str::to_owned);
        assert_eq!(files(["d/train.en", "d/train.de"]).name(&languages), "d-en-de");
        assert_eq!(files(["d-en-de/train.en", "d-en-de/train.de"]).name(&languages), "d-en-de");
        assert_eq!(files(["news.en", "news.de"]).name(&languages), "news-en-de");
        assert_eq!(files(["news.en.GZ", "news.de.GZ"]).name(&languages), "news-en-de");
        assert!(Corpus::from_files(&["a.txt".into()], FieldsConfig::default()).is_err());
        assert!(Corpus::from_files(&["a.zip".into()], FieldsConfig::default()).is_err());
        assert!(Corpus::from_files(&[], FieldsConfig::default()).is_err());
    }

    #[test]
    fn endings_in_upper_case_are_read_and_left_out_of_recipes() {
        let folder = tempfile::tempdir().expect("folder");
        let languages = ["en", "de"].map(str::to_owned);
        for (name, is_found) in [("train.tsv", true), ("train.TSV", false), ("train.tab", false)] {
            let path = folder.path().join(name);
            std::fs::write(&path, "one\teins\ntwo\tzwei\n").expect("text");
            let corpus = Corpus::from_files(&[path], FieldsConfig::default()).expect("a table");
            assert_eq!(corpus.look(&languages).expect("readable").pairs, 2, "{name}");
            // The split `train` is looked for as `train.tsv`.
            assert_eq!(corpus.as_it_lies(&languages).is_some(), is_found, "{name}");
        }
        for (ending, is_found) in [("gz", true), ("GZ", false)] {
            let pair = files([&format!("a.en.{ending}"), &format!("a.de.{ending}")]);
            assert_eq!(pair.as_it_lies(&languages).is_some(), is_found, "{ending}");
        }
    }
}
