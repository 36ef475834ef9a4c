//! Choice of the settings of the search for translations, by the quality of translations of a
//! validation set.
//!
//! Beam search takes most of the time; length settings (penalties and rewards that depend on the
//! length) only choose among its results. So the search runs once for each beam size, and all
//! length settings are applied to its results. This gives exactly what separate searches would
//! give. If the best value of a setting is the largest in the grid, larger values are tried. For a
//! run (trained model) that reranks candidate translations by several criteria, [`tune_weights`]
//! finds the weights of the criteria.

mod grid;
mod line_search;
mod weights;

use anyhow::{Result, bail, ensure};
use serde::Serialize;
use taper_decoding::{DecodingConfig, ExpectedLength, LengthSettings};
use taper_metrics::{Bleu, Chrf, Metric};

use super::ParallelText;
use super::split::Stopped;
use crate::LoadedRun;
use crate::translation::{LineTranslator, TranslationSettings, encode_sources};
use grid::Extensions;

pub use grid::{TuningGrid, Values};
pub use weights::{TunedWeights, WeightTrial, tune_weights};

/// Metric whose score tuning maximises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TuningMetric {
    /// BLEU.
    #[default]
    Bleu,
    /// chrF2.
    Chrf,
}

/// Settings of a search for translations, with the scores that they lead to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Trial {
    /// Value of `decoding.beam_size`.
    pub beam_size: usize,
    /// Length settings: penalties and rewards that depend on the length of a translation.
    #[serde(flatten)]
    pub lengths: LengthSettings,
    /// Scores of the translations with these settings.
    #[serde(flatten)]
    pub scores: TrialScores,
}

/// Scores of the translations of the split.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TrialScores {
    /// BLEU.
    pub bleu: f64,
    /// Brevity penalty, a factor in BLEU: below 1 if the translations are shorter than the
    /// references.
    pub brevity_penalty: f64,
    /// Number of words in the translations, divided by the number of words in the references.
    pub length_ratio: f64,
    /// chrF2.
    pub chrf: f64,
}

impl TrialScores {
    /// Score by the metric `metric`.
    #[must_use]
    pub fn value_of(&self, metric: TuningMetric) -> f64 {
        match metric {
            TuningMetric::Bleu => self.bleu,
            TuningMetric::Chrf => self.chrf,
        }
    }
}

impl Trial {
    /// Writes these settings into `decoding`.
    pub fn apply(&self, decoding: &mut DecodingConfig) {
        decoding.beam_size = self.beam_size;
        decoding.n_best = decoding.n_best.min(self.beam_size);
        self.lengths.apply(decoding);
    }

    /// Whether these settings are those in `decoding`.
    #[must_use]
    pub fn is_of(&self, decoding: &DecodingConfig) -> bool {
        self.beam_size == decoding.beam_size
            && self.lengths == LengthSettings::from_config(decoding)
    }
}

/// Results of a search for settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tuning {
    /// Number of sentences on which each trial is scored.
    pub sentences: usize,
    /// Settings in the configuration of the run, before tuning.
    pub before: Trial,
    /// Best settings; the settings of the run if no others are better.
    pub best: Trial,
    /// All trials, in the order in which they were made.
    pub trials: Vec<Trial>,
    /// Expected length of translations, depending on the source, that the searches used.
    pub expected_length: ExpectedLength,
}

/// Progress of a search for settings.
#[derive(Debug, Clone, Copy)]
pub enum TuningEvent<'a> {
    /// Progress of translation with one beam size.
    Translated {
        /// Beam size.
        beam_size: usize,
        /// Number of texts translated so far.
        done: usize,
        /// Number of all texts; parts of an overlong line do not count separately.
        sentences: usize,
    },
    /// Trials with one beam size, which have all been scored.
    Scored(&'a [Trial]),
}

