//! Measures minimum Bayes risk decoding with pruning: comparisons and time, and how often it
//! chooses the translation that is chosen without pruning.
//!
//! ```sh
//! taper translate RUN -i FILE --sample --epsilon 0.02 --n-best 64 --json > samples.jsonl
//! cargo run --release -p taper-metrics --example pruning samples.jsonl
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::time::Instant;

use taper_metrics::{Chrf, Pruning, WeightedReference, expected_scores, pruned_expected_scores};

/// Random number below `bound` (SplitMix64).
fn below(key: u64, index: u64, bound: usize) -> usize {
    let mut z = key.wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((u128::from(z ^ (z >> 31)) * bound as u128) >> 64) as usize
}

/// Samples of a line: the distinct texts, and the index of each sample's text.
struct Samples {
    texts: Vec<String>,
    places: Vec<usize>,
}

fn read(path: &str) -> Result<Vec<Samples>, Box<dyn Error>> {
    let mut all = Vec::new();
    for (key, line) in (0..).zip(std::fs::read_to_string(path)?.lines()) {
        let record: serde_json::Value = serde_json::from_str(line)?;
        let (mut texts, mut places, mut known) = (Vec::new(), Vec::new(), HashMap::new());
        for one in record["translations"].as_array().into_iter().flatten() {
            let text = one["text"].as_str().unwrap_or_default().to_owned();
            places.push(*known.entry(text.clone()).or_insert(texts.len()));
            if places.last() == Some(&texts.len()) {
                texts.push(text);
            }
        }
        // Translations are sorted by their scores, and the first samples must represent all.
        for last in (1..places.len()).rev() {
            places.swap(last, below(key << 32, last as u64, last + 1));
        }
        if texts.len() > 1 {
            all.push(Samples { texts, places });
        }
    }
    Ok(all)
}

/// Index of the first of the highest scores.
fn highest(scores: impl Iterator<Item = Option<f64>>) -> usize {
    let scores: Vec<f64> = scores.map(|score| score.unwrap_or(f64::NEG_INFINITY)).collect();
    (0..scores.len()).fold(0, |best, one| if scores[one] > scores[best] { one } else { best })
}

/// Expected scores of the texts of each line, without pruning.
fn of_all(
    all: &[Samples],
    scores: impl Fn(&[&str], &[WeightedReference<'_>]) -> taper_metrics::Result<Vec<f64>>,
) -> taper_metrics::Result<Vec<Vec<f64>>> {
    let mut expected = Vec::new();
    for Samples { texts, places } in all {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut references: Vec<WeightedReference<'_>> =
            texts.iter().map(|&text| WeightedReference { text, weight: 0.0 }).collect();
        places.iter().for_each(|&place| references[place].weight += 1.0);
        expected.push(scores(&texts, &references)?);
    }
    Ok(expected)
}

/// Expected scores without pruning, which other choices are compared with.
struct Exhaustive {
    expected: Vec<Vec<f64>>,
    choices: Vec<usize>,
}

impl Exhaustive {
    /// Text about other choices: how often they are the same, and how much worse they are.
    fn compared(&self, choices: &[usize]) -> String {
        let lines = choices.len() as f64;
        let pairs = || self.choices.iter().zip(choices);
        let same = pairs().filter(|(own, other)| own == other).count();
        let lost = self
            .expected
            .iter()
            .zip(pairs())
            .map(|(scores, (&own, &other))| scores[own] - scores[other]);
        format!(
            "the same choice for {:.1} % of the lines, expected chrF {:.4} lower",
            100.0 * same as f64 / lines,
            lost.sum::<f64>() / lines,
        )
    }
}

fn choices(expected: &[Vec<f64>]) -> Vec<usize> {
    expected.iter().map(|scores| highest(scores.iter().copied().map(Some))).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("name a file of samples")?;
    let all = read(&path)?;
    let chrf = Chrf::default();
    let begin = Instant::now();
    let expected = of_all(&all, |texts, references| expected_scores(&chrf, texts, references))?;
    let seconds = begin.elapsed().as_secs_f64();
    let exhaustive = Exhaustive { choices: choices(&expected), expected };
    let pairs: usize = all.iter().map(|one| one.texts.len() * one.texts.len()).sum();
    println!("{} lines, {pairs} comparisons, {seconds:.3} s", all.len());
    let begin = Instant::now();
    let aggregated =
        of_all(&all, |texts, references| chrf.aggregated_expected_scores(texts, references))?;
    let seconds = begin.elapsed().as_secs_f64();
    println!("aggregated: {seconds:.3} s, {}", exhaustive.compared(&choices(&aggregated)));
    for confidence in [0.8, 0.9, 0.95, 0.99, 0.999, 1.0] {
        let pruning = Pruning { confidence, references: 8, resamples: 500, kept: 1, added: &[] };
        let begin = Instant::now();
        let (mut comparisons, mut choices) = (0, Vec::new());
        for (index, Samples { texts, places }) in (1..).zip(&all) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let draw = |number, bound| below(index << 40, number, bound);
            let samples = (&texts[..], &places[..]);
            let pruned = pruned_expected_scores(&chrf, &texts, samples, &pruning, draw)?;
            choices.push(highest(pruned.expected.iter().copied()));
            comparisons += pruned.comparisons;
        }
        println!(
            "confidence {confidence}: {:.1} % of the comparisons, {:.3} s, {}",
            100.0 * comparisons as f64 / pairs as f64,
            begin.elapsed().as_secs_f64(),
            exhaustive.compared(&choices),
        );
    }
    Ok(())
}
