//! One corpus: its files, and their use in training.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FileList;
use crate::file_names::uncompressed;
use crate::{DataConfig, Error, FieldsConfig, Format, Result};

/// Weight of a corpus whose pairs are each taken once in an epoch.
const ONCE: f64 = 1.0;

/// Largest weight of a corpus in an epoch.
const HEAVIEST: f64 = 1000.0;

/// One corpus of sentence pairs: its place, and its use in training.
///
/// Its pairs are in the files of a `stem` in `data.dir`, in files `source` and `target` with one
/// sentence on each line, or in a `file` with both sides. In place of each file there may be
/// several, as a list or a pattern such as `train.*.gz`; they are read one after another.
/// Compressed files may end in `.gz`, `.zst`, `.xz`, `.bz2` or `.zip`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Corpus {
    /// The stem of the corpus's files in `data.dir`. `{ stem = "news" }` means the same as
    /// `"news"`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stem: String,
    /// The file with the sentences to translate, one on each line; or a list or a pattern of
    /// several files, each of which has a counterpart in `target`.
    #[serde(skip_serializing_if = "is_empty")]
    pub source: FileList,
    /// The file with the translations of the sentences in `source`, one on each line.
    #[serde(skip_serializing_if = "is_empty")]
    pub target: FileList,
    /// A file with both sides: a table (`.tsv`, `.csv`, `.jsonl` or `.parquet`), a translation
    /// memory (`.tmx`), a translation file (`.xlf`, `.po`), or a `.zip` with two text files whose
    /// names end in the languages.
    #[serde(skip_serializing_if = "is_empty")]
    pub file: FileList,
    /// The columns or fields of the table; if empty, those of `data.fields`.
    #[serde(skip_serializing_if = "FieldsConfig::is_default")]
    pub fields: FieldsConfig,
    /// Name in reports and in the file names of translations. Empty: the stem, or the name of the
    /// table or of the source file, followed by `from` and `to` if these are set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Source language, in a model of several directions; if empty, `data.source_language`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("x-idle" = ["not-translation"]))]
    pub from: String,
    /// Target language, in a model of several directions; if empty, `data.target_language`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("x-idle" = ["not-translation"]))]
    pub to: String,
    /// Number of passes over this corpus in an epoch of training: 2 takes each pair twice, and 0.25
    /// takes a quarter of the pairs, drawn anew in each epoch.
    #[serde(skip_serializing_if = "is_once")]
    #[schemars(range(max = 1000.0), extend("exclusiveMinimum" = 0.0))]
    pub weight: f64,
    /// Token such as `<news>` before each source sentence. With it the model can distinguish this
    /// corpus from others, and a text to translate can name the corpus that it resembles (Kobus et
    /// al. 2017, "Domain Control for Neural Machine Translation"). A tokenizer that the run trains
    /// has this token. Empty: no tag.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tag: String,
    /// File with word links, which `training.guided_alignment` needs. It has a line for each pair,
    /// such as `0-0 1-2`: each link is the number of a source word and the number of a target word,
    /// counted from 0. Only spaces and tabs divide words.
    #[serde(skip_serializing_if = "is_empty")]
    #[schemars(extend("x-idle" = ["not-guided"]))]
    pub links: FileList,
}

impl Default for Corpus {
    fn default() -> Self {
        Self {
            stem: String::new(),
            source: FileList::default(),
            target: FileList::default(),
            file: FileList::default(),
            fields: FieldsConfig::default(),
            name: String::new(),
            from: String::new(),
            to: String::new(),
            weight: ONCE,
            tag: String::new(),
            links: FileList::default(),
        }
    }
}

fn is_empty(files: &FileList) -> bool {
    files.is_empty()
}

fn is_once(weight: &f64) -> bool {
    *weight == ONCE
}

impl Corpus {
    /// Makes a corpus of the files with the stem `stem` in the corpus folder.
    pub fn of_stem(stem: &str) -> Self {
        Self { stem: stem.to_owned(), ..Self::default() }
    }

    /// Name of the corpus in reports.
    pub fn name(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        // Directions are part of the name, because two corpora may use the same files in opposite
        // directions.
        match (self.from.as_str(), self.to.as_str()) {
            ("", "") => self.name_of_files(),
            ("", to) => format!("{}.to-{to}", self.name_of_files()),
            (from, "") => format!("{}.from-{from}", self.name_of_files()),
            (from, to) => format!("{}.{from}-{to}", self.name_of_files()),
        }
    }

    fn name_of_files(&self) -> String {
        if !self.stem.is_empty() {
            return self.stem.clone();
        }
        let files = if is_empty(&self.file) { &self.source } else { &self.file };
        match &**files {
            [] => String::new(),
            [one] => stem_of(one),
            [first, others @ ..] => common_name(first, others),
        }
    }

