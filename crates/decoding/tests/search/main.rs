//! Compares the searches with slow references: exhaustive enumeration, a beam that never stops
//! early, and each other.

#[path = "../common/mod.rs"]
mod common;
mod groups;
mod lengths;

use std::sync::atomic::Ordering;

use common::{HashModel, random_sources, short_outputs};
use taper_decoding::{
    DecodingConfig, END, ExpectedLength, Hypothesis, LengthPenaltyForm, START, SamplingConfig,
    Sentence, StepModel, Translator, UNKNOWN, beam_search, forced_scores, greedy_search,
};

fn slices(sources: &[Vec<u32>]) -> Vec<&[u32]> {
    sources.iter().map(Vec::as_slice).collect()
}

/// Computes the log-probabilities of all tokens after `prefix`, by the definition of the softmax,
/// in f64.
fn log_softmax(model: &HashModel, source: &[u32], prefix: &[u32]) -> Vec<f64> {
    let mut state = model.start(&[source]).expect("starts");
    let mut logits = Vec::new();
    for &token in [START].iter().chain(prefix) {
        logits.clear();
        let read = |block: &[f32]| {
            logits.extend_from_slice(block);
            Ok(())
        };
        model.step(&mut state, &[token], read).expect("steps");
    }
    let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
    logits.iter().map(|&x| f64::from(x) - sum.ln()).collect()
}

/// Tokens of a complete output, and their total log-probability.
type Scored = (Vec<u32>, f64);

/// Returns all outputs within the limits on length, in no particular order.
fn enumerate(model: &HashModel, source: &[u32], min: usize, max: usize) -> Vec<Scored> {
    let mut open: Vec<Scored> = vec![(Vec::new(), 0.0)];
    let mut whole = Vec::new();
    while let Some((prefix, total)) = open.pop() {
        let row = log_softmax(model, source, &prefix);
        if prefix.len() >= min {
            whole.push((prefix.clone(), total + row[END as usize]));
        }
        if prefix.len() < max {
            for token in 4..model.vocabulary as u32 {
                let longer = prefix.iter().copied().chain([token]).collect();
                open.push((longer, total + row[token as usize]));
            }
        }
    }
    whole
}

/// A simple beam search for one sentence, which keeps whole prefixes and does not stop early.
/// Returns the list of the `n_best`, and the number of rows that it stepped.
fn patient_beam(
    model: &HashModel,
    source: &[u32],
    config: &DecodingConfig,
) -> (Vec<Vec<u32>>, usize) {
    let limits = config.output_limits(source.len() - 1);
    let mut live: Vec<Scored> = vec![(Vec::new(), 0.0)];
    let mut finished: Vec<(f64, Vec<u32>)> = Vec::new();
    let mut rows = 0;
    for length in 0..=limits.max_length {
        rows += live.len();
        let mut continuations = Vec::new();
        for (prefix, total) in &live {
            let row = log_softmax(model, source, prefix);
            for token in END..model.vocabulary as u32 {
                let allowed = if token == END {
                    length >= limits.min_length
                } else {
                    length < limits.max_length
                };
                if allowed {
                    continuations.push((prefix.clone(), token, total + row[token as usize]));
                }
            }
        }
        continuations.sort_by(|a, b| b.2.total_cmp(&a.2));
        for (prefix, token, total) in &continuations[..continuations.len().min(config.beam_size)] {
            if *token == END {
                finished.push((config.score(*total, prefix.len() + 1, limits), prefix.clone()));
            }
        }
        let going_on =
            continuations.into_iter().filter(|(_, token, _)| *token != END).take(config.beam_size);
        live = going_on
            .map(|(prefix, token, total)| ([prefix, vec![token]].concat(), total))
            .collect();
        // With patience, the search stops here; otherwise it runs to the maximum length.
        if config.patience > 0.0 && finished.len() >= config.beam_size {
            break;
        }
    }
    finished.sort_by(|a, b| b.0.total_cmp(&a.0));
    finished.truncate(config.n_best);
    let tokens = finished.into_iter().map(|(_, tokens)| tokens);
    (tokens.collect(), rows)
}

