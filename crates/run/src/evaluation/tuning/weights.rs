//! Search for the weights of the criteria that rank candidate translations: minimum error rate
//! training (Och 2003). Each criterion gives a candidate a score, and the candidate with the
//! highest weighted sum of scores is chosen.
//!
//! The candidates are found, and scored by each criterion, only once. Then one weight after the
//! other is set to its best value, until no change of a single weight improves the score. Better
//! weights may still exist, so the search starts from several points.

use anyhow::{Result, bail};
use serde::Serialize;
use taper_decoding::Criteria;
use taper_metrics::{Metric, Segment, Statistics};

use super::line_search::{CountedCandidates, highest, total};
use super::{Scorer, TrialScores, TuningMetric};
use crate::LoadedRun;
use crate::evaluation::ParallelText;
use crate::translation::{LineTranslator, TranslationDetail, TranslationSettings};

/// Largest number of rounds over all weights.
const MOST_ROUNDS: usize = 20;
/// Smallest gain in a round (in the metric's score) after which another round follows.
const LEAST_GAIN: f64 = 1e-9;

/// Weights of the criteria, with the scores of the candidates that are chosen with them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WeightTrial {
    /// Weight of each criterion.
    pub weights: Criteria,
    /// Scores of the candidates that are chosen with these weights.
    #[serde(flatten)]
    pub scores: TrialScores,
}

/// Results of a search for weights.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TunedWeights {
    /// Number of sentences on which each trial is scored. Overlong sentences, which are translated
    /// in parts, are left out.
    pub sentences: usize,
    /// Total number of candidates for these sentences.
    pub candidates: usize,
    /// Weights in the configuration of the run, before tuning.
    pub before: WeightTrial,
    /// Best weights; the weights of the run if no others are better.
    pub best: WeightTrial,
    /// Best weights that the search found from each starting point.
    pub trials: Vec<WeightTrial>,
}

/// Finds the weights of `decoding.reranking` with which the translations that `run` makes of
/// `split` have the highest score in `metric`. At most `sentences` sentences, evenly spread over
/// the split, are translated. `progress` receives the number of sentences that are translated so
/// far, and the total.
///
/// # Errors
/// When the split cannot be read or translated, or a model that `decoding.reranking` names cannot
/// be loaded.
pub fn tune_weights(
    run: &LoadedRun,
    split: &str,
    sentences: usize,
    metric: TuningMetric,
    mut progress: impl FnMut(usize, usize),
) -> Result<TunedWeights> {
    let config = &run.config;
    let corpora = run.corpora(split)?;
    let text = ParallelText::read(&config.data, corpora)?.spread(sentences);
    let mut settings = TranslationSettings::from_config(config);
    settings.detail = TranslationDetail { all: true, ..settings.detail };
    let translator = LineTranslator::new(run, &settings)?;
    let all = text.sources.len();
    let candidates_of_lines = translator.candidates(&text.sources, |done| progress(done, all))?;
    let (candidates_of_lines, references): (Vec<_>, Vec<_>) = candidates_of_lines
        .into_iter()
        .zip(text.references)
        .filter(|(candidates, _)| !candidates.is_empty())
        .unzip();
    if candidates_of_lines.is_empty() {
        bail!("split {split:?}: all of its lines are translated in parts: name another split");
    }
    let scorer = Scorer::new(run, references);
    let counted = count(scorer.metric(metric), &candidates_of_lines, &scorer.references[0])?;
    let of_run = config.decoding.reranking.weights();
    let named = [
        true,
        true,
        config.decoding.reranking.reverse.is_some(),
        config.decoding.reranking.language_model.is_some(),
    ];
    let trial = |weights: Criteria| -> Result<WeightTrial> {
        let chosen: Vec<String> = candidates_of_lines
            .iter()
            .map(|candidates_of_lines| chosen(candidates_of_lines, &weights))
            .collect();
        Ok(WeightTrial { weights, scores: scorer.score(&chosen)? })
    };
    let before = trial(of_run)?;
    let mut best = before;
    let mut trials = Vec::new();
    for begin in beginnings(of_run.into(), named) {
        let weights = climb(&counted, scorer.metric(metric), begin, named);
        let after = trial(rounded(weights))?;
        if after.scores.value_of(metric) > best.scores.value_of(metric) {
            best = after;
        }
        trials.push(after);
    }
    let candidates = counted.counts.len();
    Ok(TunedWeights { sentences: candidates_of_lines.len(), candidates, before, best, trials })
}

