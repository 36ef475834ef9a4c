//! Scores of hostile variants of a test set, beside those of the set as it is.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use taper_data::Hostility;
use taper_model::TranslationModel;

use super::measure::{asked_splits, of_split};
use super::{ParallelText, Split, TextScores};
use crate::config::RunConfig;
use crate::event::RunObserver;
use crate::folder::RunFolder;
use crate::loaded_run::{LoadSettings, LoadedRun};
use crate::tasks::entry;
use crate::translation::{LineTranslator, TranslationSettings};

/// Scores of one hostile variant, each with that of the unchanged lines.
#[derive(Debug, Clone, Serialize)]
pub struct HostileScores {
    /// Kind of the variant.
    pub kind: &'static str,
    /// Number of lines that could be made.
    pub lines: usize,
    /// Name of the score: BLEU, or for single words the share of words that the reference of their
    /// line has, in percent.
    pub score_name: &'static str,
    /// Score of the hostile lines.
    pub score: f64,
    /// Score of the lines that they were made of.
    pub clean_score: f64,
    /// chrF2 of the hostile lines; `None` for single words, which have no references.
    pub chrf: Option<f64>,
    /// chrF2 of the lines that they were made of.
    pub clean_chrf: Option<f64>,
}

/// Scores of the hostile variants of a test set.
#[derive(Debug, Clone, Serialize)]
pub struct HostileTestSet {
    /// The split's name.
    pub split: String,
    /// Scores, one for each kind that the set has lines for.
    pub scores: Vec<HostileScores>,
}

impl HostileTestSet {
    /// Lines of a report.
    #[must_use]
    pub fn text(&self) -> Vec<String> {
        let mut lines = vec![format!("{}, made hostile", self.split)];
        for one in &self.scores {
            let share = |score: f64, clean: f64| match clean > 0.0 {
                true => format!("{score:.2} of {clean:.2} ({:.1} %)", 100.0 * score / clean),
                false => format!("{score:.2} of {clean:.2}"),
            };
            let chrf = one.chrf.zip(one.clean_chrf);
            let chrf = chrf.map_or_else(String::new, |(chrf, clean)| {
                format!(", chrF2 {}", share(chrf, clean))
            });
            lines.push(format!(
                "  {} ({} lines): {} {}{chrf}",
                one.kind,
                one.lines,
                one.score_name,
                share(one.score, one.clean_score)
            ));
        }
        lines
    }
}

/// Scores hostile variants of `splits`, by default of the test sets, of the run at `root`; `change`
/// may alter the search. `told` receives each result at once.
///
/// # Errors
/// When the run does not translate, a split cannot be read, or the run cannot be loaded.
pub fn evaluate_hostile(
    root: &Path,
    load: &LoadSettings,
    splits: &[String],
    change: impl FnOnce(&mut RunConfig) -> Result<()>,
    observer: &mut dyn RunObserver,
    mut told: impl FnMut(&HostileTestSet) -> Result<()>,
) -> Result<Vec<HostileTestSet>> {
    let task = RunFolder::open(root)?.load_config(&load.overrides)?.task;
    if !entry(task).translates {
        bail!("--hostile is for translation, and the run's task is {task}: leave it out");
    }
    let every = LoadSettings { every_direction: true, from: None, to: None, ..load.clone() };
    let mut run = LoadedRun::<TranslationModel>::open(root, &every)?;
    change(&mut run.config)?;
    let mut sets = Vec::new();
    for split in asked_splits::<TranslationModel>(&run.config, splits, load)? {
        let (config, tokenizers) = of_split(&run.config, &run.tokenizers, &split)?;
        let named = Split { name: &split, config: &config, tokenizers: &tokenizers };
        let set = HostileTestSet::of(named, &run.model, observer)?;
        told(&set)?;
        sets.push(set);
    }
    Ok(sets)
}

impl HostileTestSet {
    fn of(
        split: Split<'_>,
        model: &TranslationModel,
        observer: &mut dyn RunObserver,
    ) -> Result<Self> {
        let Split { config, tokenizers, name } = split;
        let text = ParallelText::read(&config.data, split.corpora())?;
        let translator = LineTranslator::of(model, tokenizers, &TranslationSettings::of(config));
        let mut translate = |lines: &[String]| -> Result<Vec<String>> {
            let found = split
                .observed(lines.len(), observer, |progress| translator.best(lines, progress))?;
            Ok(found.texts)
        };
        let clean = translate(&text.sources)?;
        let mut scores = Vec::new();
        for kind in Hostility::ALL {
            let lines = kind.lines(&text.sources);
            if lines.is_empty() {
                continue;
            }
            let sources: Vec<String> = lines.iter().map(|line| line.source.clone()).collect();
            let hostile = translate(&sources)?;
            let hostile: Vec<String> = hostile.iter().map(|text| kind.compared(text)).collect();
            let whole = |texts: &[String]| -> Vec<String> {
                lines.iter().map(|line| kind.whole(line, texts)).collect()
            };
            let (clean, references) = (whole(&clean), whole(&text.references));
            let score = |texts: &[String]| TextScores::new(texts, &references, &config.scoring());
            let hostile = score(&hostile).with_context(|| format!("split `{name}`"))?;
            scores.push(HostileScores::new(kind, lines.len(), &hostile, &score(&clean)?));
        }
        Ok(Self { split: name.to_owned(), scores })
    }
}

impl HostileScores {
    fn new(kind: Hostility, lines: usize, hostile: &TextScores, clean: &TextScores) -> Self {
        // A word has no reference of its own: it should be in that of its line.
        let is_word = kind == Hostility::OneWord;
        let score = |scores: &TextScores| match is_word {
            true => {
                let [matches, total] = [&scores.bleu.matches, &scores.bleu.totals]
                    .map(|counts| counts.first().copied().unwrap_or(0));
                100.0 * matches as f64 / total.max(1) as f64
            }
            false => scores.bleu.score,
        };
        let chrf = |scores: &TextScores| (!is_word).then_some(scores.chrf.score);
        Self {
            kind: kind.name(),
            lines,
            score_name: if is_word { "words of the references" } else { "BLEU" },
            score: score(hostile),
            clean_score: score(clean),
            chrf: chrf(hostile),
            clean_chrf: chrf(clean),
        }
    }
}