#[test]
fn a_full_beam_finds_what_exhaustive_enumeration_finds() {
    const MAX_LENGTH: usize = 4;
    for (alpha, reward, shortfall) in [
        (0.0, 0.0, 0.0),
        (0.6, 0.0, 0.0),
        (1.0, 0.0, 0.0),
        (2.0, 0.0, 0.0),
        (0.0, 1.5, 0.0),
        (1.0, 0.5, 0.0),
        (1.0, 0.0, 3.0),
        (0.0, 0.0, 20.0),
        (0.6, 0.3, 2.0),
    ] {
        for (seed, min_length) in [(1, 0), (2, 0), (3, 2), (4, 0)] {
            let model = HashModel::new(seed);
            let sources = random_sources(3, seed);
            let config = DecodingConfig {
                n_best: 7,
                length_penalty: alpha,
                length_reward: reward,
                shortfall_penalty: shortfall,
                expected_length: ExpectedLength { ratio: 0.4, offset: 0.3 },
                min_length,
                // The beam is so wide that nothing is dropped: there are 4 ordinary tokens, so
                // at most 4^4 live hypotheses, each with 5 continuations.
                ..short_outputs(4_usize.pow(MAX_LENGTH as u32) * 5, MAX_LENGTH)
            };
            let ours = beam_search(&model, &slices(&sources), &config).expect("decodes");
            for (source, ours) in sources.iter().zip(ours) {
                let mut all: Vec<(f64, f64, Vec<u32>)> =
                    enumerate(&model, source, min_length, MAX_LENGTH)
                        .into_iter()
                        .map(|(tokens, total)| {
                            let length = tokens.len() + 1;
                            let expected = 0.4 * (source.len() - 1) as f64 + 0.3 + 1.0;
                            let missing = (expected / length as f64 - 1.0).max(0.0);
                            let most = if shortfall > 0.0 { expected } else { f64::MAX };
                            let counted = (length as f64).min(most);
                            (
                                total / ((5.0 + counted) / 6.0).powf(alpha)
                                    + reward * length as f64
                                    - shortfall * missing,
                                total,
                                tokens,
                            )
                        })
                        .collect();
                all.sort_by(|a, b| b.0.total_cmp(&a.0));
                assert_eq!(ours.len(), 7);
                for (hypothesis, (score, total, tokens)) in ours.iter().zip(all) {
                    assert_eq!(hypothesis.tokens, tokens);
                    assert_eq!(hypothesis.length, tokens.len() + 1);
                    assert!((hypothesis.log_probability - total).abs() < 1e-5);
                    assert!((hypothesis.score - score).abs() < 1e-5);
                }
            }
        }
    }
}

#[test]
fn early_stopping_gives_what_running_to_the_maximum_length_gives() {
    let (mut rows, mut patient_rows) = (0, 0);
    for (beam_size, n_best, alpha, (reward, shortfall), end_bias) in [
        (2, 1, 0.6, (0.0, 0.0), 0.0),
        (3, 3, 1.0, (0.0, 0.0), 1.0),
        (5, 1, 2.0, (0.0, 0.0), 2.0),
        (5, 4, 0.0, (0.0, 0.0), 0.0),
        (4, 2, 0.6, (0.0, 0.0), -2.0),
        (4, 1, 0.0, (0.2, 0.0), 2.0),
        (3, 2, 1.0, (0.1, 0.0), 1.0),
        (4, 1, 1.0, (0.0, 2.0), 2.0),
        (5, 3, 0.0, (0.0, 9.0), 1.0),
        (3, 1, 0.6, (0.1, 4.0), 2.0),
    ] {
        for seed in 10..20 {
            let mut model = HashModel::new(seed);
            model.end_bias = end_bias;
            let sources = random_sources(4, seed);
            let config = DecodingConfig {
                n_best,
                length_penalty: alpha,
                length_reward: reward,
                shortfall_penalty: shortfall,
                expected_length: ExpectedLength { ratio: 0.8, offset: 1.0 },
                max_length_ratio: 1.0,
                ..short_outputs(beam_size, 8)
            };
            let ours = beam_search(&model, &slices(&sources), &config).expect("decodes");
            rows += model.rows_stepped.swap(0, Ordering::Relaxed);
            for (source, ours) in sources.iter().zip(ours) {
                let ours: Vec<Vec<u32>> = ours.into_iter().map(|h| h.tokens).collect();
                let (expected, patient) = patient_beam(&model, source, &config);
                assert_eq!(ours, expected);
                patient_rows += patient;
            }
        }
    }
    assert!(rows < patient_rows, "{rows} of {patient_rows} rows: nothing stopped early");
}

#[test]
fn patience_stops_when_enough_have_finished() {
    let (mut rows, mut exact_rows) = (0, 0);
    for form in [LengthPenaltyForm::Gnmt, LengthPenaltyForm::Power] {
        for seed in 30..40 {
            let mut model = HashModel::new(seed);
            model.end_bias = 1.0;
            let sources = random_sources(4, seed);
            let exact = DecodingConfig {
                length_penalty: 1.0,
                length_penalty_form: form,
                n_best: 2,
                ..short_outputs(4, 12)
            };
            let config = DecodingConfig { patience: 1.0, ..exact.clone() };
            beam_search(&model, &slices(&sources), &exact).expect("decodes");
            exact_rows += model.rows_stepped.swap(0, Ordering::Relaxed);
            let ours = beam_search(&model, &slices(&sources), &config).expect("decodes");
            rows += model.rows_stepped.swap(0, Ordering::Relaxed);
            for (source, ours) in sources.iter().zip(ours) {
                let ours: Vec<Vec<u32>> = ours.into_iter().map(|h| h.tokens).collect();
                assert_eq!(ours, patient_beam(&model, source, &config).0);
            }
        }
    }
    assert!(rows < exact_rows, "{rows} of {exact_rows} rows");
}

