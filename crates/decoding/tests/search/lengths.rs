//! Tests lengths of outputs: penalties, rewards, limits and expected lengths.

use taper_decoding::{
    DecodingConfig, END, ExpectedLength, LengthPenaltyForm, LengthSettings, SamplingConfig,
    SearchRules, Sentence, Translator, beam_search, forced_scores, length_penalty,
};

use super::common::{HashModel, random_sources, short_outputs};
use super::slices;

#[test]
fn length_penalty_and_reward_are_those_of_the_papers() {
    assert_eq!(length_penalty(1, 0.6), 1.0);
    assert_eq!(length_penalty(7, 1.0), 2.0);
    assert_eq!(length_penalty(19, 0.5), 2.0);
    assert_eq!(length_penalty(100, 0.0), 1.0);
    let power = DecodingConfig {
        length_penalty: 0.5,
        length_penalty_form: LengthPenaltyForm::Power,
        ..DecodingConfig::default()
    };
    let limits = power.output_limits(10);
    assert_eq!(power.score(-8.0, 16, limits), -2.0);
    let rewarded =
        DecodingConfig { length_penalty: 0.0, length_reward: 0.25, ..DecodingConfig::default() };
    assert_eq!(rewarded.score(-8.0, 16, limits), -4.0);
    let expecting = DecodingConfig {
        length_penalty: 0.0,
        shortfall_penalty: 2.0,
        expected_length: ExpectedLength { ratio: 1.5, offset: 4.0 },
        ..DecodingConfig::default()
    };
    // For a source of 10 tokens, 19 tokens and `</s>` are expected.
    let limits = expecting.output_limits(10);
    assert_eq!(expecting.score(-8.0, 16, limits), -8.0 - 2.0 * (20.0 / 16.0 - 1.0));
    for longer in [20, 21, 200] {
        assert_eq!(expecting.score(-8.0, longer, limits), -8.0);
    }
}

#[test]
fn an_output_without_tokens_has_a_score() {
    let (sources, model) = (random_sources(5, 12), HashModel::new(12));
    for length_penalty_form in [LengthPenaltyForm::Gnmt, LengthPenaltyForm::Power] {
        for (beam_size, shortfall_penalty) in [(1, 0.0), (3, 0.0), (3, 2.0)] {
            let config = DecodingConfig {
                length_penalty: 1.0,
                length_penalty_form,
                shortfall_penalty,
                expected_length: ExpectedLength { ratio: 1.0, offset: 0.0 },
                rules: SearchRules::TransformersOpen,
                ..short_outputs(beam_size, 0)
            };
            let found = beam_search(&model, &slices(&sources), &config).expect("decodes");
            for (list, source) in found.iter().zip(&sources) {
                assert!(list[0].tokens.is_empty() && list[0].length == 0);
                // As many tokens as in the source, and `</s>`, are expected.
                let shortfall = shortfall_penalty * (source.len() - 1) as f64;
                assert_eq!(list[0].score, -shortfall, "{config:?}");
            }
        }
    }
}

/// Settings that favour outputs of different lengths.
fn length_settings() -> [LengthSettings; 8] {
    let lengths = [
        (0.0, 0.0, 0.0),
        (0.6, 0.0, 0.0),
        (1.4, 0.0, 0.0),
        (0.0, 0.5, 0.0),
        (1.0, 0.2, 0.0),
        (0.3, 2.0, 0.0),
        (1.0, 0.0, 2.0),
        (0.4, 0.1, 9.0),
    ];
    lengths.map(|(length_penalty, length_reward, shortfall_penalty)| LengthSettings {
        length_penalty,
        length_reward,
        shortfall_penalty,
    })
}

