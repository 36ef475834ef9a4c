//! Confidence intervals and p-values compared with sacreBLEU's, for the same seeds.
//!
//! The file is made by `scripts/golden/scores/significance.py`.

mod common;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use taper_metrics::resampling::{Comparison, paired_bootstrap, paired_randomization};
use taper_metrics::{
    Bleu, Chrf, Metric, MetricError, SIGNATURE_VERSION, Score, Statistics, Ter, segments,
};

use common::{TestResult, golden};

#[derive(Deserialize)]
struct Golden {
    sacrebleu: String,
    sets: BTreeMap<String, Set>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Set {
    systems: Vec<Vec<String>>,
    references: Vec<Vec<String>>,
}

#[derive(Deserialize)]
struct Case {
    set: String,
    metric: String,
    options: Value,
    seed: u64,
    /// Confidence interval of the first system; `None` if sacreBLEU gives none.
    single: Option<Interval>,
    bootstrap: Paired,
    randomization: Paired,
}

#[derive(Deserialize)]
struct Interval {
    resamples: usize,
    line: String,
    mean: f64,
    half_width: f64,
}

#[derive(Deserialize)]
struct Paired {
    trials: usize,
    results: Vec<Expected>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Expected {
    score: f64,
    p_value: Option<f64>,
    mean: Option<f64>,
    half_width: Option<f64>,
}

impl From<Comparison> for Expected {
    fn from(comparison: Comparison) -> Self {
        let Comparison { score, p_value, confidence } = comparison;
        Self {
            score,
            p_value,
            mean: confidence.map(|c| c.mean),
            half_width: confidence.map(|c| c.half_width),
        }
    }
}

impl Expected {
    /// True if two results agree, except for trials whose difference equals the actual difference
    /// up to rounding. Such trials can change the p-value a little.
    fn is_within_ties(&self, other: &Self) -> bool {
        let p_values = self.p_value.zip(other.p_value);
        self.score == other.score
            && p_values.is_none_or(|(left, right)| (left - right).abs() <= 0.02)
    }
}

impl Case {
    /// True if sums are inexact. Mean lengths of three references are multiples of 1/3. Their sum
    /// depends on the order in which NumPy's BLAS library adds them. If the difference in a trial
    /// equals the actual difference up to rounding, this order decides whether the trial counts.
    fn has_inexact_sums(&self) -> bool {
        self.metric.starts_with("ter") && self.set.ends_with("3 references")
    }

    fn metric(&self) -> Result<Box<dyn Metric>, serde_json::Error> {
        let options = self.options.clone();
        Ok(match self.metric.split(' ').next() {
            Some("bleu") => Box::new(serde_json::from_value::<Bleu>(options)?),
            Some("ter") => Box::new(serde_json::from_value::<Ter>(options)?),
            _ => Box::new(serde_json::from_value::<Chrf>(options)?),
        })
    }

    fn statistics(&self, metric: &dyn Metric, set: &Set) -> Result<Vec<Statistics>, MetricError> {
        set.systems
            .iter()
            .map(|system| Statistics::count(metric, &segments(system, &set.references)?))
            .collect()
    }
}

#[test]
fn intervals_and_p_values_equal_sacrebleu() -> TestResult {
    let golden: Golden = golden("significance.json.gz")?;
    assert!(golden.cases.len() >= 70);
    let mut differences = Vec::new();
    for case in &golden.cases {
        let metric = case.metric()?;
        let statistics = case.statistics(&*metric, &golden.sets[&case.set])?;
        let systems: Vec<&Statistics> = statistics.iter().collect();
        if let Some(expected) = &case.single {
            let score =
                Score::with_confidence(&*metric, &statistics[0], expected.resamples, case.seed)?;
            let confidence = score.confidence.ok_or("no interval")?;
            let line = expected.line.replace(
                &format!("version:{}", golden.sacrebleu),
                &format!("version:{SIGNATURE_VERSION}"),
            );
            if (confidence.mean, confidence.half_width, &score.line(9, false))
                != (expected.mean, expected.half_width, &line)
            {
                differences.push(format!(
                    "{} {} interval:\n  {confidence:?}\n  {}\n  {line}",
                    case.set,
                    case.metric,
                    score.line(9, false)
                ));
            }
        }
        let bootstrap = paired_bootstrap(&*metric, &systems, case.bootstrap.trials, case.seed)?;
        let randomization =
            paired_randomization(&*metric, &systems, case.randomization.trials, case.seed)?;
        for (kind, expected, got) in [
            ("bootstrap", &case.bootstrap, bootstrap),
            ("randomization", &case.randomization, randomization),
        ] {
            let got: Vec<Expected> = got.into_iter().map(Expected::from).collect();
            let same = if case.has_inexact_sums() && kind == "randomization" {
                got.iter()
                    .zip(&expected.results)
                    .all(|(got, expected)| got.is_within_ties(expected))
            } else {
                got == expected.results
            };
            if !same {
                differences.push(format!(
                    "{} {} {kind}:\n  {:?}\n  {got:?}",
                    case.set, case.metric, expected.results
                ));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} differences\n{}",
        differences.len(),
        differences.join("\n")
    );
    Ok(())
}

#[test]
fn what_cannot_be_resampled_is_refused() -> TestResult {
    let bleu = Bleu::default();
    let (two, one) = (["a", "b"], ["a"]);
    let two = Statistics::count(&bleu, &segments(&two, &[two.to_vec()])?)?;
    let one = Statistics::count(&bleu, &segments(&one, &[one.to_vec()])?)?;
    let unequal = Err(MetricError::SegmentCount { system: 2, expected: 2, found: 1 });
    assert_eq!(paired_bootstrap(&bleu, &[&two, &one], 10, 1), unequal);
    assert_eq!(paired_randomization(&bleu, &[&two, &one], 10, 1), unequal);
    for nothing in
        [paired_bootstrap(&bleu, &[&two], 0, 1), paired_randomization(&bleu, &[&two], 0, 1)]
    {
        assert!(matches!(nothing, Err(MetricError::InvalidOption { .. })), "{nothing:?}");
    }
    Ok(())
}