/// Text of the candidate with the highest sum of scores, weighted by `weights`.
fn chosen(candidates: &[(String, Criteria)], weights: &Criteria) -> String {
    let best = highest(candidates.iter().map(|(_, scores)| scores.total(weights)));
    candidates[best].0.clone()
}

/// Candidates of all lines with their scores, and with the counts from which `metric` computes the
/// score of a corpus.
fn count(
    metric: &dyn Metric,
    candidates_of_lines: &[Vec<(String, Criteria)>],
    references: &[String],
) -> Result<CountedCandidates> {
    let pairs = candidates_of_lines.iter().zip(references);
    let segments: Vec<Segment<'_>> = pairs
        .flat_map(|(candidates, reference)| {
            candidates.iter().map(|(text, _)| Segment {
                hypothesis: text.as_str(),
                references: vec![reference.as_str()],
            })
        })
        .collect();
    let counts = Statistics::count(metric, &segments)?.rows().map(<[f64]>::to_vec).collect();
    let mut rows = 0..;
    let texts = candidates_of_lines.iter().map(|candidates| {
        candidates.iter().map(|(_, scores)| (*scores).into()).zip(rows.by_ref()).collect()
    });
    Ok(CountedCandidates { texts: texts.collect(), counts })
}

/// Starting points of the search. The first point is the run's weights. `named` tells for each
/// criterion whether its weight is searched. For each of these criteria, one point has the weight 1
/// for this criterion and 0 for all others. The last point has the weight 1 for all of these
/// criteria. A point whose weights are all 0 is left out.
fn beginnings(of_run: [f64; 4], named: [bool; 4]) -> Vec<[f64; 4]> {
    let mut all = vec![of_run];
    let alone = |axis| std::array::from_fn(|one| f64::from(u8::from(one == axis)));
    all.extend((0..4).filter(|&axis| named[axis]).map(alone));
    all.push(named.map(|is_named| f64::from(u8::from(is_named))));
    all.retain(|weights| weights.iter().any(|&weight| weight > 0.0));
    all
}

/// Sets one weight after the other to its best value, until no change of a weight improves the
/// score. Weights of criteria for which `named` is false stay as they are. Returns the weights.
fn climb(
    candidates: &CountedCandidates,
    metric: &dyn Metric,
    mut weights: [f64; 4],
    named: [bool; 4],
) -> [f64; 4] {
    let mut best = candidates.score(metric, &weights);
    for _ in 0..MOST_ROUNDS {
        let before = best;
        for axis in (0..4).filter(|&axis| named[axis]) {
            let (value, score) = candidates.best_value(metric, &weights, axis);
            let mut changed = weights;
            changed[axis] = value;
            // Weights that are all 0 are not accepted, because all candidates would then have the
            // same sum, and the first one would be chosen.
            if score > best && total(&changed, &[1.0; 4]) > 0.0 {
                (weights, best) = (changed, score);
            }
        }
        if best - before < LEAST_GAIN {
            break;
        }
    }
    weights
}

/// Scales weights so that their sum is 1, because only their ratios matter, and rounds them to four
/// decimals.
fn rounded(weights: [f64; 4]) -> Criteria {
    let sum = total(&weights, &[1.0; 4]);
    weights.map(|weight| (weight / sum * 1e4).round() / 1e4).into()
}
