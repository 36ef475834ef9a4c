//! Scores compared with those of sacreBLEU on the same corpora.
//!
//! The files are made by `scripts/golden/scores/metrics.py` and `ter.py`, which record sacreBLEU's
//! version. Scores must be the same doubles, and lines and signatures the same text.

mod common;

use std::collections::BTreeMap;

use serde::Deserialize;
use taper_metrics::{
    AnswerReport, AnswerScore, Bleu, Chrf, EntityReport, SIGNATURE_VERSION, Statistics, Ter,
    Tokenizer, WeightedReference, entities, expected_scores, normalized_answer, ragged_segments,
};

use common::{TestResult, golden};

#[derive(Deserialize)]
struct Golden {
    sacrebleu: String,
    corpora: Vec<Corpus>,
    #[serde(default)]
    tokenized: Vec<TokenizedLine>,
}

#[derive(Deserialize)]
struct Corpus {
    name: String,
    hypotheses: Vec<String>,
    /// Lists of references; `references[k][i]` is `None` if hypothesis i does not have a k-th
    /// reference.
    references: Vec<Vec<Option<String>>>,
    #[serde(default)]
    bleu: Vec<Case<Bleu>>,
    #[serde(default)]
    chrf: Vec<Case<Chrf>>,
    #[serde(default)]
    ter: Vec<Case<Ter>>,
}

#[derive(Deserialize)]
struct Case<Options> {
    options: Options,
    score: f64,
    line: String,
    signature: String,
}

#[derive(Deserialize)]
struct TokenizedLine {
    line: String,
    tokens: BTreeMap<String, Vec<String>>,
}

impl Corpus {
    /// Lists of references; `None` if a hypothesis lacks one of them.
    fn complete_references(&self) -> Option<Vec<Vec<String>>> {
        let complete = |stream: &Vec<Option<String>>| stream.iter().cloned().collect();
        self.references.iter().map(complete).collect()
    }
}

impl<Options: std::fmt::Debug> Case<Options> {
    /// Description of the difference between a result and this case; `None` if they are equal.
    fn difference(
        &self,
        corpus: &Corpus,
        sacrebleu: &str,
        (score, line, signature): (f64, String, String),
    ) -> Option<String> {
        let expected_signature = self
            .signature
            .replace(&format!("version:{sacrebleu}"), &format!("version:{SIGNATURE_VERSION}"));
        let same = score == self.score && line == self.line && signature == expected_signature;
        (!same).then(|| {
            format!(
                "{} {:?}:\n  expected {:?} {} {expected_signature}\n  got      {score:?} {line} {signature}",
                corpus.name, self.options, self.score, self.line,
            )
        })
    }
}

/// Tests that all cases of a metric have sacreBLEU's scores. The file has at least `$corpora`
/// corpora.
macro_rules! equals_sacrebleu {
    ($test:ident, $cases:ident, $file:literal, $corpora:literal) => {
        #[test]
        fn $test() -> TestResult {
            let golden: Golden = golden($file)?;
            assert!(golden.corpora.len() >= $corpora);
            let mut differences = Vec::new();
            for corpus in &golden.corpora {
                let segments = ragged_segments(&corpus.hypotheses, &corpus.references)?;
                for case in &corpus.$cases {
                    let counted = Statistics::count(&case.options, &segments)?;
                    let result = case.options.score(&counted)?;
                    if let Some(references) = corpus.complete_references() {
                        let whole = case.options.corpus(&corpus.hypotheses, &references)?;
                        assert_eq!(whole, result, "{}", corpus.name);
                    }
                    let line = result.to_string();
                    let result = (result.score, line, result.signature);
                    differences.extend(case.difference(corpus, &golden.sacrebleu, result));
                }
            }
            assert!(differences.is_empty(), "{}", differences.join("\n"));
            Ok(())
        }
    };
}

equals_sacrebleu!(bleu_equals_sacrebleu, bleu, "metrics.json.gz", 200);
equals_sacrebleu!(chrf_equals_sacrebleu, chrf, "metrics.json.gz", 200);
equals_sacrebleu!(ter_equals_sacrebleu, ter, "ter.json.gz", 300);

#[test]
fn tokens_equal_sacrebleu() -> TestResult {
    let golden: Golden = golden("metrics.json.gz")?;
    assert!(golden.tokenized.len() >= 400);
    for TokenizedLine { line, tokens } in &golden.tokenized {
        assert_eq!(tokens.len(), Tokenizer::ALL.len());
        for (name, expected) in tokens {
            let tokenizer: Tokenizer = name.parse()?;
            assert_eq!(&tokenizer.tokenize(line), expected, "{name}: {line:?}");
        }
    }
    Ok(())
}

/// Scores that seqeval computes for sequences of tags.
#[derive(Deserialize)]
struct Tagged {
    seqeval: String,
    cases: Vec<TaggedCase>,
}

#[derive(Deserialize)]
struct TaggedCase {
    right: Vec<Vec<String>>,
    given: Vec<Vec<String>>,
    entities: Vec<Vec<(String, usize, usize)>>,
    /// Precision, recall and F1.
    micro: [f64; 3],
    #[serde(rename = "macro")]
    macro_f1: f64,
    /// Precision, recall, F1 and support.
    types: BTreeMap<String, (f64, f64, f64, u64)>,
}

