//! Tests diverse beam search, with groups of hypotheses.

use taper_decoding::SearchRules;

use super::*;

/// Settings of a diverse beam search of the library Transformers.
struct Groups {
    groups: usize,
    beam_size: usize,
    penalty: f64,
    length_penalty: f64,
    max_length: usize,
}

impl Groups {
    fn config(&self, n_best: usize) -> DecodingConfig {
        DecodingConfig {
            n_best,
            diverse_groups: self.groups,
            diverse_penalty: self.penalty,
            length_penalty: self.length_penalty,
            length_penalty_form: LengthPenaltyForm::Power,
            rules: SearchRules::Transformers,
            patience: 1.0,
            ..common::short_outputs(self.beam_size, self.max_length)
        }
    }

    /// Finds all hypotheses as Transformers 4 does (`_group_beam_search`, `BeamSearchScorer` and
    /// `HammingDiversityLogitsProcessor`) with `early_stopping=True` and `forced_eos_token_id`, but
    /// lists each translation once. Returns their tokens and scores, best first.
    fn slowly(&self, model: &HashModel, source: &[u32]) -> Vec<(Vec<u32>, f64)> {
        let size = self.beam_size / self.groups;
        let mut beams: Vec<Vec<Scored>> = vec![vec![(Vec::new(), 0.0)]; self.groups];
        let mut finished: Vec<Vec<Scored>> = vec![Vec::new(); self.groups];
        for length in 0..=self.max_length {
            let mut current_tokens: Vec<u32> = Vec::new();
            for (beam, finished) in beams.iter_mut().zip(&mut finished) {
                if finished.len() >= size {
                    continue;
                }
                let mut next: Vec<(f64, Vec<u32>, u32)> = Vec::new();
                for (prefix, total) in &*beam {
                    let row = log_softmax(model, source, prefix);
                    for token in END..model.vocabulary as u32 {
                        let frequency = current_tokens.iter().filter(|&&one| one == token).count();
                        let score = match (length == self.max_length, token == END) {
                            (true, true) => 0.0,
                            (true, false) => continue,
                            _ => row[token as usize] - self.penalty * frequency as f64,
                        };
                        next.push((total + score, prefix.clone(), token));
                    }
                }
                next.sort_by(|a, b| b.0.total_cmp(&a.0));
                beam.clear();
                for (rank, (score, prefix, token)) in next.into_iter().enumerate() {
                    if token != END && beam.len() < size {
                        beam.push(([prefix, vec![token]].concat(), score));
                        current_tokens.push(token);
                    } else if token == END && rank < size {
                        let divisor = ((length + 1) as f64).powf(self.length_penalty);
                        finished.push((prefix, score / divisor));
                    }
                }
                finished.sort_by(|a, b| b.1.total_cmp(&a.1));
                finished.truncate(size);
            }
        }
        let mut all: Vec<Scored> = finished.concat();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut once: Vec<Scored> = Vec::new();
        for (tokens, score) in all {
            if once.iter().all(|(other, _)| *other != tokens) {
                once.push((tokens, score));
            }
        }
        once
    }
}

#[test]
fn groups_are_those_of_transformers() {
    let mut together = 0;
    for (seed, groups, beam_size, penalty, length_penalty, max_length) in [
        (70, 2, 4, 0.5, 1.0, 6),
        (71, 3, 3, 0.8, 0.6, 5),
        (72, 2, 6, 0.2, 0.0, 7),
        (73, 4, 8, 2.5, 1.0, 6),
        (74, 5, 5, 50.0, 1.0, 4),
    ] {
        let asked = Groups { groups, beam_size, penalty, length_penalty, max_length };
        let model = HashModel::new(seed);
        let sources = random_sources(12, seed);
        let found = beam_search(&model, &slices(&sources), &asked.config(beam_size));
        for (source, list) in sources.iter().zip(found.expect("decodes")) {
            let expected = asked.slowly(&model, source);
            let tokens: Vec<&Vec<u32>> = list.iter().map(|one| &one.tokens).collect();
            assert_eq!(tokens, expected.iter().map(|(tokens, _)| tokens).collect::<Vec<_>>());
            for (one, (_, score)) in list.iter().zip(&expected) {
                assert!((one.score - score).abs() < 1e-6, "{} {score}", one.score);
                let sum: f64 = one.token_log_probabilities.iter().sum();
                assert!((one.log_probability - sum).abs() < 1e-6, "penalties are no probabilities");
            }
            together += usize::from(list.len() < beam_size);
        }
    }
    assert!(together > 0, "no two groups found the same translation");
}

