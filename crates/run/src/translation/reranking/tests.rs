//! Tests of the choice among candidates.

use std::path::Path;

use taper_decoding::PruningConfig;
use taper_ops::rng::{Counter, mix};

use super::*;
use crate::translation::{LineTranslator, TranslationDetail, TranslationSettings};
use crate::{LoadSettings, LoadedRun};

fn candidate(text: &str, log_probability: f64) -> Translation {
    Translation {
        text: text.to_owned(),
        score: log_probability,
        log_probability,
        length: 1,
        truncated: false,
        total: None,
        tokens: Vec::new(),
        token_log_probabilities: Vec::new(),
        alignment: None,
    }
}

fn ranked(config: &DecodingConfig, candidates: &[(&str, f64)]) -> Vec<String> {
    let candidates = candidates.iter().map(|&(text, score)| candidate(text, score)).collect();
    texts(&ranked_for(config, 1, TextPart::default(), candidates))
}

fn ranked_for(
    config: &DecodingConfig,
    wanted: usize,
    text: TextPart,
    candidates: Vec<Translation>,
) -> Vec<Translation> {
    let reranker = Reranker::alone(config, wanted, Tokenizer::default());
    let mut ranked_lists = [candidates];
    reranker.rank(&[text], &mut ranked_lists).expect("scored");
    let [candidates] = ranked_lists;
    candidates
}

fn texts(candidates: &[Translation]) -> Vec<String> {
    candidates.iter().map(|one| one.text.clone()).collect()
}

fn settings(reranking: RerankingConfig, temperature: f64) -> DecodingConfig {
    let mut config = DecodingConfig { reranking, ..DecodingConfig::default() };
    config.sampling.temperature = temperature;
    config
}

const CANDIDATES: [(&str, f64); 4] = [
    ("wholly different words", -1.0),
    ("the cat sat on the mat", -2.0),
    ("the cat sat on a mat", -2.5),
    ("the cat sits on the mat", -3.0),
];

#[test]
fn the_candidate_with_most_in_common_is_chosen() {
    for utility in [Utility::Chrf, Utility::AggregatedChrf, Utility::Bleu] {
        let reranking = RerankingConfig { candidates: 4, utility, ..Default::default() };
        let ranked = ranked(&settings(reranking, 1.0), &CANDIDATES);
        assert_eq!(ranked[0], CANDIDATES[1].0, "{utility:?}");
        assert_eq!(ranked[3], CANDIDATES[0].0, "{utility:?}");
    }
}

#[test]
fn probabilities_of_a_beam_are_weights() {
    // The first text has 0.58 of the probability, and the other texts have 0.21, 0.13 and 0.08.
    let reranking = RerankingConfig { candidates: 4, ..Default::default() };
    assert_eq!(ranked(&settings(reranking, 0.0), &CANDIDATES)[0], CANDIDATES[0].0);
}

#[test]
fn repeated_samples_count_as_often() {
    let reranking = RerankingConfig { candidates: 7, ..Default::default() };
    let mut candidates = CANDIDATES.to_vec();
    candidates.extend([CANDIDATES[0]; 6]);
    assert_eq!(ranked(&settings(reranking, 1.0), &candidates)[..7], [CANDIDATES[0].0; 7]);
}

#[test]
fn the_model_has_its_weight() {
    let reranking = RerankingConfig {
        candidates: 4,
        utility_weight: 0.0,
        model_weight: 1.0,
        ..Default::default()
    };
    let ranked = ranked(&settings(reranking.clone(), 1.0), &CANDIDATES);
    assert_eq!(ranked, CANDIDATES.map(|(text, _)| text));
    let none = RerankingConfig { candidates: 0, ..reranking };
    let order: Vec<(&str, f64)> = CANDIDATES.iter().rev().copied().collect();
    assert_eq!(self::ranked(&settings(none, 1.0), &order)[0], CANDIDATES[3].0);
}

/// Samples of a sentence: variants of it, some of them several times, in the order of their
/// scores.
fn samples(key: u64) -> Vec<Translation> {
    let draws = Counter::new(mix(key, &[5]));
    let word = |index: u64| ["cat", "dog", "tree", "sits", "big", "the"][index as usize % 6];
    let sample = |sample: u64| {
        let words: Vec<&str> = (0..9)
            .map(|at| match draws.u64_at(sample * 20 + at) % 5 {
                0 => word(draws.u64_at(sample * 20 + at + 10)),
                _ => word(at),
            })
            .collect();
        candidate(&words.join(" "), -0.1 * sample as f64)
    };
    (0..40).map(sample).collect()
}

fn pruning(confidence: f64, seed: u64) -> DecodingConfig {
    let pruning = PruningConfig { confidence, references: 4, ..PruningConfig::default() };
    let mut config =
        settings(RerankingConfig { candidates: 40, pruning, ..Default::default() }, 1.0);
    config.sampling.seed = seed;
    config
}