#[test]
fn a_beam_of_one_is_greedy_search() {
    for seed in 0..20 {
        let mut model = HashModel::new(seed);
        // With few distinct logits, there are ties at nearly every position.
        model.levels = if seed % 2 == 0 { 3 } else { 1 << 20 };
        let sources = random_sources(16, seed);
        let config = DecodingConfig {
            beam_size: 1,
            min_length: (seed % 3) as usize,
            ..DecodingConfig::default()
        };
        let greedy = greedy_search(&model, &slices(&sources), &config).expect("decodes");
        let beam = beam_search(&model, &slices(&sources), &config).expect("decodes");
        let beam: Vec<Hypothesis> = beam.into_iter().flatten().collect();
        assert_eq!(greedy, beam);
        assert!(greedy.iter().any(|hypothesis| hypothesis.length > 2));
    }
}

#[test]
fn forced_scores_of_an_output_are_the_scores_of_its_search_to_the_bit() {
    let model = HashModel::new(5);
    let sources = random_sources(12, 5);
    let config = DecodingConfig { n_best: 5, ..DecodingConfig::default() };
    let ours = beam_search(&model, &slices(&sources), &config).expect("decodes");
    for rank in 0..5 {
        let targets: Vec<&[u32]> = ours.iter().map(|n| n[rank].tokens.as_slice()).collect();
        let forced = forced_scores(&model, &slices(&sources), &targets, &config).expect("scores");
        for (forced, ours) in forced.iter().zip(ours.iter().map(|n| &n[rank])) {
            assert_eq!(forced.log_probability.to_bits(), ours.log_probability.to_bits());
            assert_eq!(forced.score.to_bits(), ours.score.to_bits());
            assert_eq!(forced.length, ours.length);
            assert_eq!(forced.token_log_probabilities.len(), ours.length);
        }
    }
}

#[test]
fn forced_token_scores_are_the_log_softmax() {
    let model = HashModel::new(6);
    let source = [7, 9, END];
    let target = [5, UNKNOWN, 4];
    let forced = forced_scores(
        &model,
        &[&source],
        &[&target],
        &DecodingConfig { length_penalty: 0.0, ..DecodingConfig::default() },
    )
    .expect("scores");
    for (position, &score) in forced[0].token_log_probabilities.iter().enumerate() {
        let token = target.get(position).copied().unwrap_or(END);
        let expected = log_softmax(&model, &source, &target[..position])[token as usize];
        assert!((score - expected).abs() < 1e-6);
    }
    assert_eq!(forced[0].score, forced[0].log_probability);
}

#[test]
fn n_best_lists_are_sorted_and_distinct() {
    let mut model = HashModel::new(8);
    model.levels = 4;
    let sources = random_sources(20, 8);
    let config = DecodingConfig { beam_size: 6, n_best: 6, ..DecodingConfig::default() };
    for list in beam_search(&model, &slices(&sources), &config).expect("decodes") {
        assert_eq!(list.len(), 6);
        assert!(list.is_sorted_by(|a, b| a.score >= b.score));
        for (rank, hypothesis) in list.iter().enumerate() {
            assert!(list[..rank].iter().all(|h| h.tokens != hypothesis.tokens));
        }
    }
}

#[test]
fn lengths_stay_within_their_limits_and_special_tokens_never_come() {
    let mut model = HashModel::new(9);
    model.end_bias = -20.0;
    let sources = random_sources(20, 9);
    let mut config = DecodingConfig {
        beam_size: 3,
        max_length_ratio: 1.5,
        max_length_offset: 2,
        max_length: 12,
        ..DecodingConfig::default()
    };
    // `</s>` is very unlikely here: outputs reach their maximum length, where the end is forced and
    // its log-probability counts.
    let ours = beam_search(&model, &slices(&sources), &config).expect("decodes");
    for (source, list) in sources.iter().zip(ours) {
        let most = (source.len() - 1) * 3 / 2 + 2;
        assert_eq!(list[0].tokens.len(), most.min(12));
        assert!(list[0].log_probability < -15.0);
        assert!(list[0].tokens.iter().all(|&token| token > END));
    }

    // Here `</s>` is very likely, and only the minimum length prevents it.
    model.end_bias = 20.0;
    config.min_length = 5;
    let ours = beam_search(&model, &slices(&sources), &config).expect("decodes");
    for (source, list) in sources.iter().zip(ours) {
        let limits = config.output_limits(source.len() - 1);
        assert_eq!(list[0].tokens.len(), limits.min_length);
    }
}