    /// The four lists of files of the corpus. Lists that the configuration does not set are empty.
    pub(super) fn files_mut(&mut self) -> [&mut FileList; 4] {
        let Self { source, target, file, links, .. } = self;
        [source, target, file, links]
    }

    /// True if the pairs of the corpus have word links.
    pub fn has_links(&self) -> bool {
        !is_empty(&self.links)
    }

    /// Format of the pairs of the corpus.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`] if the files are of different kinds, or if neither their names nor the
    /// configuration determine the format.
    pub(crate) fn format(&self, config: &DataConfig) -> Result<Format> {
        if !is_empty(&self.source) {
            return Ok(Format::Text);
        }
        if is_empty(&self.file) {
            return Ok(config.format);
        }
        let of_name = self.file.first().and_then(|path| Format::by_name(path));
        if let Some(other) = self.file.iter().find(|path| Format::by_name(path) != of_name) {
            let message = format!(
                "is another kind of file than {}, but both are files of one corpus: put this file \
                 into a corpus of its own",
                self.file.first_path().display()
            );
            return Err(Error::Malformed { path: other.clone(), message });
        }
        match (of_name, config.format) {
            (Some(format), _) => Ok(format),
            (_, Format::Text | Format::Hub) => Err(Error::Malformed {
                path: self.file.first_path().to_owned(),
                message: "its name does not indicate the kind of file: call it .tsv, .csv, \
                          .jsonl, .parquet, .tmx, .xlf, .po or .zip, or set data.format; two \
                          files with one sentence per line are { source = \"…\", target = \"…\" }"
                    .to_owned(),
            }),
            (_, format) => Ok(format),
        }
    }

    /// Names of the columns or fields of the corpus's table. If the corpus sets none, these are the
    /// names in `config`.
    pub(crate) fn fields<'a>(&'a self, config: &'a DataConfig) -> &'a FieldsConfig {
        if self.fields.is_default() { &config.fields } else { &self.fields }
    }

    /// Refuses an impossible corpus. `key` is the key of its split in the configuration. A weight
    /// other than 1 is allowed only if `of_training` is true.
    pub(super) fn validate(&self, key: &'static str, of_training: bool) -> Result<()> {
        let wrong = |message: String| Err(Error::Config { key, message });
        let given = [!self.stem.is_empty(), !is_empty(&self.source), !is_empty(&self.file)];
        if is_empty(&self.source) != is_empty(&self.target) {
            return wrong(
                "names one of source and target; a corpus of two files needs both".to_owned(),
            );
        }
        if given.iter().filter(|given| **given).count() != 1 {
            return wrong(
                "each corpus needs one place: a name in data.dir, { source = \"a.txt\", target = \"b.txt\" }, or { file = \"table.tsv\" }".to_owned(),
            );
        }
        let mut sides = self.source.iter().zip(self.target.iter());
        if sides.any(|(source, target)| source == target) {
            return wrong("source and target are the same file".to_owned());
        }
        let lead = if is_empty(&self.file) { &self.source } else { &self.file };
        for (name, other) in [("target", &self.target), ("links", &self.links)] {
            if !is_empty(other) && !is_empty(lead) && other.len() != lead.len() {
                let first = if is_empty(&self.file) { "source" } else { "file" };
                return wrong(format!(
                    "{first} names {} files, but {name} names {}: each file needs one counterpart",
                    lead.len(),
                    other.len()
                ));
            }
        }
        if !(self.weight > 0.0 && self.weight <= HEAVIEST) {
            return wrong(format!(
                "weight = {:?}: it must be above 0 and at most {HEAVIEST}",
                self.weight
            ));
        }
        if self.weight != ONCE && !of_training {
            return wrong(
                "weights are for data.train: each pair of this set counts once".to_owned(),
            );
        }
        let inner = self.tag.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
        let is_mark = inner.is_some_and(|inner| {
            !inner.is_empty()
                && !inner.contains(['<', '>'])
                && !inner.contains(char::is_whitespace)
                && crate::text::tokenizer::is_text(&self.tag)
        });
        if !self.tag.is_empty() && !is_mark {
            return wrong(format!(
                "tag = {:?}: a tag is a word in angle brackets, such as \"<news>\", and no \
                 special token",
                self.tag
            ));
        }
        Ok(())
    }
}

/// File name without its ending. If the file is compressed, both endings are removed: `a` for
/// `a.csv.gz`.
fn stem_of(path: &Path) -> String {
    uncompressed(path).file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Longest common beginning of the file names, without the characters after its last letter. If it
/// has no letter, returns the name of the first file without its ending.
fn common_name(first: &Path, others: &[PathBuf]) -> String {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut common = name(first);
    for other in others {
        let other = name(other);
        let same = common.chars().zip(other.chars()).take_while(|(left, right)| left == right);
        common = same.map(|(left, _)| left).collect();
    }
    let common = common.trim_end_matches(|last: char| !last.is_alphabetic());
    if common.is_empty() { stem_of(first) } else { common.to_owned() }
}
