//! Scores of hostile variants of a test set. The lines of a hostile variant are changed so that
//! they are harder to translate. The scores of the original lines are given, too.

use std::path::Path;

use anyhow::{Context, Result, bail};
use taper_data::{Direction, Hostility};
use taper_model::TranslationModel;

use super::measure::{measure, open};
use super::results::{HostileScore, HostileScores, HostileTestSet};
use super::{Evaluation, ParallelText, Split, TextScores};
use crate::config::RunConfig;
use crate::event::{RunEvent, RunObserver};
use crate::folder::RunFolder;
use crate::folder::files::write_atomically;
use crate::loaded_run::LoadSettings;
use crate::tasks::entry;
use crate::translation::{LineTranslator, TranslationSettings};

/// Scores how the run (folder of a trained model) at `root` translates hostile variants of `splits`
/// or, if `splits` is empty, of its test sets. `change` may alter the settings of the search. The
/// observer receives each result when it is known, and all results are written to a file in the
/// run.
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
        bail!("only translation is measured with hostile text, but the task of the run is {task}");
    }
    let run = open::<TranslationModel>(root, load, change)?;
    let evaluation = measure(run, splits, load, observer, |split, model, observer| {
        let set = test_set(split, model, observer)?;
        observer.observe(&RunEvent::MeasuredHostile(&set))?;
        Ok(set)
    })?;
    let json = serde_json::to_vec_pretty(&evaluation.record(root)?)?;
    write_atomically(&folder.hostile_scores(), &json)?;
    Ok(evaluation)
}

fn test_set(
    split: Split<'_>,
    model: &TranslationModel,
    observer: &mut dyn RunObserver,
) -> Result<HostileTestSet> {
    let Split { config, tokenizers, shortlist, name, .. } = split;
    let text = ParallelText::read(&config.data, split.corpora())?;
    let settings = TranslationSettings::from_config(config);
    let translator = LineTranslator::from_model(model, tokenizers, shortlist, &settings)?;
    let mut translate = |lines: &[String]| -> Result<Vec<String>> {
        let translated = split.observed(lines.len(), observer, |progress, control| {
            translator.under(&settings, control).best(lines, progress)
        });
        Ok(translated?.texts)
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
        variants.push(scores_of(kind, lines.len(), &hostile, &clean));
    }
    let data = &config.data;
    let direction = || Direction::new(&data.source_language, &data.target_language).to_string();
    let direction = data.is_multilingual().then(direction);
    Ok(HostileTestSet { split: name.to_owned(), direction, variants })
}

fn scores_of(
    kind: Hostility,
    lines: usize,
    hostile: &TextScores,
    clean: &TextScores,
) -> HostileScores {
    let score = |metric: &dyn Fn(&TextScores) -> f64| {
        let (score, clean) = (metric(hostile), metric(clean));
        HostileScore { score, clean, share: (clean > 0.0).then(|| 100.0 * score / clean) }
    };
    // The lines of one variant are single words. A single word has no reference of its own, so a
    // translated word counts as right if the reference of the whole line contains it.
    let is_word = kind == Hostility::OneWord;
    let bleu = |scores: &TextScores| match is_word {
        true => {
            let first = |counts: &[u64]| counts.first().copied().unwrap_or(0) as f64;
            100.0 * first(&scores.bleu.matches) / first(&scores.bleu.totals).max(1.0)
        }
        false => scores.bleu.score,
    };
    let chrf = (!is_word).then(|| score(&|scores| scores.chrf.score));
    HostileScores { variant: kind.name(), lines, bleu: score(&bleu), chrf }
}
