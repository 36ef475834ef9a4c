//! Filtering of pairs by their probability according to two models, which translate in opposite
//! directions.

use std::path::Path;

use anyhow::{Result, bail};

use super::CacheProgress;
use super::cache::{Entry, TranslationCache};
use super::diversification::require_languages;
use super::pairs::{MadePairs, PairWriter, identity};
use super::parallel::{ParallelCorpus, Side};
use crate::{LoadSettings, LoadedRun};

/// Number of omitted pairs that are shown as examples.
const EXAMPLES: usize = 10;

/// Criterion that decides which pairs are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Keep {
    /// Keeps this share (from 0 to 1) of all pairs: the pairs with the highest scores.
    Share(f64),
    /// Keeps the pairs whose score is at least this number, from 0 to 1.
    Least(f64),
}

/// Settings of a filter.
#[derive(Debug)]
pub struct Filtering<'a> {
    /// Run that translates in the direction of the corpus.
    pub forward: &'a Path,
    /// Run that translates in the opposite direction.
    pub backward: &'a Path,
    /// The corpus.
    pub corpus: &'a ParallelCorpus,
    /// Choice of weights, and overrides, for both runs.
    pub load: LoadSettings,
    /// Criterion that decides which pairs are kept.
    pub keep: Keep,
    /// Folder for the pairs.
    pub output: &'a Path,
}

/// Pair that was left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Dropped {
    /// Number of the pair's line in the corpus, counted from 1.
    pub line: usize,
    /// Score of the pair; `None` if a model cannot read the pair, for example because it is too
    /// long.
    pub score: Option<f64>,
    /// Source and target.
    pub texts: [String; 2],
}

/// Result of a filter.
#[derive(Debug)]
pub struct Filtered {
    /// Pairs that were kept.
    pub made: MadePairs,
    /// Number of pairs that were left out.
    pub dropped: usize,
    /// Pairs with the lowest scores among those that were left out, in the order of their lines.
    pub examples: Vec<Dropped>,
    /// Smallest score with which a pair is kept; `None` if no pair was kept.
    pub least: Option<f64>,
}

