//! Scores of hostile variants of a test set, beside those of the set as it is.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use taper_data::{Direction, Hostility};
use taper_model::TranslationModel;

use super::measure::{measure, open};
use super::{Evaluation, ParallelText, Split, TextScores};
use crate::config::RunConfig;
use crate::event::{RunEvent, RunObserver};
use crate::folder::RunFolder;
use crate::folder::files::write_atomically;
use crate::loaded_run::LoadSettings;
use crate::tasks::entry;
use crate::translation::{LineTranslator, TranslationSettings};

/// A score of hostile lines, with that of the lines that they were made of.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct HostileScore {
    /// Score of the hostile lines.
    pub score: f64,
    /// Score of the unchanged lines.
    pub clean: f64,
    /// Percentage of the second that the first is; `None` if that is 0.
    pub share: Option<f64>,
}

/// Scores of one hostile variant.
#[derive(Debug, Clone, Serialize)]
pub struct HostileScores {
    /// Name of the variant.
    pub variant: &'static str,
    /// Number of lines that could be made.
    pub lines: usize,
    /// BLEU; of single words the percentage of words in the translation that the reference of
    /// their line has.
    pub bleu: HostileScore,
    /// chrF2; `None` for single words, which have no references of their own.
    pub chrf: Option<HostileScore>,
}

/// Scores of the hostile variants of a test set.
#[derive(Debug, Clone, Serialize)]
pub struct HostileTestSet {
    /// Name of the split.
    pub split: String,
    /// Direction such as `en-de`, in a run of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Scores, one for each variant that the set has lines for.
    pub variants: Vec<HostileScores>,
}

impl HostileTestSet {
    /// Lines of a report: a table.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let heads = ["lines", "BLEU", "clean", "share", "chrF2", "clean", "share"];
        let heads: String = heads.map(|head| format!("{head:>8}")).concat();
        let mut lines = vec![format!("{}, made hostile", self.split), format!("{:<18}{heads}", "")];
        for HostileScores { variant, lines: count, bleu, chrf } in &self.variants {
            let scores: String = [Some(bleu), chrf.as_ref()].map(cells).concat();
            lines.push(format!("  {variant:<16}{count:>8}{scores}").trim_end().to_owned());
        }
        if self.variants.iter().any(|one| one.chrf.is_none()) {
            lines.push(
                "  (one word: percentage of its translation that the reference has)".to_owned(),
            );
        }
        lines
    }
}

fn cells(score: Option<&HostileScore>) -> String {
    let Some(HostileScore { score, clean, share }) = score else { return String::new() };
    let share = share.map_or_else(|| "–".to_owned(), |share| format!("{share:.1} %"));
    format!("{score:>8.2}{clean:>8.2}{share:>8}")
}

/// Scores hostile variants of `splits`, by default of the test sets, of the run at `root`; `change`
/// may alter the search. The observer receives each result at once, and the run a file with all.
///
/// # Errors
/// When the run does not translate, a split cannot be read, or the run cannot be loaded or written
/// to.
pub fn evaluate_hostile(
    root: &Path,
    load: &LoadSettings,
    splits: &[String],
    change: impl FnOnce(&mut RunConfig) -> Result<()>,
    observer: &mut dyn RunObserver,
) -> Result<Evaluation<HostileTestSet>> {
    let folder = RunFolder::open(root)?;
    let task = folder.load_config(&load.overrides)?.task;
    if !entry(task).translates {
        bail!("--hostile is for translation, and the task of the run is {task}: leave it out");
    }
    let run = open::<TranslationModel>(root, load, change)?;
    let evaluation = measure(run, splits, load, observer, |split, model, observer| {
        let set = HostileTestSet::new(split, model, observer)?;
        observer.observe(&RunEvent::MeasuredHostile(&set))?;
        Ok(set)
    })?;
    let json = serde_json::to_vec_pretty(&evaluation.record(root)?)?;
    write_atomically(&folder.hostile_scores(), &json)?;
    Ok(evaluation)
}

impl HostileTestSet {
    fn new(
        split: Split<'_>,
        model: &TranslationModel,
        observer: &mut dyn RunObserver,
    ) -> Result<Self> {
        let Split { config, tokenizers, name } = split;
        let text = ParallelText::read(&config.data, split.corpora())?;
        let translator = LineTranslator::of(model, tokenizers, &TranslationSettings::of(config))?;
        let mut translate = |lines: &[String]| -> Result<Vec<String>> {
            let work = |progress: &mut dyn FnMut(usize)| translator.best(lines, progress);
            Ok(split.observed(lines.len(), observer, work)?.texts)
        };
        let clean = translate(&text.sources)?;
        let mut variants = Vec::new();
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
            let references = whole(&text.references);
            let scores = |texts: &[String]| {
                TextScores::new(texts, &references, &config.scoring())
                    .with_context(|| format!("split `{name}`"))
            };
            let (hostile, clean) = (scores(&hostile)?, scores(&whole(&clean))?);
            variants.push(HostileScores::new(kind, lines.len(), &hostile, &clean));
        }
        let data = &config.data;
        let direction = || Direction::new(&data.source_language, &data.target_language).to_string();
        let direction = data.is_multilingual().then(direction);
        Ok(Self { split: name.to_owned(), direction, variants })
    }
}

impl HostileScores {
    fn new(kind: Hostility, lines: usize, hostile: &TextScores, clean: &TextScores) -> Self {
        let score = |of: &dyn Fn(&TextScores) -> f64| {
            let (score, clean) = (of(hostile), of(clean));
            HostileScore { score, clean, share: (clean > 0.0).then(|| 100.0 * score / clean) }
        };
        // A word has no reference of its own: it should be in that of its line.
        let is_word = kind == Hostility::OneWord;
        let bleu = |scores: &TextScores| match is_word {
            true => {
                let first = |counts: &[u64]| counts.first().copied().unwrap_or(0) as f64;
                100.0 * first(&scores.bleu.matches) / first(&scores.bleu.totals).max(1.0)
            }
            false => scores.bleu.score,
        };
        let chrf = (!is_word).then(|| score(&|scores| scores.chrf.score));
        Self { variant: kind.name(), lines, bleu: score(&bleu), chrf }
    }
}
