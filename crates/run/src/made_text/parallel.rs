//! Corpora of sentence pairs whose sources or targets are to be translated.

use anyhow::{Result, ensure};
use taper_data::{Corpora, DataConfig, PairReader, RawPair};

use super::cache::{Lines, Text, measured};
use crate::config::RunConfig;

/// Side of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Target,
}

/// Sentence pairs of a split (training, validation or test set) that a recipe (configuration of a
/// training) names.
#[derive(Debug, Clone)]
pub struct ParallelCorpus {
    data: DataConfig,
    split: Corpora,
    /// Name of the split.
    pub name: String,
}

impl ParallelCorpus {
    /// Split `name` of the recipe `config`, such as `train`. If the recipe has several directions
    /// of translation, the corpus has only the text from its source language to its target
    /// language.
    ///
    /// # Errors
    /// If a corpus of the split has a tag (a word that is put before each source, to mark the
    /// origin of the pairs), or if the split has no text in the recipe's direction.
    pub fn for_split(config: &RunConfig, name: &str) -> Result<Self> {
        let split: Corpora = match name == config.data.train.name() || name == "train" {
            true => config.data.train.clone(),
            false => config.data.split(name),
        };
        let split = config.data.in_own_direction(split)?;
        ensure!(
            !split.iter().any(|corpus| !corpus.tag.is_empty()),
            "{name}: its corpora have tags, which files of text cannot have: name corpora without \
                 tags in a recipe of their own"
        );
        Ok(Self { data: config.data.clone(), split, name: name.to_owned() })
    }

    /// Languages of the two sides.
    #[must_use]
    pub fn languages(&self) -> [&str; 2] {
        [&self.data.source_language, &self.data.target_language]
    }

    /// Pairs of the split, in order.
    ///
    /// # Errors
    /// If the files cannot be opened.
    pub(super) fn pairs(&self) -> Result<impl Iterator<Item = Result<[String; 2]>> + use<>> {
        let pairs = PairReader::open(&self.data, self.split.clone())?;
        let both = |RawPair { source, target, .. }| [source, target];
        Ok(pairs.map(move |pair| Ok(both(pair?))))
    }

    /// Function that reads the lines of a side from the first one on.
    pub(super) fn opener(&self, side: Side) -> impl Fn() -> Result<Lines> + '_ {
        move || {
            let pick = move |[source, target]: [String; 2]| match side {
                Side::Source => source,
                Side::Target => target,
            };
            Ok(Box::new(self.pairs()?.map(move |pair| pair.map(pick))))
        }
    }

    /// SHA-256 of the lines of a side.
    ///
    /// # Errors
    /// If the lines cannot be read.
    pub(super) fn hash(&self, side: Side) -> Result<String> {
        let open = self.opener(side);
        Ok(measured(&self.text(side, &open))?.1)
    }

    /// Text of one side of the split. `open` opens the text, as often as it is read.
    pub(super) fn text<'a>(&self, side: Side, open: &'a dyn Fn() -> Result<Lines>) -> Text<'a> {
        let [source, target] = self.languages();
        let language = if side == Side::Source { source } else { target };
        Text { open, name: format!("{}.{language}", self.name) }
    }
}