#[test]
fn entities_and_their_scores_are_those_of_seqeval() -> TestResult {
    let file: Tagged = golden("entities.json.gz")?;
    assert_eq!(file.seqeval, "1.2.2");
    let same = |ours: f64, theirs: f64| (ours - theirs).abs() < 1e-12;
    for (number, case) in file.cases.iter().enumerate() {
        let mut report = EntityReport::default();
        for ((right, given), found) in case.right.iter().zip(&case.given).zip(&case.entities) {
            let ours: Vec<(String, usize, usize)> =
                entities(given).into_iter().map(|(kind, a, b)| (kind.to_owned(), a, b)).collect();
            assert_eq!(&ours, found, "{given:?}");
            report.add(right, given);
        }
        let micro = report.micro();
        for (ours, theirs) in [micro.precision, micro.recall, micro.f1].into_iter().zip(case.micro)
        {
            assert!(same(ours, theirs), "case {number}: {micro:?} {:?}", case.micro);
        }
        assert!(same(report.macro_f1(), case.macro_f1), "case {number}");
        let types = report.types();
        assert_eq!(types.len(), case.types.len(), "case {number}");
        for (kind, score) in types {
            let (precision, recall, f1, support) = case.types[&kind];
            assert_eq!(score.support, support, "case {number}: {kind}");
            assert!(
                same(score.precision, precision)
                    && same(score.recall, recall)
                    && same(score.f1, f1),
                "case {number}: {kind} {score:?}"
            );
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Answers {
    torchmetrics: String,
    questions: Vec<Answered>,
    /// Number of questions, exact match and F1.
    means: BTreeMap<String, (u64, f64, f64)>,
}

#[derive(Deserialize)]
struct Answered {
    answers: Vec<String>,
    given: String,
    normalized: String,
    exact_match: f64,
    f1: f64,
}

#[test]
fn answers_are_scored_as_by_the_official_script() -> TestResult {
    let file: Answers = golden("answers.json.gz")?;
    assert_eq!(file.torchmetrics, "1.9.0");
    let mut report = AnswerReport::default();
    for one in &file.questions {
        assert_eq!(normalized_answer(&one.given), one.normalized, "{:?}", one.given);
        let score = AnswerScore::new(&one.answers, &one.given);
        assert_eq!(score.exact_match, one.exact_match, "{:?} {:?}", one.answers, one.given);
        assert!((score.f1 - one.f1).abs() < 1e-15, "{:?} {:?} {score:?}", one.answers, one.given);
        report.add(&one.answers, &one.given);
    }
    let means = [
        ("all", report.all()),
        ("with_answer", report.with_answer()),
        ("without_answer", report.without_answer()),
    ];
    for (name, found) in means {
        let (questions, exact_match, f1) = file.means[name];
        assert_eq!(found.questions, questions, "{name}");
        assert!((found.exact_match - exact_match).abs() < 1e-10, "{name}: {found:?}");
        assert!((found.f1 - f1).abs() < 1e-10, "{name}: {found:?}");
    }
    assert_eq!(AnswerReport::default().all(), AnswerReport::default().without_answer());
    Ok(())
}

#[derive(Deserialize)]
struct Expected {
    cases: Vec<ExpectedCase>,
}

/// Texts that are hypotheses, and also the references of each other.
#[derive(Deserialize)]
struct ExpectedCase {
    hypotheses: Vec<String>,
    weights: Vec<f64>,
    chrf: Vec<ExpectedChrf>,
    bleu: Vec<f64>,
}

#[derive(Deserialize)]
struct ExpectedChrf {
    options: Chrf,
    exact: Vec<f64>,
    aggregated: Vec<f64>,
}

/// Compares with the golden file of `scripts/golden/scores/expected.py`.
#[test]
fn expected_scores_are_means_of_sacrebleus() -> TestResult {
    let near = |own: &[f64], golden: &[f64]| {
        assert_eq!(own.len(), golden.len());
        for (own, golden) in own.iter().zip(golden) {
            assert!((own - golden).abs() < 1e-9, "{own} for {golden}");
        }
    };
    for case in golden::<Expected>("expected.json.gz")?.cases {
        let hypotheses: Vec<&str> = case.hypotheses.iter().map(String::as_str).collect();
        let references: Vec<WeightedReference<'_>> = hypotheses
            .iter()
            .zip(&case.weights)
            .map(|(&text, &weight)| WeightedReference { text, weight })
            .collect();
        let bleu = Bleu { effective_order: true, ..Bleu::default() };
        near(&expected_scores(&bleu, &hypotheses, &references)?, &case.bleu);
        for ExpectedChrf { options, exact, aggregated } in case.chrf {
            near(&expected_scores(&options, &hypotheses, &references)?, &exact);
            near(&options.aggregated_expected_scores(&hypotheses, &references)?, &aggregated);
        }
    }
    assert!(expected_scores(&Chrf::default(), &["a"], &[]).is_err());
    assert!(Chrf::default().aggregated_expected_scores(&["a"], &[]).is_err());
    Ok(())
}
