//! Choice of search settings by the quality of translations of the validation set.
//!
//! Beam search takes the time; length penalty and length reward only choose among its results. So
//! the search runs once for each beam size, and every penalty with every reward is applied to its
//! results, exactly like a separate search.

use anyhow::{Result, bail};
use serde::Serialize;
use taper_decoding::DecodingConfig;
use taper_metrics::{Bleu, Chrf};

use super::ParallelText;
use crate::LoadedRun;
use crate::translation::{LineTranslator, TranslationSettings};

/// Score to maximise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TuningMetric {
    /// BLEU.
    #[default]
    Bleu,
    /// chrF2.
    Chrf,
}

/// Grid of settings to try, in addition to the settings of the run: every combination.
#[derive(Debug, Clone, PartialEq)]
pub struct TuningGrid {
    /// Values of `decoding.beam_size`.
    pub beam_sizes: Vec<usize>,
    /// Values of `decoding.length_penalty`.
    pub length_penalties: Vec<f64>,
    /// Values of `decoding.length_reward`.
    pub length_rewards: Vec<f64>,
}

impl Default for TuningGrid {
    fn default() -> Self {
        Self {
            beam_sizes: vec![2, 4, 8],
            length_penalties: vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4],
            length_rewards: vec![0.0, 0.1, 0.2, 0.3],
        }
    }
}

impl TuningGrid {
    /// Sorts each list, and adds the settings of `decoding`.
    fn with(&self, decoding: &DecodingConfig) -> Self {
        let all = |values: &[f64], own: f64| {
            let mut all = [values, &[own]].concat();
            all.sort_by(f64::total_cmp);
            all.dedup();
            all
        };
        let mut beam_sizes = [self.beam_sizes.as_slice(), &[decoding.beam_size]].concat();
        beam_sizes.sort_unstable();
        beam_sizes.dedup();
        Self {
            beam_sizes,
            length_penalties: all(&self.length_penalties, decoding.length_penalty),
            length_rewards: all(&self.length_rewards, decoding.length_reward),
        }
    }

    /// Every penalty with every reward, small rewards first: among equally good settings, a smaller
    /// reward is preferred.
    fn lengths(&self) -> Vec<(f64, f64)> {
        let with_penalties =
            |&reward: &f64| self.length_penalties.iter().map(move |&penalty| (penalty, reward));
        self.length_rewards.iter().flat_map(with_penalties).collect()
    }
}

/// Settings of a search, with their scores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Trial {
    /// Value of `decoding.beam_size`.
    pub beam_size: usize,
    /// Value of `decoding.length_penalty`.
    pub length_penalty: f64,
    /// Value of `decoding.length_reward`.
    pub length_reward: f64,
    /// BLEU.
    pub bleu: f64,
    /// BLEU's brevity penalty: below 1 if translations are too short.
    pub brevity_penalty: f64,
    /// Ratio of the words of the translations to those of the references.
    pub length_ratio: f64,
    /// chrF2.
    pub chrf: f64,
}

impl Trial {
    /// Value of the score to maximise.
    #[must_use]
    pub fn score(&self, metric: TuningMetric) -> f64 {
        match metric {
            TuningMetric::Bleu => self.bleu,
            TuningMetric::Chrf => self.chrf,
        }
    }

    /// Writes these settings into `decoding`.
    pub fn apply(&self, decoding: &mut DecodingConfig) {
        decoding.beam_size = self.beam_size;
        decoding.n_best = decoding.n_best.min(self.beam_size);
        decoding.length_penalty = self.length_penalty;
        decoding.length_reward = self.length_reward;
    }

    /// Whether these are the settings of `decoding`.
    #[must_use]
    pub fn is_of(&self, decoding: &DecodingConfig) -> bool {
        self.beam_size == decoding.beam_size
            && self.length_penalty == decoding.length_penalty
            && self.length_reward == decoding.length_reward
    }
}

/// Results of a search for settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tuning {
    /// Number of sentences scored for each.
    pub sentences: usize,
    /// Settings of the run.
    pub before: Trial,
    /// Best settings; the run's if none are better.
    pub best: Trial,
    /// All trials, beam by beam.
    pub trials: Vec<Trial>,
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
        /// Number of all texts, not counting parts of overlong lines.
        sentences: usize,
    },
    /// Scores with one beam size.
    Scored(&'a [Trial]),
}