#[test]
fn pruned_candidates_have_no_total_and_others_have_that_of_all() {
    for key in 0..6 {
        let on_line = |line| TextPart { line, ..TextPart::default() };
        let rank = |config: &DecodingConfig, wanted, line| -> Vec<(String, Option<f64>)> {
            let ranked = ranked_for(config, wanted, on_line(line), samples(key));
            ranked.into_iter().map(|one| (one.text, one.total)).collect()
        };
        let all = rank(&pruning(0.0, 1), 1, 1);
        assert_eq!(rank(&pruning(1.0, 1), 1, 1), all);
        assert_eq!(rank(&pruning(0.5, 1), 40, 1), all);
        let pruned = rank(&pruning(0.9, 1), 3, 1);
        let left = pruned.iter().take_while(|(_, total)| total.is_some()).count();
        assert!((3..40).contains(&left), "{left}");
        assert!(pruned[left..].iter().all(|(_, total)| total.is_none()));
        assert!(pruned[..left].iter().all(|one| all.contains(one)));
        assert_eq!(pruned[0], all[0]);
        // The random numbers follow from the seed and the line alone.
        assert_eq!(rank(&pruning(0.9, 1), 3, 1), pruned);
    }
    let dropped = |seed, line| {
        let text = TextPart { line, ..TextPart::default() };
        let ranked = ranked_for(&pruning(0.5, seed), 1, text, samples(7));
        ranked.iter().filter(|one| one.total.is_none()).count()
    };
    let by_line: Vec<usize> = (1..9).map(|line| dropped(1, line)).collect();
    let by_seed: Vec<usize> = (1..9).map(|seed| dropped(seed, 1)).collect();
    assert_ne!(by_line, vec![by_line[0]; 8]);
    assert_ne!(by_seed, vec![by_seed[0]; 8]);
}

#[test]
fn other_criteria_count_while_candidates_are_dropped() {
    let mut config = pruning(0.9, 1);
    config.reranking.model_weight = 10.0;
    // The first sample has by far the best score, whatever its utility is.
    let ranked = ranked_for(&config, 1, TextPart::default(), samples(3));
    assert_eq!(ranked[0].text, samples(3)[0].text);
    let left = ranked.iter().filter(|one| one.total.is_some()).count();
    let same = samples(3).iter().filter(|one| one.text == ranked[0].text).count();
    assert_eq!(left, same);
}

/// A text with phrases is translated by a beam search, even if others are sampled.
#[test]
fn candidates_of_a_constrained_beam_are_no_samples() {
    let candidates = || CANDIDATES.map(|(text, score)| candidate(text, score)).to_vec();
    let text = TextPart { phrases: vec![vec![5]], ..TextPart::default() };
    let mut config = settings(RerankingConfig { candidates: 4, ..Default::default() }, 1.0);
    let expected = ranked(&settings(config.reranking.clone(), 0.0), &CANDIDATES);
    assert_eq!(texts(&ranked_for(&config, 1, text.clone(), candidates())), expected);
    assert_ne!(ranked(&config, &CANDIDATES)[0], expected[0]);
    config.reranking.pruning = PruningConfig { confidence: 0.1, references: 1, resamples: 1 };
    let ranked = ranked_for(&config, 1, text, candidates());
    assert!(ranked.iter().all(|one| one.total.is_some()));
    assert_eq!(texts(&ranked), expected);
}

/// The best translations that a run returns with pruning are among those without, with the same
/// totals, and do not depend on the lines that are translated together.
#[test]
fn a_run_returns_the_translations_that_are_wanted() {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/frozen/format-1");
    let run: LoadedRun = LoadedRun::open(&run, &LoadSettings::default()).expect("loaded");
    let lines = ["red cat sees", "two big dogs run here", "", "red dogs"].map(str::to_owned);
    let translated = |confidence: f64, lines: &[String], first: usize| {
        let mut decoding = pruning(confidence, 1);
        decoding.n_best = 3;
        let detail = TranslationDetail { all: true, ..TranslationDetail::default() };
        let settings = TranslationSettings {
            decoding,
            detail,
            ..TranslationSettings::from_config(&run.config)
        };
        let translator = LineTranslator::new(&run, &settings).expect("a translator");
        let translated = translator.translate(lines, &[], first, |_| {}).expect("translated");
        let list = |line: crate::translation::TranslatedLine| -> Vec<(String, Option<f64>)> {
            line.translations.into_iter().map(|one| (one.text, one.total)).collect()
        };
        translated.map(|line| list(line.expect("a line"))).collect::<Vec<_>>()
    };
    let all = translated(0.0, &lines, 1);
    assert_eq!(translated(1.0, &lines, 1), all);
    let pruned = translated(0.9, &lines, 1);
    assert!(pruned.iter().flatten().all(|(_, total)| total.is_some()));
    let most: Vec<_> = pruned.iter().zip(&all).filter(|(own, all)| own[0] == all[0]).collect();
    assert!(most.len() >= 3, "{pruned:?} {all:?}");
    assert_eq!(translated(0.9, &lines[1..], 2), pruned[1..]);
}