/// If the penalty exceeds all differences of log-probabilities, and each group has one hypothesis,
/// all groups begin with different tokens.
#[test]
fn a_large_penalty_makes_all_first_tokens_different() {
    let model = HashModel { end_bias: -20.0, ..HashModel::new(75) };
    let sources = random_sources(20, 75);
    let config = DecodingConfig {
        n_best: 4,
        diverse_groups: 4,
        diverse_penalty: 1000.0,
        ..common::short_outputs(4, 3)
    };
    let beams =
        |config: &DecodingConfig| beam_search(&model, &slices(&sources), config).expect("decodes");
    for list in beams(&config) {
        let mut first: Vec<u32> = list.iter().map(|one| one.tokens[0]).collect();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), 4, "{list:?}");
    }
    // One group is a beam without groups, whatever the penalty.
    let one = DecodingConfig { diverse_groups: 1, ..config.clone() };
    assert_eq!(beams(&one), beams(&DecodingConfig { n_best: 4, ..common::short_outputs(4, 3) }));
}

#[test]
fn groups_do_not_depend_on_batches_and_leave_sentences_with_phrases_alone() {
    let model = HashModel::new(76);
    let sources = random_sources(9, 76);
    let phrases = [vec![5, 6]];
    let mut sentences = Sentence::plain(&sources);
    sentences[4].phrases = &phrases;
    let translate = |diverse_groups, batch_rows, sentences: &[Sentence<'_>]| {
        let short = common::short_outputs(6, 5);
        let config = DecodingConfig { n_best: 6, diverse_groups, batch_rows, ..short };
        let translator = Translator::new(&model, config).expect("usable");
        translator.translate_sentences(sentences, |_| {}).expect("translated")
    };
    let together = translate(3, 1000, &sentences);
    assert_eq!(together, translate(3, 12, &sentences));
    for (sentence, list) in sentences.iter().zip(&together) {
        assert_eq!(&translate(3, 1000, &[*sentence])[0], list);
    }
    assert_eq!(together[4], translate(1, 1000, &sentences)[4]);
    assert_ne!(together, translate(1, 1000, &sentences));
}

#[test]
fn groups_without_meaning_are_refused() {
    let refusal = |config: DecodingConfig| config.validate().expect_err("refused").to_string();
    let of = |beam_size, diverse_groups| DecodingConfig {
        beam_size,
        diverse_groups,
        ..DecodingConfig::default()
    };
    assert!(of(6, 3).validate().is_ok() && of(1, 1).validate().is_ok());
    assert!(refusal(of(1, 2)).contains("divides decoding.beam_size, 1, evenly"));
    assert!(refusal(of(5, 2)).contains("divides decoding.beam_size, 5, evenly"));
    assert!(refusal(of(4, 0)).contains("diverse_groups"));
    let penalty = DecodingConfig { diverse_penalty: 0.0, ..of(4, 2) };
    assert!(refusal(penalty).contains("diverse_penalty"));
    let sampling = SamplingConfig { temperature: 1.0, ..SamplingConfig::default() };
    assert!(refusal(DecodingConfig { sampling, ..of(4, 2) }).contains("sampled"));
    // Reranking widens the beam to a multiple of the groups.
    let reranking = taper_decoding::RerankingConfig { candidates: 10, ..Default::default() };
    let widened = DecodingConfig { reranking, ..of(6, 3) }.with_candidates();
    assert_eq!((widened.beam_size, widened.n_best), (12, 10));
    assert!(widened.validate().is_ok());
    // No multiple of 3 from 65,536 is a beam size.
    let of_candidates = |candidates| {
        let reranking = taper_decoding::RerankingConfig { candidates, ..Default::default() };
        DecodingConfig { reranking, ..of(6, 3) }
    };
    let most = of_candidates(65_535);
    assert!(most.validate().is_ok() && most.with_candidates().validate().is_ok());
    assert!(refusal(of_candidates(65_536)).contains("at most 65535"));
}