/// Finds the settings of `grid` with which `run` translates the split `split` best, on at most
/// `sentences` sentences. `observe` receives the progress.
///
/// # Errors
/// When the split cannot be read or decoded, a setting of the grid is not valid, the run samples
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
    if config.decoding.sampling.is_active() {
        bail!(
            "translations of this run are drawn, not searched for: set \
             decoding.sampling.temperature=0 to tune the search"
        );
    }
    let grid = grid.with(&config.decoding);
    let lengths = grid.lengths();
    for &beam_size in &grid.beam_sizes {
        DecodingConfig { beam_size, n_best: 1, ..config.decoding.clone() }.validate()?;
    }
    let text = ParallelText::read(&config.data, config.data.split(split))?.spread(sentences);
    let translator = LineTranslator::new(run, &TranslationSettings::of(config))?;
    let scorer = Scorer::new(run, &text);
    let mut trials = Vec::new();
    for &beam_size in &grid.beam_sizes {
        let sentences = text.sources.len();
        let mut observed = Ok(());
        let under = translator.best_under(&text.sources, beam_size, &lengths, |done| {
            if observed.is_ok() {
                observed = observe(TuningEvent::Translated { beam_size, done, sentences });
            }
        })?;
        observed?;
        let mut scored = Vec::with_capacity(lengths.len());
        for (&(length_penalty, length_reward), translations) in lengths.iter().zip(&under) {
            scored.push(scorer.score(translations, beam_size, length_penalty, length_reward)?);
        }
        observe(TuningEvent::Scored(&scored))?;
        trials.extend(scored);
    }
    let Some(before) = trials.iter().copied().find(|trial| trial.is_of(&config.decoding)) else {
        bail!("the run's own settings were not tried")
    };
    let best = best(&trials, before, metric);
    Ok(Tuning { sentences: text.sources.len(), before, best, trials })
}

/// Trial with the highest score: `before` if none is higher, else the first of equals, which has
/// the smallest beam.
fn best(trials: &[Trial], before: Trial, metric: TuningMetric) -> Trial {
    trials.iter().fold(
        before,
        |best, trial| {
            if trial.score(metric) > best.score(metric) { *trial } else { best }
        },
    )
}

/// Scores translations of the split.
struct Scorer {
    bleu: Bleu,
    chrf: Chrf,
    references: [Vec<String>; 1],
}

impl Scorer {
    fn new(run: &LoadedRun, text: &ParallelText) -> Self {
        let scoring = run.config.scoring();
        let (tokenizer, lowercase) = (scoring.tokenize, scoring.lowercase);
        Self {
            bleu: Bleu { tokenizer, lowercase, ..Bleu::default() },
            chrf: Chrf { lowercase, ..Chrf::default() },
            references: [text.references.clone()],
        }
    }

    fn score(
        &self,
        translations: &[String],
        beam_size: usize,
        length_penalty: f64,
        length_reward: f64,
    ) -> Result<Trial> {
        let bleu = self.bleu.corpus(translations, &self.references)?;
        Ok(Trial {
            beam_size,
            length_penalty,
            length_reward,
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
    fn the_grid_has_every_combination_and_the_runs_own() {
        let own = DecodingConfig {
            beam_size: 5,
            length_penalty: 0.7,
            length_reward: 0.1,
            ..DecodingConfig::default()
        };
        let grid = TuningGrid::default().with(&own);
        assert_eq!(grid.beam_sizes, [2, 4, 5, 8]);
        assert_eq!(grid.length_rewards, TuningGrid::default().length_rewards);
        assert_eq!(grid.lengths().len(), 9 * 4);
        assert!(grid.lengths().contains(&(0.7, 0.1)));
    }

    #[test]
    fn what_is_as_good_stays() {
        let trial = |beam_size, bleu| Trial {
            beam_size,
            length_penalty: 0.6,
            length_reward: 0.0,
            bleu,
            brevity_penalty: 1.0,
            length_ratio: 1.0,
            chrf: -bleu,
        };
        let (before, trials) = (trial(5, 2.0), [trial(2, 2.0), trial(4, 3.0), trial(8, 3.0)]);
        assert_eq!(best(&trials, before, TuningMetric::Bleu).beam_size, 4);
        assert_eq!(best(&trials, before, TuningMetric::Chrf).beam_size, 5);
    }
}