/// Keeps the pairs `(x, y)` of a corpus that are likely, and about equally likely, according to two
/// models, which translate in opposite directions.
///
/// The score of a pair is `exp(−(|a − b| + (a + b) / 2))`. Here, a is the mean negative
/// log-probability of a token of y given x, and b the same for a token of x given y
/// (Junczys-Dowmunt 2018, "Dual Conditional Cross-Entropy Filtering of Noisy Parallel Corpora",
/// section 2). Pairs that cannot be scored are omitted.
///
/// # Errors
/// If a run cannot be loaded or translates between other languages, the corpus cannot be read, the
/// output folder has other pairs, or writing fails.
pub fn filter(
    job: &Filtering<'_>,
    cache: &dyn Fn(&Path) -> TranslationCache,
    observe: &mut dyn FnMut(CacheProgress<'_>),
) -> Result<Filtered> {
    job.keep.validate()?;
    let languages = job.corpus.languages();
    let forward = scored(job, job.forward, Side::Source, cache, observe)?;
    let backward = scored(job, job.backward, Side::Target, cache, observe)?;
    let scores = scores_of(&forward, &backward)?;
    let least = job.keep.least_of(&scores);
    let is_kept =
        |score: Option<f64>| score.zip(least).is_some_and(|(score, least)| score >= least);
    let keep = format!("{:?}", job.keep);
    let identity =
        identity(&["filter", languages[0], languages[1], &forward.key, &backward.key, &keep]);
    let made = match MadePairs::find(job.output, &identity)? {
        Some(made) => made,
        None => {
            let mut pairs = PairWriter::begin(job.output, identity, languages, false)?;
            pairs.origin("original".to_owned());
            for ((line, pair), &score) in (1..).zip(job.corpus.pairs()?).zip(&scores) {
                let [source, target] = pair?;
                if is_kept(score) {
                    pairs.push([&source, &target], line, score)?;
                }
            }
            pairs.finish()?
        }
    };
    let dropped: Vec<usize> = (0..scores.len()).filter(|&index| !is_kept(scores[index])).collect();
    let examples = examples(job.corpus, &scores, &dropped)?;
    Ok(Filtered { made, dropped: dropped.len(), examples, least })
}

impl Keep {
    /// Returns an error for a share or score that is not between 0 and 1.
    fn validate(self) -> Result<()> {
        let (Self::Share(value) | Self::Least(value)) = self;
        if !(0.0..=1.0).contains(&value) {
            bail!("{value}: a share of the pairs, or the least score, must be between 0 and 1");
        }
        Ok(())
    }

    /// Smallest score with which a pair is kept; `None` if no pair is kept.
    fn least_of(self, scores: &[Option<f64>]) -> Option<f64> {
        let mut known: Vec<f64> = scores.iter().copied().flatten().collect();
        match self {
            Self::Least(least) => Some(least),
            Self::Share(share) => {
                known.sort_by(|a, b| b.total_cmp(a));
                let count = (share * scores.len() as f64).round() as usize;
                count.min(known.len()).checked_sub(1).map(|last| known[last])
            }
        }
    }
}

/// For each pair of the corpus, the mean log-probability of a token according to the run at `path`.
/// This run translates from the language of `side` into the other language.
fn scored(
    job: &Filtering<'_>,
    path: &Path,
    side: Side,
    cache: &dyn Fn(&Path) -> TranslationCache,
    observe: &mut dyn FnMut(CacheProgress<'_>),
) -> Result<Entry> {
    let run: LoadedRun = LoadedRun::open(path, &job.load)?;
    require_languages(&run, path, side, job.corpus.languages())?;
    let other = if side == Side::Source { Side::Target } else { Side::Source };
    let (open, open_other) = (job.corpus.opener(side), job.corpus.opener(other));
    let texts = [job.corpus.text(side, &open), job.corpus.text(other, &open_other)];
    cache(path).scored(&run, [&texts[0], &texts[1]], observe)
}

/// Score of each pair, from the mean log-probabilities of its tokens according to both models;
/// `None` for a pair that a model cannot score.
fn scores_of(forward: &Entry, backward: &Entry) -> Result<Vec<Option<f64>>> {
    let both = forward.translations()?.zip(backward.translations()?);
    both.map(|(there, back)| {
        let (there, back) = (there?, back?);
        let both = there.first().zip(back.first());
        Ok(both.map(|(there, back)| dual_score(-there.score, -back.score)))
    })
    .collect()
}

/// Score of a pair, from the mean negative log-probability of a target token (`there`) and of a
/// source token (`back`).
fn dual_score(there: f64, back: f64) -> f64 {
    (-((there - back).abs() + f64::midpoint(there, back))).exp()
}

/// Pairs with the lowest scores among those with the indices `dropped`. A pair without a score
/// counts as if its score were 0, the lowest possible score.
fn examples(
    corpus: &ParallelCorpus,
    scores: &[Option<f64>],
    dropped: &[usize],
) -> Result<Vec<Dropped>> {
    let mut worst = dropped.to_vec();
    worst.sort_by(|&a, &b| scores[a].unwrap_or(0.0).total_cmp(&scores[b].unwrap_or(0.0)));
    worst.truncate(EXAMPLES);
    worst.sort_unstable();
    let mut examples = Vec::with_capacity(worst.len());
    for (index, pair) in corpus.pairs()?.enumerate() {
        let texts = pair?;
        if worst.binary_search(&index).is_ok() {
            examples.push(Dropped { line: index + 1, score: scores[index], texts });
        }
    }
    Ok(examples)
}

#[cfg(test)]
mod tests {
    use super::{Keep, dual_score};

    #[test]
    fn scores_fall_with_both_entropies_and_with_their_difference() {
        assert!((dual_score(1.0, 1.0) - (-1.0_f64).exp()).abs() < 1e-12);
        assert!((dual_score(1.0, 3.0) - (-4.0_f64).exp()).abs() < 1e-12);
        assert!((dual_score(3.0, 1.0) - dual_score(1.0, 3.0)).abs() < 1e-12);
    }

    #[test]
    fn a_share_counts_all_pairs_and_a_score_does_not() {
        let scores = [Some(0.5), None, Some(0.1), Some(0.9)];
        assert_eq!(Keep::Share(0.5).least_of(&scores), Some(0.5));
        assert_eq!(Keep::Share(1.0).least_of(&scores), Some(0.1));
        assert_eq!(Keep::Share(0.0).least_of(&scores), None);
        assert_eq!(Keep::Least(0.3).least_of(&scores), Some(0.3));
        assert!(Keep::Share(1.5).validate().is_err());
        assert!(Keep::Least(f64::NAN).validate().is_err());
    }
}