#[test]
fn unknown_comes_only_where_it_is_allowed() {
    let sources = random_sources(30, 11);
    let model = HashModel::new(11);
    let count = |allow_unknown| {
        let config = DecodingConfig { allow_unknown, ..DecodingConfig::default() };
        let ours = beam_search(&model, &slices(&sources), &config).expect("decodes");
        let tokens = ours.iter().flatten().flat_map(|h| &h.tokens);
        tokens.filter(|&&token| token == UNKNOWN).count()
    };
    assert_eq!(count(false), 0);
    assert!(count(true) > 0);
}

/// Whether an output contains all phrases, each in adjacent tokens.
fn has_all(output: &[u32], phrases: &[Vec<u32>]) -> bool {
    phrases.iter().all(|phrase| output.windows(phrase.len()).any(|part| part == phrase))
}

/// Checks that translations contain their phrases, with a beam of any size. With a beam so wide
/// that nothing is dropped, a translation must be the best of all outputs that contain the phrases.
#[test]
fn phrases_are_in_every_translation() {
    let phrases = [
        vec![vec![5, 6]],
        vec![vec![4], vec![7, 7]],
        vec![vec![6, 5, 4], vec![7]],
        // One phrase begins with the other.
        vec![vec![5], vec![5, 6]],
    ];
    for seed in 0..16 {
        let model = HashModel::new(seed);
        let sources = random_sources(4, seed);
        let phrases = &phrases[seed as usize % 4];
        let plain = Sentence::plain(&sources);
        let with: Vec<Sentence<'_>> =
            plain.iter().map(|sentence| Sentence { phrases, ..*sentence }).collect();
        let config = DecodingConfig {
            max_length: 3,
            max_length_ratio: 0.0,
            max_length_offset: 3,
            length_penalty: 0.7,
            n_best: 1,
            ..DecodingConfig::default()
        };
        let translate = |beam_size, sentences: &[Sentence<'_>]| {
            let config = DecodingConfig { beam_size, ..config.clone() };
            let translator = Translator::new(&model, config).expect("usable");
            translator.translate_sentences(sentences, |_| {}).expect("translated")
        };
        for beam_size in [1, 2, 5] {
            for list in translate(beam_size, &with) {
                assert!(has_all(&list[0].tokens, phrases), "{:?}", list[0].tokens);
            }
        }
        // Two sentences with phrases are translated in one batch with two sentences without
        // phrases. The sentences without phrases must have the same results as in a batch without
        // phrases.
        let mixed = [with[0], plain[1], with[2], plain[3]];
        let sampling = SamplingConfig { temperature: 1.0, ..SamplingConfig::default() };
        let drawn = DecodingConfig { n_best: 2, sampling, ..config.clone() };
        let [greedy, beam] = [1, 3].map(|beam_size| DecodingConfig { beam_size, ..config.clone() });
        for config in [greedy, beam, drawn] {
            let translator = Translator::new(&model, config).expect("usable");
            let translate = |sentences: &[Sentence<'_>]| {
                translator.translate_sentences(sentences, |_| {}).expect("translated")
            };
            let (all, alone) = (translate(&mixed), translate(&plain));
            assert!(has_all(&all[0][0].tokens, phrases) && has_all(&all[2][0].tokens, phrases));
            assert!(all[1] == alone[1] && all[3] == alone[3]);
        }
        // The maximum length is the configured length of three tokens, plus the tokens of the
        // phrases.
        let longest = 3 + phrases.iter().map(Vec::len).sum::<usize>();
        let wide = DecodingConfig { beam_size: 5000, ..config.clone() };
        for sentence in with.iter().take(usize::from(seed < 8)) {
            let found = Translator::new(&model, wide.clone()).expect("usable");
            let found = found.translate_sentences(&[*sentence], |_| {}).expect("translated");
            let outputs = enumerate(&model, sentence.source, 0, longest);
            let limits = config.output_limits(0);
            let score = |(tokens, total): &Scored| config.score(*total, tokens.len() + 1, limits);
            let whole = outputs.iter().filter(|(tokens, _)| has_all(tokens, phrases));
            let best = whole.max_by(|a, b| score(a).total_cmp(&score(b))).expect("one");
            assert_eq!(found[0][0].tokens, best.0);
        }
    }
}
