//! Expected scores with pruning, against the library mbrs and against scores without pruning.

mod common;

use serde::Deserialize;
use taper_metrics::{
    Bleu, Chrf, Metric, PrunedScores, Pruning, WeightedReference, expected_scores,
    pruned_expected_scores,
};

use self::common::{TestResult, golden};

#[derive(Deserialize)]
struct Golden {
    references: usize,
    resamples: usize,
    cases: Vec<Case>,
}

/// Samples of a line, whose distinct texts are the hypotheses.
#[derive(Deserialize)]
struct Case {
    key: u64,
    samples: Vec<String>,
    trials: Vec<Trial>,
}

#[derive(Deserialize)]
struct Trial {
    confidence: f64,
    /// Hypotheses that are not dropped.
    left: Vec<usize>,
    comparisons: usize,
    choice: usize,
    score: f64,
}

/// Random number below `bound`, the same as in the golden file's script.
fn below(key: u64, index: u64, bound: usize) -> usize {
    let mut z = key.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((u128::from(z ^ (z >> 31)) * bound as u128) >> 64) as usize
}

/// Distinct texts, and the index of each sample's text.
fn distinct(samples: &[String]) -> (Vec<&str>, Vec<usize>) {
    let mut texts: Vec<&str> = Vec::new();
    let mut places = Vec::new();
    for sample in samples {
        let place = texts.iter().position(|text| text == sample);
        places.push(place.unwrap_or(texts.len()));
        if place.is_none() {
            texts.push(sample);
        }
    }
    (texts, places)
}

fn pruned(
    metric: &dyn Metric,
    case: &Case,
    pruning: &Pruning<'_>,
) -> taper_metrics::Result<PrunedScores> {
    let (texts, places) = distinct(&case.samples);
    let draw = |index, bound| below(case.key, index, bound);
    pruned_expected_scores(metric, &texts, (&texts, &places), pruning, draw)
}

/// Expected scores without pruning.
fn all(metric: &dyn Metric, case: &Case) -> taper_metrics::Result<Vec<f64>> {
    let (texts, places) = distinct(&case.samples);
    let count = |place| places.iter().filter(|&&one| one == place).count() as f64;
    let references: Vec<WeightedReference<'_>> = (texts.iter().enumerate())
        .map(|(place, &text)| WeightedReference { text, weight: count(place) })
        .collect();
    expected_scores(metric, &texts, &references)
}

fn left(scores: &PrunedScores) -> Vec<usize> {
    let scores = scores.expected.iter().enumerate();
    scores.filter_map(|(index, score)| score.map(|_| index)).collect()
}

const PRUNING: Pruning<'_> =
    Pruning { confidence: 0.9, references: 4, resamples: 97, kept: 1, added: &[] };

/// Compares with the golden file of `scripts/golden/scores/pruned.py`.
#[test]
fn the_same_hypotheses_are_dropped_as_by_mbrs() -> TestResult {
    let golden: Golden = golden("pruned.json.gz")?;
    for case in &golden.cases {
        for trial in &case.trials {
            let pruning = Pruning {
                confidence: trial.confidence,
                references: golden.references,
                resamples: golden.resamples,
                ..PRUNING
            };
            let scores = pruned(&Chrf::default(), case, &pruning)?;
            let named = format!("case {} with {}", case.key, trial.confidence);
            assert_eq!(left(&scores), trial.left, "{named}");
            assert_eq!(scores.comparisons, trial.comparisons, "{named}");
            let of_choice = scores.expected[trial.choice].unwrap_or_default();
            assert!((of_choice - trial.score).abs() < 1e-9, "{named}");
            assert!(scores.expected.iter().flatten().all(|&score| score <= of_choice + 1e-9));
        }
    }
    Ok(())
}

/// Scores of hypotheses that are not dropped are those without pruning, to the bit; with a
/// confidence of 1 none is dropped.
#[test]
fn scores_are_those_without_pruning() -> TestResult {
    let golden: Golden = golden("pruned.json.gz")?;
    let bleu = Bleu { effective_order: true, ..Bleu::default() };
    for case in &golden.cases {
        for metric in [&Chrf::default() as &dyn Metric, &bleu] {
            let all = all(metric, case)?;
            let scores = pruned(metric, case, &Pruning { confidence: 1.0, ..PRUNING })?;
            assert_eq!(scores.expected, all.iter().copied().map(Some).collect::<Vec<_>>());
            assert_eq!(scores.comparisons, all.len() * all.len());
            for (index, score) in pruned(metric, case, &PRUNING)?.expected.iter().enumerate() {
                assert!(score.is_none_or(|score| score == all[index]));
            }
        }
    }
    Ok(())
}

#[test]
fn the_best_are_kept_and_other_scores_count() -> TestResult {
    let golden: Golden = golden("pruned.json.gz")?;
    let metric = Chrf::default();
    for case in &golden.cases {
        let more = Pruning { confidence: 0.5, kept: 5, ..PRUNING };
        let kept = left(&pruned(&metric, case, &more)?);
        let hypotheses = distinct(&case.samples).0.len();
        assert!(kept.len() >= hypotheses.min(5), "{kept:?}");
        // A hypothesis with another score that no expected score can reach is the only one left.
        let added: Vec<f64> =
            (0..hypotheses).map(|one| if one == 2 { 200.0 } else { 0.0 }).collect();
        let steps = case.samples.len() > PRUNING.references;
        let alone = left(&pruned(&metric, case, &Pruning { added: &added, ..PRUNING })?);
        assert!(!steps || alone == [2], "{alone:?}");
    }
    Ok(())
}

#[test]
fn options_out_of_range_are_refused() {
    let case = Case { key: 0, samples: vec!["a".to_owned(), "b".to_owned()], trials: Vec::new() };
    let refused = |pruning: Pruning<'_>| {
        pruned(&Chrf::default(), &case, &pruning).expect_err("out of range").to_string()
    };
    for confidence in [0.0, 1.5, -1.0, f64::NAN] {
        let message = refused(Pruning { confidence, ..PRUNING });
        assert!(message.starts_with("confidence = "), "{message}");
    }
    assert!(refused(Pruning { references: 0, ..PRUNING }).starts_with("references = 0"));
    assert!(refused(Pruning { resamples: 0, ..PRUNING }).starts_with("resamples = 0"));
    let none = pruned_expected_scores(&Chrf::default(), &["a"], (&[], &[]), &PRUNING, |_, _| 0);
    assert!(none.is_err());
}