/// Checks that one search for all [`length_settings`] finds the same translations as a search for
/// each of them. Returns how many of the translations differ from those with the first settings.
fn compare_with_single_searches(
    model: &HashModel,
    sentences: &[Sentence<'_>],
    config: &DecodingConfig,
) -> usize {
    let (lengths, mut different) = (length_settings(), 0);
    let translator =
        |config: &DecodingConfig| Translator::new(model, config.clone()).expect("a configuration");
    let together =
        translator(config).translate_under(sentences, &lengths, |_| {}).expect("decodes");
    for (at, lengths) in lengths.iter().enumerate() {
        let mut config = config.clone();
        lengths.apply(&mut config);
        let alone = translator(&config).translate_sentences(sentences, |_| {}).expect("decodes");
        for (together, alone) in together.iter().zip(&alone) {
            assert_eq!(together[at], alone[0].tokens, "{config:?}");
            different += usize::from(together[at] != together[0]);
        }
    }
    different
}

#[test]
fn one_search_finds_what_one_for_each_length_penalty_and_reward_finds() {
    let mut sources = random_sources(40, 12);
    sources.push(vec![END]);
    let (sentences, model) = (Sentence::plain(&sources), HashModel::new(12));
    let expected_length = ExpectedLength { ratio: 1.1, offset: 0.5 };
    for (beam_size, patience) in [(1, 0.0), (2, 0.0), (5, 0.0), (5, 1.0)] {
        let config =
            DecodingConfig { beam_size, patience, expected_length, ..DecodingConfig::default() };
        let different = compare_with_single_searches(&model, &sentences, &config);
        assert!(beam_size == 1 || different > 5, "{different} differ");
    }
    let translator = Translator::new(&model, DecodingConfig::default()).expect("a configuration");
    let negative = LengthSettings { length_penalty: -1.0, ..length_settings()[0] };
    assert!(translator.translate_under(&sentences, &[negative], |_| {}).is_err());
    let none = translator.translate_under(&sentences, &[], |_| {}).expect("decodes");
    assert!(none.len() == sentences.len() && none.iter().all(Vec::is_empty));
}

#[test]
fn one_search_is_enough_for_phrases_samples_and_other_rules_too() {
    let (sources, model) = (random_sources(40, 19), HashModel::new(19));
    let plain = Sentence::plain(&sources);
    let phrases = [vec![5, 6], vec![7]];
    let mut with_phrases = plain.clone();
    with_phrases.iter_mut().step_by(3).for_each(|sentence| sentence.phrases = &phrases);
    let config = DecodingConfig {
        beam_size: 4,
        expected_length: ExpectedLength { ratio: 1.1, offset: 0.5 },
        max_length: 12,
        ..DecodingConfig::default()
    };
    let greedy = DecodingConfig { beam_size: 1, ..config.clone() };
    let sampling = SamplingConfig { temperature: 1.0, ..SamplingConfig::default() };
    let drawn = DecodingConfig { n_best: 4, sampling, ..config.clone() };
    let rules = DecodingConfig { rules: SearchRules::Transformers, ..config.clone() };
    let impatient = DecodingConfig { n_best: 3, patience: 0.25, ..config.clone() };
    for (name, sentences, config) in [
        ("greedy search and phrases", &with_phrases, &greedy),
        ("a beam and phrases", &with_phrases, &config),
        ("samples", &plain, &drawn),
        ("samples and phrases", &with_phrases, &drawn),
        ("rules of Transformers", &plain, &rules),
        ("patience with several translations", &plain, &impatient),
    ] {
        let different = compare_with_single_searches(&model, sentences, config);
        assert!(different > 5, "{name}: {different} differ");
    }
}

#[test]
fn without_a_forced_end_a_translation_stops_at_the_maximum_length() {
    let (sources, model) = (random_sources(40, 12), HashModel::new(12));
    for beam_size in [1, 4] {
        let config = DecodingConfig {
            beam_size,
            max_length: 2,
            rules: SearchRules::TransformersOpen,
            ..DecodingConfig::default()
        };
        let translator = Translator::new(&model, config.clone()).expect("a configuration");
        let found = translator.translate(&sources).expect("decodes");
        let mut stopped = 0;
        for (best, source) in found.iter().map(|list| &list[0]).zip(&sources) {
            let tokens = best.tokens.len();
            stopped += usize::from(best.truncated);
            assert_eq!(best.length, tokens + usize::from(!best.truncated));
            assert_eq!(best.truncated, tokens == 2);
            let forced =
                forced_scores(&model, &[source], &[&best.tokens], &config).expect("scores");
            let same = &forced[0].token_log_probabilities[..best.length];
            assert_eq!(best.token_log_probabilities, same);
            let total = same.iter().fold(0.0, |sum, x| sum + x);
            assert_eq!(
                (best.log_probability, best.score),
                (total, config.score(total, same.len(), config.output_limits(source.len() - 1)))
            );
        }
        assert!(stopped > 5, "{stopped}");
    }
}

#[test]
fn a_shortfall_makes_translations_as_long_as_expected_and_no_longer() {
    let mut model = HashModel::new(14);
    // Without a penalty, short translations are the likeliest.
    model.end_bias = 2.0;
    let sources = random_sources(60, 14);
    let tokens = |config: &DecodingConfig| -> Vec<usize> {
        let found = beam_search(&model, &slices(&sources), config).expect("decodes");
        found.iter().map(|list| list[0].tokens.len()).collect()
    };
    let config = DecodingConfig { length_penalty: 1.0, ..short_outputs(6, 30) };
    let before = tokens(&config);
    let expected_length = ExpectedLength { ratio: 1.0, offset: 0.0 };
    let after =
        tokens(&DecodingConfig { shortfall_penalty: 1e3, expected_length, ..config.clone() });
    let rewarded = tokens(&DecodingConfig { length_reward: 1e3, ..config });
    for (index, source) in sources.iter().enumerate() {
        let expected = source.len() - 1;
        // No translation is shorter than expected. A translation is more than one token longer than
        // expected only if it was so long without the penalty.
        assert!(after[index] >= expected, "{index}: {} of {expected}", after[index]);
        assert!(after[index] <= before[index].max(expected + 1), "{index}: {}", after[index]);
        assert_eq!(rewarded[index], 30);
    }
    assert!(before.iter().zip(&after).filter(|(before, after)| before < after).count() > 20);
}

#[test]
fn forced_scores_fall_short_as_those_of_a_search() {
    let model = HashModel::new(15);
    let sources = random_sources(12, 15);
    let config = DecodingConfig {
        shortfall_penalty: 3.0,
        expected_length: ExpectedLength { ratio: 1.2, offset: 1.0 },
        ..DecodingConfig::default()
    };
    let ours = beam_search(&model, &slices(&sources), &config).expect("decodes");
    let targets: Vec<&[u32]> = ours.iter().map(|n| n[0].tokens.as_slice()).collect();
    let forced = forced_scores(&model, &slices(&sources), &targets, &config).expect("scores");
    for (forced, ours) in forced.iter().zip(&ours) {
        assert_eq!(forced.score.to_bits(), ours[0].score.to_bits());
    }
}

#[test]
fn what_a_search_has_to_know_is_asked_for() {
    let model = HashModel::new(16);
    let config = DecodingConfig { shortfall_penalty: 1.0, ..DecodingConfig::default() };
    config.validate().expect("a recipe: a run measures the lengths");
    let error = Translator::new(&model, config).expect_err("nothing is expected").to_string();
    assert!(error.contains("expected_length.ratio") && error.contains("tune"), "{error}");
}

#[test]
fn expected_lengths_are_fitted_by_least_squares() {
    let fit = |pairs: &[(usize, usize)]| {
        let ExpectedLength { ratio, offset } = ExpectedLength::fit(pairs.iter().copied());
        (ratio, offset)
    };
    assert_eq!(fit(&[(2, 5), (4, 9), (10, 21)]), (2.0, 1.0));
    // The expected values are those of `numpy.polyfit([3, 5, 8, 13, 20], [4, 6, 9, 15, 22], 1)`.
    assert_eq!(fit(&[(3, 4), (5, 6), (8, 9), (13, 15), (20, 22)]), (1.0717, 0.697));
    // In the first case, all sources have the same length; in the second, the fitted offset would
    // be negative. Both give the ratio of the mean lengths.
    assert_eq!(fit(&[(4, 6), (4, 8)]), (1.75, 0.0));
    assert_eq!(fit(&[(5, 1), (10, 11)]), (0.8, 0.0));
    assert!(ExpectedLength::fit(std::iter::empty()).is_unknown());
    assert!(ExpectedLength::fit([(0, 0)].into_iter()).is_unknown());
}
