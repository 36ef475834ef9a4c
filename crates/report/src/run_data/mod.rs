//! A run on disk (a training with its files), with everything that a report needs.

pub(crate) mod chosen;
mod parent;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use taper_data::{read_pairs, read_regular};
use taper_plots::Language;
use taper_run::evaluation::ParallelText;
use taper_run::folder::{Command, RunSummary};
use taper_run::tasks::entry;
use taper_run::{RunConfig, RunFolder, one_line};

use self::chosen::ChosenSentence;
pub use self::parent::Parent;
use crate::curves::{curves, layer_figures};
use crate::figures::NamedFigure;
use crate::record::Record;
use crate::ridges::spread_figures;
use crate::sentences::{Scoring, SentenceSet};
use crate::words::Frequencies;
use crate::{classified, regressed, translated};

/// Largest number of bytes that are read from a JSON file or a file of translations.
const MOST_BYTES: u64 = 1 << 31;

/// A run on disk.
#[derive(Debug)]
pub struct RunData {
    /// Name of the run.
    pub name: String,
    /// Folder of the run.
    pub folder: RunFolder,
    /// State and progress of the run.
    pub summary: RunSummary,
    /// Recipe of the run.
    pub config: RunConfig,
    /// Record of the training.
    pub record: Record,
    /// Content of `data.json`, if the file exists.
    pub data: Option<Value>,
    /// Results on test sets, in the form of `scores.json`.
    pub scores: Vec<Value>,
    /// Results on hostile variants of test sets, in the form of `scores.hostile.json`. In a hostile
    /// variant, lines are changed to be harder to translate.
    pub hostile: Vec<Value>,
    /// Commands that began and continued the run, in order.
    pub commands: Vec<Command>,
    /// Text of the commands that repeat the training, score the run and make its page. The page
    /// shows this text unless it is empty.
    pub again: String,
    /// Run that gave this run its first weights; `None` if there was none, or it no longer exists.
    pub parent: Option<Parent>,
    /// Test sets that the run has translated, with the translation of each sentence.
    pub sets: Vec<SentenceSet>,
    /// Sentences whose attention is shown, added by [`RunData::look`].
    pub chosen: Vec<ChosenSentence>,
    /// Parts of a report that are missing because they could not be read, each with the reason.
    pub missing: Vec<String>,
}

impl RunData {
    /// Reads the run in `root`. Parts that cannot be read, for example because they no longer
    /// exist, are listed in `missing`.
    ///
    /// # Errors
    /// When there is no run, or a file of the run is damaged.
    pub fn read(root: &Path) -> Result<Self> {
        let folder = RunFolder::open(root)?;
        let config = folder.load_config(&[])?;
        let scores = match json(&folder.scores())? {
            None => Vec::new(),
            Some(Value::Array(results)) => results,
            Some(_) => anyhow::bail!("{} does not hold scores", folder.scores().display()),
        };
        let hostile = match json(&folder.hostile_scores())? {
            None => Vec::new(),
            Some(record) => record["results"].as_array().cloned().unwrap_or_default(),
        };
        let path = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let name = path.file_name().unwrap_or(root.as_os_str()).to_string_lossy().into_owned();
        let mut data = Self {
            name,
            summary: RunSummary::read(&folder),
            record: Record::read(&folder.metrics())?,
            data: json(&folder.data_report())?,
            parent: None,
            commands: folder.commands()?,
            again: String::new(),
            sets: Vec::new(),
            chosen: Vec::new(),
            missing: Vec::new(),
            scores,
            hostile,
            config,
            folder,
        };
        match Parent::find(&data.commands) {
            Ok(parent) => data.parent = parent,
            Err(error) => data.missing.push(format!("the run before: {}", one_line(&error))),
        }
        data.read_sets();
        Ok(data)
    }

    /// Reads the splits that this run has translated.
    fn read_sets(&mut self) {
        if !entry(self.config.task).translates || self.scores.is_empty() {
            return;
        }
        let frequencies = self.frequencies().unwrap_or_else(|error| {
            self.missing.push(format!("frequencies of words: {}", one_line(&error)));
            None
        });
        let splits = self.scores.iter().filter_map(|one| Some(one["split"].as_str()?.to_owned()));
        for split in splits.collect::<Vec<_>>() {
            match self.read_set(&split, frequencies.as_ref()) {
                Ok(set) => self.sets.push(set),
                Err(error) => {
                    self.missing.push(format!("sentences of `{split}`: {}", one_line(&error)));
                }
            }
        }
    }

    fn read_set(&mut self, split: &str, frequencies: Option<&Frequencies>) -> Result<SentenceSet> {
        let path = self.folder.translations(split);
        let translations = read_regular(&path, MOST_BYTES)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let translations = String::from_utf8(translations)
            .with_context(|| format!("{} is not UTF-8", path.display()))?;
        let mut lines: Vec<String> = translations.split('\n').map(str::to_owned).collect();
        // The file ends with a line break, so the last part is empty.
        lines.pop();
        let text = ParallelText::read(&self.config.data, self.config.data.split(split))?;
        let scoring = self.config.scoring();
        let scoring = Scoring { tokenizer: scoring.tokenize, lowercase: scoring.lowercase };
        let text = (&*text.sources, &*text.references);
        let mut set = SentenceSet::new(split, text, &lines, scoring, frequencies)?;
        if let Err(error) = self.read_links(split, &mut set) {
            self.missing.push(format!("links of words of `{split}`: {}", one_line(&error)));
        }
        Ok(set)
    }

    /// Adds the links between aligned words to `set`, if the run has stored links for the split.
    fn read_links(&self, split: &str, set: &mut SentenceSet) -> Result<()> {
        let path = self.folder.translation_links(split);
        if !fs::exists(&path).unwrap_or(false) {
            return Ok(());
        }
        let bytes = read_regular(&path, MOST_BYTES)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let links = lines.map(serde_json::from_slice).collect::<Result<_, _>>();
        set.link(links.with_context(|| format!("{} does not hold links", path.display()))?)
            .with_context(|| path.display().to_string())
    }

    /// Counts the words in the source of the training text.
    fn frequencies(&self) -> Result<Option<Frequencies>> {
        let mut frequencies = Frequencies::default();
        for pair in read_pairs(&self.config.data, &self.config.data.train)? {
            frequencies.add(&pair.source);
        }
        Ok(Some(frequencies))
    }

    /// Returns every figure of the run.
    ///
    /// # Errors
    /// When test sets cannot be scored.
    pub fn figures(&self, language: Language) -> Result<Vec<NamedFigure>> {
        let mut figures = curves(&[(&self.name, &self.record)], language);
        figures.extend(spread_figures(&self.record, language));
        figures.extend(layer_figures(&self.record, language));
        for set in &self.sets {
            figures.extend(translated::figures(set, language)?);
        }
        for result in &self.scores {
            figures.extend(test_set_figures(result, language));
        }
        figures.extend(chosen::figures(&self.chosen, language));
        Ok(figures)
    }
}

/// Figures that are drawn from the result of a test set in `scores.json`. They do not include the
/// figures of its sentences.
pub(crate) fn test_set_figures(result: &Value, language: Language) -> Vec<NamedFigure> {
    let mut figures = classified::figures(result, language);
    figures.extend(regressed::figure(result, language));
    figures
}

/// Returns the content of a JSON file; `None` if there is no file.
pub(crate) fn json(path: &Path) -> Result<Option<Value>> {
    if !fs::exists(path).unwrap_or(false) {
        return Ok(None);
    }
    let bytes = read_regular(path, MOST_BYTES)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let value = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is not JSON", path.display()))?;
    Ok(Some(value))
}