/// Finds the settings in `grid` with which the translations that `run` makes of `split` have the
/// highest score in `metric`. At most `sentences` sentences, evenly spread over the split, are
/// translated. `observe` receives the progress.
///
/// # Errors
/// When the split cannot be read or translated, a setting of the grid is not valid, the run samples
/// its translations, or `observe` fails.
pub fn tune(
    run: &LoadedRun,
    split: &str,
    sentences: usize,
    grid: &TuningGrid,
    metric: TuningMetric,
    mut observe: impl FnMut(TuningEvent<'_>) -> Result<()>,
) -> Result<Tuning> {
    let config = &run.config;
    let grid = grid.with(&config.decoding);
    check(&grid, &config.decoding)?;
    let corpora = run.corpora(split)?;
    let text = ParallelText::read(&config.data, corpora)?.spread(sentences);
    let mut settings = TranslationSettings::from_config(config);
    if grid.expects_lengths() && settings.decoding.expected_length.is_unknown() {
        settings.decoding.expected_length = expected_length(run, &text)?;
    }
    let translator = LineTranslator::new(run, &settings)?;
    let scorer = Scorer::new(run, text.references.clone());
    let of_run = LengthSettings::from_config(&config.decoding);
    let mut trials: Vec<Trial> = Vec::new();
    let mut try_beam = |beam_size: usize, grid: &TuningGrid, trials: &mut Vec<Trial>| {
        let sentences = text.sources.len();
        let mut lengths = grid.lengths(of_run);
        lengths.retain(|lengths| {
            !trials.iter().any(|trial| trial.beam_size == beam_size && trial.lengths == *lengths)
        });
        let (mut observed, stopped) = (Ok(()), Stopped::default());
        let controlled = translator.under(&settings, &stopped);
        let under = controlled.best_under(&text.sources, beam_size, &lengths, |done| {
            if observed.is_ok() {
                observed = observe(TuningEvent::Translated { beam_size, done, sentences });
                stopped.set(observed.is_err());
            }
        });
        observed?;
        let under = under?;
        let mut scored = Vec::with_capacity(lengths.len());
        for (&lengths, translations) in lengths.iter().zip(&under) {
            scored.push(Trial { beam_size, lengths, scores: scorer.score(translations)? });
        }
        observe(TuningEvent::Scored(&scored))?;
        trials.extend(scored);
        anyhow::Ok(())
    };
    for &beam_size in &grid.beam_sizes.list {
        try_beam(beam_size, &grid, &mut trials)?;
    }
    let Some(before) = trials.iter().copied().find(|trial| trial.is_of(&config.decoding)) else {
        bail!("the run's own settings were not tried")
    };
    let mut extensions = Extensions::new(grid);
    let mut best = best_of(&trials, before, metric);
    while let Some((beam_size, grid)) = extensions.next(&best) {
        try_beam(beam_size, &grid, &mut trials)?;
        best = best_of(&trials, before, metric);
    }
    let expected_length = settings.decoding.expected_length;
    Ok(Tuning { sentences: text.sources.len(), before, best, trials, expected_length })
}

/// Refuses a run that samples its translations, and a grid with an impossible beam size.
fn check(grid: &TuningGrid, config: &DecodingConfig) -> Result<()> {
    ensure!(
        !config.sampling.is_active(),
        "translations of this run are drawn, not searched for: set \
             decoding.sampling.temperature=0 to tune the search"
    );
    for &beam_size in &grid.beam_sizes.list {
        DecodingConfig { beam_size, n_best: 1, ..config.clone() }.validate()?;
    }
    Ok(())
}

/// Expected length of translations, estimated from the lengths of sources and references. It is for
/// a run that has not measured it in training.
fn expected_length(run: &LoadedRun, text: &ParallelText) -> Result<ExpectedLength> {
    let sources = encode_sources(&run.tokenizers, &text.sources)?;
    let targets = run.tokenizers.target().encode_batch(&text.references)?;
    // As in training and in a search, the length of a target includes the special tokens before it,
    // such as the token that names its language.
    let before = run.tokenizers.target().before_target().len();
    let lengths = sources.iter().zip(&targets);
    Ok(ExpectedLength::fit(
        lengths.map(|(source, target)| (source.len().saturating_sub(1), before + target.len())),
    ))
}

/// Trial with the highest score by `metric`, or `before` if no trial scores higher than it. If
/// several are equal, it is the first of them.
fn best_of(trials: &[Trial], before: Trial, metric: TuningMetric) -> Trial {
    trials.iter().fold(before, |best, trial| {
        if trial.scores.value_of(metric) > best.scores.value_of(metric) { *trial } else { best }
    })
}

/// Scorer of translations of the split.
struct Scorer {
    bleu: Bleu,
    chrf: Chrf,
    references: [Vec<String>; 1],
}

impl Scorer {
    fn new(run: &LoadedRun, references: Vec<String>) -> Self {
        let scoring = run.config.scoring();
        let (tokenizer, lowercase) = (scoring.tokenize, scoring.lowercase);
        Self {
            bleu: Bleu { tokenizer, lowercase, ..Bleu::default() },
            chrf: Chrf { lowercase, ..Chrf::default() },
            references: [references],
        }
    }

    /// Implementation of `metric`, with the run's settings.
    fn metric(&self, metric: TuningMetric) -> &dyn Metric {
        match metric {
            TuningMetric::Bleu => &self.bleu,
            TuningMetric::Chrf => &self.chrf,
        }
    }

    fn score(&self, translations: &[String]) -> Result<TrialScores> {
        let bleu = self.bleu.corpus(translations, &self.references)?;
        Ok(TrialScores {
            bleu: bleu.score,
            brevity_penalty: bleu.brevity_penalty,
            length_ratio: bleu.length_ratio(),
            chrf: self.chrf.corpus(translations, &self.references)?.score,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_as_good_stays() {
        let trial = |beam_size, bleu| Trial {
            beam_size,
            lengths: LengthSettings::from_config(&DecodingConfig::default()),
            scores: TrialScores { bleu, brevity_penalty: 1.0, length_ratio: 1.0, chrf: -bleu },
        };
        let (before, trials) = (trial(5, 2.0), [trial(2, 2.0), trial(4, 3.0), trial(8, 3.0)]);
        assert_eq!(best_of(&trials, before, TuningMetric::Bleu).beam_size, 4);
        assert_eq!(best_of(&trials, before, TuningMetric::Chrf).beam_size, 5);
    }
}
