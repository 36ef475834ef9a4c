//! Scores against those that sacreBLEU gave the same corpora.
//!
//! The file is made by `scripts/golden/metrics.py`, which records sacreBLEU's version.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use serde::Deserialize;
use taper_metrics::{Bleu, Chrf, SIGNATURE_VERSION, Tokenizer};

/// Largest difference allowed between raw scores.
const TOLERANCE: f64 = 1e-9;

#[derive(Deserialize)]
struct Golden {
    sacrebleu: String,
    corpora: Vec<Corpus>,
    tokenized: Vec<TokenizedLine>,
}

#[derive(Deserialize)]
struct Corpus {
    name: String,
    hypotheses: Vec<String>,
    /// A missing line is a reference that the segment does not have.
    references: Vec<Vec<Option<String>>>,
    bleu: Vec<Case<Bleu>>,
    chrf: Vec<Case<Chrf>>,
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

type TestResult = Result<(), Box<dyn Error>>;

fn golden() -> Result<Golden, Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/metrics.json.gz");
    let mut text = String::new();
    GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

impl Corpus {
    /// The reference streams, if no line of any is missing.
    fn complete_references(&self) -> Option<Vec<Vec<String>>> {
        let complete = |stream: &Vec<Option<String>>| stream.iter().cloned().collect();
        self.references.iter().map(complete).collect()
    }

    /// Each hypothesis with the references that it has.
    fn segments(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.hypotheses.iter().enumerate().map(|(index, hypothesis)| {
            let references = self.references.iter().filter_map(|stream| stream[index].as_deref()).collect();
            (hypothesis.as_str(), references)
        })
    }
}

impl<Options: std::fmt::Debug> Case<Options> {
    /// An explanation of how a result differs from this case, if it does.
    fn difference(&self, corpus: &Corpus, sacrebleu: &str, (score, line, signature): (f64, String, String)) -> Option<String> {
        let expected_signature = self.signature.replace(&format!("version:{sacrebleu}"), &format!("version:{SIGNATURE_VERSION}"));
        let same = (score - self.score).abs() <= TOLERANCE && line == self.line && signature == expected_signature;
        (!same).then(|| {
            format!(
                "{} {:?}:\n  expected {:?} {} {expected_signature}\n  got      {score:?} {line} {signature}",
                corpus.name, self.options, self.score, self.line,
            )
        })
    }
}

#[test]
fn bleu_equals_sacrebleu() -> TestResult {
    let golden = golden()?;
    assert!(golden.corpora.len() >= 200);
    let mut differences = Vec::new();
    for corpus in &golden.corpora {
        for case in &corpus.bleu {
            let mut counter = case.options.counter()?;
            for (hypothesis, references) in corpus.segments() {
                counter.add(hypothesis, &references)?;
            }
            let result = case.options.score(counter.statistics())?;
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

#[test]
fn chrf_equals_sacrebleu() -> TestResult {
    let golden = golden()?;
    let mut differences = Vec::new();
    for corpus in &golden.corpora {
        for case in &corpus.chrf {
            let mut counter = case.options.counter()?;
            for (hypothesis, references) in corpus.segments() {
                counter.add(hypothesis, &references)?;
            }
            let result = case.options.score(counter.statistics())?;
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

#[test]
fn tokens_equal_sacrebleu() -> TestResult {
    let golden = golden()?;
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
