//! Scores compared with those that sacreBLEU's own test suite computes.
//!
//! `scripts/golden/scores/sacrebleu_suite.py` runs that suite, and records its scores in the golden
//! file that these tests read.

mod common;

use serde::Deserialize;
use serde_json::Value;
use taper_metrics::{
    Bleu, Chrf, Metric, SIGNATURE_VERSION, Score, Smoothing, Statistics, Ter, segments,
};

use common::{TestResult, golden};

#[derive(Deserialize)]
struct Suite {
    sacrebleu: String,
    scores: Vec<ScoreCase>,
    sums: Vec<SumsCase>,
    tokens: Vec<TokensCase>,
}

#[derive(Deserialize)]
struct ScoreCase {
    metric: String,
    options: Value,
    hypotheses: Vec<String>,
    references: Vec<Vec<String>>,
    score: f64,
    line: String,
    signature: String,
}

/// A sum of statistics, which is scored without a corpus.
#[derive(Deserialize)]
struct SumsCase {
    sums: Vec<f64>,
    smoothing: Smoothing,
    score: f64,
}

#[derive(Deserialize)]
struct TokensCase {
    options: Ter,
    line: String,
    tokens: Vec<String>,
}

#[test]
fn scores_equal_sacrebleu() -> TestResult {
    let suite: Suite = golden("sacrebleu_suite.json.gz")?;
    assert!(suite.scores.len() >= 80);
    for case in &suite.scores {
        let options = case.options.clone();
        let metric: Box<dyn Metric> = match case.metric.as_str() {
            "BLEU" => Box::new(serde_json::from_value::<Bleu>(options)?),
            "CHRF" => Box::new(serde_json::from_value::<Chrf>(options)?),
            _ => Box::new(serde_json::from_value::<Ter>(options)?),
        };
        let statistics =
            Statistics::count(&*metric, &segments(&case.hypotheses, &case.references)?)?;
        let score = Score::new(&*metric, &statistics)?;
        let signature = case.signature.replace(
            &format!("version:{}", suite.sacrebleu),
            &format!("version:{SIGNATURE_VERSION}"),
        );
        let expected_line = case.line.replacen(" = ", &format!("|{signature} = "), 1);
        assert_eq!(score.value, case.score, "{} {:?}", case.line, case.options);
        assert_eq!(score.line(2, false), expected_line);
    }
    Ok(())
}

#[test]
fn scores_of_bare_statistics_equal_sacrebleu() -> TestResult {
    let suite: Suite = golden("sacrebleu_suite.json.gz")?;
    assert!(!suite.sums.is_empty());
    for SumsCase { sums, smoothing, score } in suite.sums {
        let bleu = Bleu { smoothing, ..Bleu::default() };
        assert_eq!(bleu.value(&sums), score, "{sums:?} {smoothing:?}");
    }
    Ok(())
}

#[test]
fn words_of_ter_equal_sacrebleu() -> TestResult {
    let suite: Suite = golden("sacrebleu_suite.json.gz")?;
    assert!(!suite.tokens.is_empty());
    for TokensCase { options, line, tokens } in suite.tokens {
        assert_eq!(options.tokenize(&line), tokens, "{options:?} {line:?}");
    }
    Ok(())
}
